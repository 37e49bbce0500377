"""The lexical layer: its verdicts on the project's own sentences, its model file, its features and their sum."""
# ruff: noqa: RUF001 - typographic characters are meant

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError
from tasks.grounding import ground, summed_up
from tasks.grounding.checkers import Lexical
from tasks.grounding.model import (
    WEIGHED,
    Calibration,
    LexicalModel,
    measure,
    read_claim,
    shipped,
)
from tasks.text.evidence import begin_search
from tasks.text.sentences import LONGEST, passage_spans, words
from tasks.text.source_index import index_source
from tasks.text.wording import content_words
from tests.unit.tasks.claims import FERRY, LOAN


def check(response: str, *sources: Any) -> Grounding:
    request = JobRequest(response=response, context=sources)
    return ground(request, postprocess(request, None, None))


def only(response: str, *sources: Any) -> Claim:
    (claim,) = check(response, *sources).claims
    return claim


# ---- verdicts on our own sentences ----


OPENING_HOURS = "The pool in Harbour Street opens Tuesday to Friday from 9 am to 5 pm, between May and September."


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("The pool in Harbour Street opens on Thursday.", Verdict.UNDECIDED),
        ("The pool in Harbour Street opens on Sunday.", Verdict.CONTRADICTED),
        ("The pool in Harbour Street opens in July.", Verdict.UNDECIDED),
        ("The pool in Harbour Street opens Tuesday to Saturday.", Verdict.CONTRADICTED),
    ],
)
def test_a_day_inside_a_range_contradicts_nothing(claim: str, verdict: Verdict) -> None:
    assert only(claim, OPENING_HOURS).verdict is verdict


@pytest.mark.parametrize(
    ("claim", "source", "verdict"),
    [
        ("The kettle has a filter.", "The kettle has a filter but no timer.", Verdict.UNDECIDED),
        ("The kettle has a filter.", "The kettle has no filter.", Verdict.CONTRADICTED),
        (
            "The notice says “dogs are on Sundays allowed on the beach”.",
            "The notice says: “On Sundays dogs are allowed on the beach.” It hangs at the gate.",
            Verdict.UNDECIDED,
        ),
        (
            'The film was chosen for the national list in May as being "of great beauty".',
            'The films "Harbour Lights" and "Night Ferry" were chosen for the national list in May as being good.',
            Verdict.UNDECIDED,
        ),
        (
            'Analysts expect "a storm of claims and cuts".',
            'The debt is "a burden," she said, while he fears "a storm of claims, cuts and rain" in May.',
            Verdict.CONTRADICTED,
        ),
        (
            "The council named her head of the team for the Rio games of 2016 on 29 April 2014.",
            "29 April 2014\n\nToday the council has named her head of the team for the Baku games of 2015 and the Rio games of 2016.",
            Verdict.UNDECIDED,
        ),
    ],
)
def test_what_a_claim_leaves_out_or_moves_contradicts_nothing(claim: str, source: str, verdict: Verdict) -> None:
    assert only(claim, source).verdict is verdict


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("The vessel Northwind carries 420 passengers.", "the source says '240', not '420' (number)"),
        ("Dogs travel free on deck.", "no place of the sources accounts for Dogs, travel, free, deck"),
        ("Growth was -3 % in May.", "the source says '3 %', not '-3 %' (number)"),
    ],
)
def test_verdicts_have_reasons_in_words(claim: str, reason: str) -> None:
    result = only(claim, FERRY, "Growth was 3 % in May.")
    assert result.verdict is (Verdict.CONTRADICTED if "the source says" in reason else Verdict.UNDECIDED)
    assert reason in result.reason


# ---- windows and indexes ----


def test_a_window_never_reaches_from_one_source_into_the_next() -> None:
    claim_words = read_claim("Zebras juggle marbles loudly.")
    sources = JobRequest(response="x", context=("Zebras juggle.", "Marbles roll loudly.")).context
    measured = measure(begin_search(sources, claim_words.content), claim_words)
    assert measured.features.letters == pytest.approx(0.5, abs=0.05)
    assert measure(begin_search(sources, claim_words.content).within({0, 1}), claim_words).features.letters == 1.0


ODD = st.text(st.one_of(st.sampled_from("aB .!?\n\r\t\"')1,0“。।-#|*\x01\x1e\u00a0é字"), st.characters()), max_size=90)


