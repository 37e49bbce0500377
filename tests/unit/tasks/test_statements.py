"""The claims of an answer, in six languages: nothing that says something is exempt, honest refusals stay refusals."""

from random import Random
from time import monotonic
from typing import Any

import pytest

from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from schemas.record import GenerationRecord
from schemas.states import Outcome
from tasks.answers.markers import find_markers
from tasks.answers.rendered import strip_markers
from tasks.ports import FinalJob
from tasks.text.clauses import clause_spans
from tasks.text.language import SUPPORTED
from tasks.text.sentences import Span
from tasks.text.statements import Vocabulary, read_statement
from tasks.text.word_search import AsciiSearch
from tests.unit.tasks.sayings import SAYINGS, Sayings
from tests.unit.tasks.test_check import examine, leased_for_check

KINDS = (
    "wrong",
    "right",
    "nothing",
    "compound",
    "whole",
    "denied",
    "absent",
    "refusals",
    "inventions",
    "remarks",
    "listed",
)


def final(sayings: Sayings, answer: str, **config: Any) -> tuple[Outcome | None, GenerationRecord]:
    """The outcome and the record of a supplied answer."""
    context = ({"content": sayings.source},)
    config = {"strictness": "strict", **config}
    request = JobRequest(query=sayings.question, context=context, response=answer, config=config)
    job = examine(leased_for_check(request, ""), monotonic())
    assert isinstance(job, FinalJob)
    return job.outcome, job.record


def claims_of(record: GenerationRecord) -> tuple[Claim, ...]:
    assert record.grounding is not None
    for claim in record.grounding.claims:
        assert record.answer[claim.start_pos : claim.end_pos] == claim.text
    return record.grounding.claims


def verdicts(record: GenerationRecord) -> set[Verdict]:
    return {claim.verdict for claim in claims_of(record)}


def every(kind: str) -> list[tuple[str, Any]]:
    """All sentences of a kind with their languages."""
    return [(code, text) for code, sayings in SAYINGS.items() for text in getattr(sayings, kind)]


def test_every_kind_has_eight_sentences_in_each_language_that_is_read() -> None:
    assert set(SAYINGS) == set(SUPPORTED)
    for code, sayings in SAYINGS.items():
        assert all(len(getattr(sayings, kind)) >= 8 for kind in KINDS), code


# ---- nothing that says something is exempt ---------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "answer"), every("wrong"))
def test_what_looks_like_no_statement_is_checked(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer)
    assert outcome is Outcome.PARTIAL
    assert Verdict.UNDECIDED in verdicts(record) or Verdict.CONTRADICTED in verdicts(record)


@pytest.mark.parametrize(("code", "answer"), every("right"))
def test_the_same_form_with_the_words_of_the_source_is_never_contradicted(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer, strictness="balanced")
    assert outcome in {Outcome.ANSWERED, Outcome.UNVERIFIED}
    assert verdicts(record) <= {Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.NOT_CHECKABLE}
    assert verdicts(record) != {Verdict.NOT_CHECKABLE}


@pytest.mark.parametrize(("code", "answer"), every("nothing"))
def test_what_says_nothing_is_no_claim_and_no_answer(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer)
    assert verdicts(record) == {Verdict.NOT_CHECKABLE}
    assert outcome is Outcome.PARTIAL
    assert "states nothing that can be checked" in record.quality.reasoning
    assert final(SAYINGS[code], answer, require_grounding=False)[0] is Outcome.ANSWERED


@pytest.mark.parametrize(("code", "answer"), every("remarks"))
def test_a_remark_about_the_answer_is_no_claim(code: str, answer: str) -> None:
    sayings = SAYINGS[code]
    outcome, record = final(sayings, f"{sayings.right[0]} {answer}", strictness="lenient")
    assert outcome is Outcome.ANSWERED
    assert [claim.verdict for claim in claims_of(record)][-1] is Verdict.NOT_CHECKABLE


@pytest.mark.parametrize(("code", "answer"), every("listed"))
def test_a_number_in_a_list_is_no_claimed_number(code: str, answer: str) -> None:
    _, record = final(SAYINGS[code], answer)
    assert Verdict.CONTRADICTED not in verdicts(record)
    assert not any("2" in claim.unaccounted for claim in claims_of(record))
    assert not any("number" in claim.reason for claim in claims_of(record))


