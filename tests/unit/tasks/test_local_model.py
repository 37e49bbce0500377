"""The local model's layer: which claims and passages it reads, and what its word changes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import GenerationConfig, JobRequest
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError
from tasks.grounding import CHECKERS, ground, use_local_model
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.local import (
    OF_CITED,
    PASSAGES,
    SURELY_SUPPORTED,
    SURELY_UNSUPPORTED,
    Local,
    claims_to_judge,
    without_judge,
)
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.weights import LocalWeights
from tasks.text.sentences import Span
from tests.scorers import NamedScorer, Short, Silent

NORTH = "The Northwind is a ferry of the northern line. It carries 36 cars and 200 passengers across the strait."
PEOPLE = "Alice sold the red house near the harbour to Boris in spring. Boris paid for it in gold coins."
SWAPPED = "A villa by the lake was sold by Boris to Alice for much silver [1]."
HALF = "Alice sold the big villa near the lake to a stranger for silver [1]."
LAYERS = ("structure", "lexical", "local")


def check(
    response: str, context: Any, scorer: NamedScorer, blend: LocalWeights | None = None, **config: Any
) -> Grounding:
    request = JobRequest(response=response, context=context, config=GenerationConfig(**{"checkers": LAYERS, **config}))
    calibration = Calibration(model=shipped().identity, knots=((0, 0.4),), supported_at=0.4, labels=1, local=blend)
    checkers = {**CHECKERS, CheckerName.LOCAL: Local(scorer, calibration=calibration if blend else None)}
    return ground(request, postprocess(request, None, None), checkers)


def only(response: str, context: Any, scorer: NamedScorer | None = None, **config: Any) -> Claim:
    (claim,) = check(response, context, scorer or NamedScorer(), **config).claims
    return claim


def lexical(response: str, context: Any) -> Claim:
    return only(response, context, Silent(), checkers=("structure", "lexical"))


def test_it_sees_who_did_it_where_the_words_do_not() -> None:
    by_words = lexical(SWAPPED, (PEOPLE,))
    assert by_words.score is not None
    assert SURELY_UNSUPPORTED < by_words.score < SURELY_SUPPORTED
    claim = only(SWAPPED, (PEOPLE,))
    assert (claim.verdict, claim.checker) == (Verdict.UNSUPPORTED, "local")
    assert claim.score is not None
    assert claim.score < by_words.score
    assert claim.reason.startswith("the local model says-who gives the best passage 0.15")
    (evidence,) = claim.evidence
    assert PEOPLE[evidence.start : evidence.end] == PEOPLE


def test_what_the_words_contradict_is_not_read() -> None:
    sentence = "Alice sold the red house near the harbour to Boris in autumn [1]."
    assert lexical(sentence, (PEOPLE,)).verdict is Verdict.CONTRADICTED
    claim = only(sentence, (PEOPLE,))
    assert (claim.verdict, claim.checker) == (Verdict.CONTRADICTED, "lexical")


def test_its_yes_decides_a_claim_that_the_words_leave_undecided() -> None:
    assert lexical(HALF, (PEOPLE,)).verdict is Verdict.UNDECIDED
    grounding = check(HALF, (PEOPLE,), NamedScorer())
    (claim,) = grounding.claims
    assert (claim.verdict, claim.miscited) == (Verdict.SUPPORTED, False)
    assert "villa" in claim.reason, "the remarks of the words stay"
    assert grounding.checkers["local"] == "says-who-3"
    assert grounding.confidence == claim.score


def test_a_model_without_an_opinion_changes_no_verdict() -> None:
    for sentence in (
        SWAPPED,
        HALF,
        "Boris paid Alice in gold coins for the boat [1].",
        "It carries 200 passengers [1].",
    ):
        assert only(sentence, (PEOPLE, NORTH), Silent()).verdict is lexical(sentence, (PEOPLE, NORTH)).verdict


def test_all_pairs_of_an_answer_go_to_the_model_at_once_cited_passages_first() -> None:
    filler = " ".join(f"Nothing is said of matter {number} in this sentence here." for number in range(40))
    long = f"{PEOPLE} {filler} The harbour sold a house near it. {filler} A stranger sold the villa."
    scorer = NamedScorer()
    check(
        HALF.replace("[1]", "[2]") + " " + "Boris sold the house for silver [2].",
        (PEOPLE, long),
        scorer,
        checkers=("local",),
    )
    (pairs,) = scorer.calls
    for name in ("Alice", "Boris"):
        evidence_of_name = [evidence for evidence, claim in pairs if claim.startswith(name)]
        assert len(evidence_of_name) == PASSAGES
        assert all(evidence in long and evidence != PEOPLE for evidence in evidence_of_name[:OF_CITED])
        assert len(set(evidence_of_name)) == PASSAGES
    assert all(len(evidence) <= 1_000 for evidence, _ in pairs)


def test_a_claim_in_other_words_or_another_language_is_read_beside_the_beginnings() -> None:
    scorer = NamedScorer()
    claim = only("Hunde dulden Vermieter ungern [2].", (NORTH, PEOPLE), scorer, checkers=("local",))
    assert [evidence for evidence, _ in scorer.calls[0]] == [PEOPLE]
    assert claim.verdict is Verdict.UNSUPPORTED
    assert only("Dogs bark [7].", (NORTH,), checkers=("local",)).verdict is Verdict.UNCHECKED


def test_a_model_that_gives_too_few_scores_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    grounding = check(HALF, (PEOPLE,), Short())
    assert "gave 0 scores for 1 pairs" in grounding.failed_checkers["local"]
    assert grounding.claims[0].checker == "lexical"
    assert "checker local failed" in caplog.text


def test_without_a_model_the_record_says_what_to_set() -> None:
    use_local_model(None)
    request = JobRequest(response=HALF, context=(PEOPLE,), config=GenerationConfig(checkers=LAYERS))
    grounding = ground(request, postprocess(request, None, None))
    assert "NIGHTDESK_LOCAL_MODEL" in grounding.failed_checkers["local"]
    assert grounding.claims[0].checker == "lexical"


def test_a_calibration_for_another_model_is_refused() -> None:
    weights = LocalWeights(source="says-who-3", labels=50, local=0.1)
    assert check(HALF, (PEOPLE,), NamedScorer(), weights).checkers["local"].startswith("says-who-3+")
    with pytest.raises(ConfigurationError, match="made for the local model other-1"):
        check(HALF, (PEOPLE,), NamedScorer(), LocalWeights(source="other-1", labels=50))


PROBABILITIES = st.floats(0, 1)
LOGITS = st.floats(-1e6, 1e6)
BLENDS = st.builds(
    LocalWeights,
    lexical=st.floats(0, 2),
    local=st.floats(0, 2),
    bias=st.floats(-2, 2),
)


@given(BLENDS, PROBABILITIES, PROBABILITIES, LOGITS, LOGITS)
def test_more_of_either_never_lowers_the_probability(
    blend: LocalWeights, first: float, other: float, logit: float, another: float
) -> None:
    low, high = sorted((first, other))
    less, more = sorted((logit, another))
    assert 0.05 <= blend.probability(low, less) <= blend.probability(high, more) <= 0.95
    assert blend.probability(None, less) <= blend.probability(None, more)
    assert 0 <= blend.alone(less) <= blend.alone(more) <= 1


def test_a_judge_is_asked_where_words_are_open_and_the_model_is_not_sure() -> None:
    words_open = ClaimFinding(Verdict.UNDECIDED, 0.5, reason="words")
    surely = ClaimFinding(Verdict.SUPPORTED, 0.9, reason="model")
    claim = CheckedClaim("Boris paid.", Span(0, 11))
    findings = {CheckerName.LEXICAL: [words_open, words_open], CheckerName.LOCAL: [surely, ClaimFinding()]}
    assert without_judge(findings) == [surely, words_open]
    assert claims_to_judge([claim, claim], findings) == [1]
    assert without_judge({CheckerName.LOCAL: [surely]}) == [surely]
    assert without_judge({}) is None