@given(st.one_of(ODD, ODD.map(lambda text: text * 40)))
def test_passages_are_ordered_trimmed_short_and_lose_nothing(text: str) -> None:
    position = 0
    for start, end in passage_spans(text):
        assert position <= start < end <= len(text)
        assert end - start <= LONGEST
        assert text[start:end] == text[start:end].strip()
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()


WORDS = [
    "The Ferry's", "cities", "city", "party", "Essays", "not", "two", "zwei", "1,200.50", "2018-19", "007", "é", "Müller",
    "Straße", "ﬁnal", "fees,", "x\u00a0000", "12\u00a0000", "don’t", "running.", "runs.\n\n", "(Companies)", "µm", "Дом", "港口",
    "a" * 600, "- item\n", "5.", "five", "days", "day", "ies", "yes", "Company's",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), st.data())
@settings(max_examples=100)
def test_words_are_looked_for_as_they_are_indexed(text: str, data: st.DataObject) -> None:
    everything = content_words([*words(text), *words(" ".join(WORDS))])
    chosen = frozenset(data.draw(st.lists(st.sampled_from(sorted(everything)), min_size=1)))
    search = begin_search(
        JobRequest(response="x", context=(text or "x",)).context, everything | {f"z{n}" for n in range(99)}
    )
    index = index_source(text or "x").postings(everything)

    # A few of them, and then the rest.
    for stems in (chosen, search_all := everything | {f"z{n}" for n in range(99)}):
        search.look_for(stems)
        for stem in stems & everything:
            assert search.holds(stem) == (stem in index), stem
            match = search.best(frozenset({stem}), 0)
            assert (match and match.window) == (max(0, index[stem][0] - 2) if stem in index else None), stem
    total = len(passage_spans(text or "x")) + 1
    assert search.weights == {stem: 2.0 + math.log(total / (1 + len(index.get(stem, ())))) for stem in search_all}


# ---- the model ----


def test_the_shipped_model_says_where_it_comes_from() -> None:
    model = shipped()
    assert model.features == WEIGHED
    assert 0.5 < min(model.right.supported, model.right.contradicted) < 1
    assert len(model.trained_on) == 6
    assert all(len(digest) == 64 for digest in model.trained_on.values())
    assert model.knots[0][1] > 0.02
    assert model.knots[-1][1] < 0.98
    assert model.metrics["full model, folds"]["pooled ECE"] <= 0.05


def test_a_model_for_other_features_is_refused() -> None:
    value = json.loads(shipped().model_dump_json())
    with pytest.raises(ValueError, match="made for the features"):
        LexicalModel.model_validate(value | {"features": ["letters"]})
    with pytest.raises(ValueError, match="must rise"):
        LexicalModel.model_validate(value | {"knots": [[0, 0.5], [0, 0.6]]})


# ---- one's own calibration ----


def calibration(**changed: Any) -> Calibration:
    value = {"model": shipped().identity, "knots": ((-1.0, 0.1), (1.0, 0.9)), "supported_at": 0.99, "labels": 50}
    return Calibration.model_validate(value | changed)


def test_a_calibration_changes_score_threshold_and_version() -> None:
    lexical = Lexical(shipped().calibrated(calibration()))
    assert lexical.version.startswith(f"{shipped().version}+")
    request = JobRequest(response="A crossing takes 85 minutes.", context=(FERRY,))
    processed = postprocess(request, None, None)
    (own,) = ground(request, processed, {CheckerName.LEXICAL: lexical}).claims
    (usual,) = ground(request, processed).claims
    assert (own.verdict, own.score) == (Verdict.UNDECIDED, 0.9)
    assert own.reason.startswith("words support it, but not to the threshold of 0.99")
    assert (usual.verdict, usual.score != own.score) == (Verdict.SUPPORTED, True)


def test_a_calibration_for_another_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="made for lexical-1"):
        shipped().calibrated(calibration(model="lexical-1"))


@pytest.mark.parametrize("text", ["", "{}", '{"model": "m", "knots": [], "supported_at": 0.5, "labels": 1}'])
def test_a_broken_calibration_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"NIGHTDESK_CALIBRATION.*mine\.json"):
        Calibration.load(path)
    with pytest.raises(ConfigurationError, match="can't be read"):
        Calibration.load(tmp_path / "absent.json")


# ---- the scores of an answer ----