@pytest.mark.parametrize(
    ("text", "is_claim"),
    [
        ("## Morgan Hale", False),
        ("## The office of Tilda Brenner", True),
        ("**Fees of 2019**", True),
        ("**4 % a year**", False),
        ("## How to give notice", False),
        ("What does Morgan Hale pay?", True),
        ("How high is the rent of the pool?", False),
        ("Requirements:", False),
        ("There are 17 penguins:", True),
    ],
)
def test_a_topic_is_a_claim_if_it_names_what_is_nowhere(text: str, is_claim: bool) -> None:  # noqa: FBT001
    sayings = SAYINGS["en"]
    vocabulary = Vocabulary(sayings.question, [sayings.source], text)
    assert (read_statement(text, vocabulary=vocabulary).reason is None) is is_claim


# ---- a claim for each thing that is said -----------------------------------------------------------------------------


def bare(text: str) -> str:
    return strip_markers(text, [Span(marker.start, marker.end) for marker in find_markers(text)])


@pytest.mark.parametrize(("code", "row"), every("compound"))
def test_a_compound_sentence_is_several_claims(code: str, row: tuple[str, ...]) -> None:
    _, record = final(SAYINGS[code], row[0])
    assert [claim.text for claim in claims_of(record)] == list(row[1:])


@pytest.mark.parametrize(("code", "sentence"), every("whole"))
def test_what_holds_only_together_stays_one_claim(code: str, sentence: str) -> None:
    assert len(clause_spans(bare(sentence))) == 1


def test_the_right_half_does_not_carry_the_wrong_one() -> None:
    answer = "The rent may rise by at most 4 % a year, and the swimming pool holds ten thousand penguins [1]."
    outcome, record = final(SAYINGS["en"], answer)
    assert outcome is Outcome.PARTIAL
    assert [claim.verdict for claim in claims_of(record)] == [Verdict.SUPPORTED, Verdict.UNDECIDED]
    assert record.grounding is not None
    assert record.grounding.grounding_score == 0.5


def test_a_clause_without_a_citation_shares_the_next_one_of_its_sentence() -> None:
    answer = "The deposit is three monthly rents, and the office in Brevik opens at 9 [1]."
    outcome, record = final(SAYINGS["en"], answer)
    assert outcome is Outcome.ANSWERED
    assert record.grounding is not None
    assert (record.grounding.citation_recall, record.grounding.citation_precision) == (1.0, 1.0)
    assert not any("carries no citation" in claim.reason for claim in claims_of(record))


# ---- denials and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "answer"), every("denied"))
def test_a_denial_of_what_a_source_says_is_contradicted(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer)
    assert outcome is Outcome.PARTIAL
    (claim,) = claims_of(record)
    assert claim.verdict is Verdict.CONTRADICTED
    (place, *_) = claim.evidence
    assert SAYINGS[code].source[place.start : place.end].strip()


@pytest.mark.parametrize(("code", "answer"), [*every("absent"), *every("refusals")])
def test_an_honest_refusal_is_an_abstention(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer)
    assert (outcome, record.answer) == (Outcome.ABSTAINED, answer)


@pytest.mark.parametrize(("code", "answer"), every("inventions"))
def test_a_refusal_with_an_invented_fact_is_no_refusal(code: str, answer: str) -> None:
    outcome, record = final(SAYINGS[code], answer)
    assert outcome is Outcome.PARTIAL
    assert not verdicts(record).isdisjoint({Verdict.UNDECIDED, Verdict.CONTRADICTED})


# ---- broken citations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", ["[7]", "[7][8]"])
def test_an_answer_whose_only_citation_is_broken_is_not_answered(marker: str) -> None:
    config = {"min_citations": 0}
    outcome, record = final(SAYINGS["en"], f"The deposit is three monthly rents {marker}.", **config)
    assert outcome is Outcome.PARTIAL
    assert record.grounding is not None
    assert record.grounding.citation_precision == 0.0
    assert claims_of(record)[0].miscited
    assert "leads to a place in a source" in record.quality.reasoning


# ---- the quick look at a sentence ------------------------------------------------------------------------------------


def test_a_quick_look_changes_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [each for sayings in SAYINGS.values() for kind in KINDS for each in getattr(sayings, kind)]
    texts = [text for each in sentences for text in ([each] if isinstance(each, str) else each)]
    # Starts and ends of different sentences: other words behind an opener, an anchor, a negation.
    chance = Random(7)
    words = [text.split() for text in texts if text.isascii()]
    for _ in range(150):
        first, second = chance.choice(words), chance.choice(words)
        texts.append(" ".join([*first[: chance.randint(1, 6)], *second[chance.randint(0, 3) :]]))
    quick = [read_statement(text, cited=True) for text in texts]
    monkeypatch.setattr(AsciiSearch, "may_match", lambda _, __: True)
    assert quick == [read_statement(text, cited=True) for text in texts]