def test_the_weakest_claim_and_the_confidence() -> None:
    grounding = check("A crossing takes 85 minutes [1]. The captain eats 85 dogs [1]. Hello!", FERRY)
    assert grounding.weakest == 1
    shares = {Verdict.SUPPORTED: shipped().right.supported, Verdict.CONTRADICTED: shipped().right.contradicted}
    decided = [claim for claim in grounding.claims if claim.verdict in shares]
    assert [claim.checker for claim in decided] == ["lexical"] * len(decided)
    assert grounding.confidence == pytest.approx(
        sum(shares[claim.verdict] for claim in decided) / len(decided), abs=1e-4
    )
    assert check("The captain eats dogs [1].", FERRY).confidence is None
    assert (check("Hello!", FERRY).weakest, check("Hello!", FERRY).confidence) == (None, None)


def test_an_unchecked_claim_is_not_decided() -> None:
    claims = [
        Claim(text="a", start_pos=0, end_pos=1, verdict=Verdict.SUPPORTED, score=0.7, checker="lexical"),
        Claim(text="b", start_pos=2, end_pos=3, verdict=Verdict.UNCHECKED),
    ]
    grounding = summed_up(claims, {}, {}, [], shipped().right, skipped={})
    assert (grounding.weakest, grounding.confidence) == (1, shipped().right.supported)
    assert grounding.decided == {"lexical": 1}


@pytest.mark.parametrize(
    ("response", "recall", "precision"),
    [
        ("A crossing takes 85 minutes [1]. Borrowers may repay the loan early [2].", 1.0, 1.0),
        ("A crossing takes 85 minutes [1]. Borrowers may repay the loan early [1].", 0.5, 0.5),
        ("A crossing takes 85 minutes. Borrowers may repay the loan early [2].", 0.5, 1.0),
        ("A crossing takes 85 minutes [1][2].", 1.0, 0.5),
        ("A crossing takes 85 minutes.", 0.0, None),
    ],
)
def test_citation_recall_and_precision(response: str, recall: float, precision: float | None) -> None:
    grounding = check(response, FERRY, LOAN)
    assert (grounding.citation_recall, grounding.citation_precision) == (recall, precision)


@pytest.mark.parametrize("wrapping", ["Answer: {}", '{{"answer": "{}"}}', "According to the policy, {}", "{}"])
def test_a_wrapping_changes_no_verdict(wrapping: str) -> None:
    for excess, expected in (("250", Verdict.SUPPORTED), ("350", Verdict.CONTRADICTED)):
        response = wrapping.format(f"the excess is {excess} euros for each claim.")
        assert only(response, "The excess is 250 euros for each claim.").verdict is expected


@pytest.mark.parametrize(
    ("source", "response", "expected"),
    [
        ("Registration closes on 30 June.", 'The text says: "Registration closes on 30 June."', Verdict.SUPPORTED),
        (
            'The mayor denied "any payment to the firm".',
            'The mayor confirmed "any payment to the firm".',
            Verdict.UNDECIDED,
        ),
        (
            'The union rejects "the sharing of costs".',
            'The company approves "the sharing of costs".',
            Verdict.UNDECIDED,
        ),
        (
            'The buyer told the seller "I will pay you on Monday".',
            'The seller told the buyer "I will pay you on Monday".',
            Verdict.UNDECIDED,
        ),
        ('The mayor did not say "we will pay".', 'The mayor did say "we will pay".', Verdict.CONTRADICTED),
        ('If the court agrees, the firm is "in breach".', 'The firm is "in breach".', Verdict.UNDECIDED),
        (
            'Under "Protected Bonus" two claims leave the discount unchanged.',
            'Under "Protected Bonus" two claims double the discount unchanged.',
            Verdict.UNDECIDED,
        ),
    ],
)
def test_a_quotation_supports_nothing_beside_it(source: str, response: str, expected: Verdict) -> None:
    assert check(response, {"content": source}).claims[-1].verdict is expected


@pytest.mark.parametrize("hidden", ["\u00ad", "\u200b", "\u2060", "\ufeff"])
@pytest.mark.parametrize(("amount", "verdict"), [(200, Verdict.SUPPORTED), (300, Verdict.CONTRADICTED)])
def test_what_nobody_sees_in_a_word_changes_no_verdict(hidden: str, amount: int, verdict: Verdict) -> None:
    source = f"The can{hidden}cel{hidden}lation fee of the Ba{hidden}sic tar{hidden}iff is 200 eu{hidden}ros. It is due at once."
    claim = f"The cancellation fee of the Basic tariff is {amount} euros."
    assert only(claim, source).verdict is verdict
    assert only(claim.replace("fee", f"f{hidden}ee"), source.replace(hidden, "")).verdict is verdict
