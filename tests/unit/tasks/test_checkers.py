"""The hallucination check: verdicts with evidence, in words a person can follow."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import GenerationConfig, JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import CHECKERS, ground
from tasks.grounding.checkers import CheckInput, ClaimFinding
from tasks.grounding.model import shipped
from tasks.text.statements import read_statement

RENT = (
    "The landlord may increase the rent once in any period of 12 months. The increase shall be notified in writing at"
    " least 60 days before it takes effect. An increase may not exceed 4% of the current rent."
)
PETS = "Hamsters and fish may be kept without asking. Dogs require the written consent of the landlord."
OTHER = "The swimming pool opens in May. Towels are provided at the entrance. Children swim for free."


def check(response: str, context: Any = (RENT, PETS, OTHER), **config: Any) -> Grounding:
    request = JobRequest(response=response, context=context, config=GenerationConfig(**config))
    return ground(request, postprocess(request, None, None))


def only(response: str, **config: Any) -> Claim:
    (claim,) = check(response, **config).claims
    return claim


def test_a_supported_claim_names_its_evidence_to_the_code_point() -> None:
    claim = only("Dogs require the written consent of the landlord [2].")
    assert claim.verdict is Verdict.SUPPORTED
    assert not claim.miscited
    (evidence,) = claim.evidence
    assert evidence.source_index == 1
    assert PETS[evidence.start : evidence.end] == "Dogs require the written consent of the landlord."


def test_support_by_an_uncited_source_alone_is_miscited() -> None:
    claim = only("Dogs require the written consent of the landlord [3].")
    assert claim.verdict is Verdict.SUPPORTED
    assert claim.miscited
    assert claim.evidence[0].source_index == 1
    assert not only("Dogs require the written consent of the landlord.").miscited


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("How often may it rise?", "a question"),
        ("Hello!", "a courtesy"),
        ("I hope this helps.", "a courtesy"),
        ("Glad to help.", "a courtesy"),
        ("Don't hesitate to ask.", "a courtesy"),
        ("Einen schönen Tag noch!", "a courtesy"),
        ("The sources do not say anything about parking.", "it only says that the sources do not answer"),
        ("The provided documents contain no information on this.", "it only says that the sources do not answer"),
        (
            "Die Quellen nennen den Preis nicht, sie enthalten keine Angaben.",
            "it only says that the sources do not answer",
        ),
        ("## Rent increases", "a heading"),
        ("**Rent increases**", "a heading"),
        ("The following applies:", "the lead-in to what follows"),
        ("| --- | --- |", "no words"),
        ("```json", "no words"),
        ("It is so.", "no word of content"),
        ("The rent is 500 EUR.", None),
        ("The sources do not say, but the rent is 500 EUR.", None),
        ("The document is not valid without a signature.", None),
        ("- Dogs need consent.", None),
    ],
)
def test_checkable_and_uncheckable_statements(text: str, reason: str | None) -> None:
    assert read_statement(text).reason == reason


def test_scores_count_checkable_claims_only() -> None:
    grounding = check(
        "Hello! Dogs require the written consent of the landlord [2]. Parrots enjoy concerts [2]. Is that all?"
    )
    assert grounding.grounding_score == 0.5
    assert grounding.counts == {Verdict.SUPPORTED: 1, Verdict.UNDECIDED: 1, Verdict.NOT_CHECKABLE: 2}
    assert grounding.checkers == {"structure": "1", "lexical": shipped().version}
    assert check("Hello!").grounding_score is None
    assert check("").claims == ()


def test_structure_remarks_on_missing_and_wrong_citations() -> None:
    assert "carries no citation" in only("Dogs require the written consent of the landlord.").reason
    assert "do not exist: 7" in only("Dogs require the written consent of the landlord [7].").reason
    assert only("Dogs require the written consent of the landlord.", include_citations=False).reason == ""


def test_structure_alone_never_says_supported() -> None:
    structure = (CheckerName.STRUCTURE,)
    assert (
        only("Dogs require the written consent of the landlord [2].", checkers=structure).verdict is Verdict.UNCHECKED
    )
    assert (
        only("Dogs require the written consent of the landlord [7].", checkers=structure).verdict is Verdict.UNSUPPORTED
    )


def test_layers_that_do_not_exist_are_named_and_change_nothing() -> None:
    grounding = check("Dogs require the written consent of the landlord [2].", checkers=("lexical", "local", "judge"))
    assert set(grounding.failed_checkers) == {"local"}, "nothing was left open for a judge"
    assert grounding.grounding_score == 1.0
    alone = check("Dogs bark.", checkers=("judge",))
    assert alone.claims[0].verdict is Verdict.UNCHECKED
    assert "no judge is configured" in alone.failed_checkers["judge"]


def test_an_endless_answer_is_checked_as_far_as_it_is_sensible() -> None:
    grounding = check("Dogs require the written consent of the landlord. " * 510)
    assert grounding.counts == {Verdict.SUPPORTED: 500, Verdict.UNCHECKED: 10}
    assert grounding.claims[-1].reason == "no checker gave a verdict"


class Broken:
    """A checker that raises."""

    name = "lexical"
    version = "0"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        raise RuntimeError(f"cannot read {len(answer.claims)} claim(s)")


def test_a_checker_that_raises_leaves_claims_unchecked_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    request = JobRequest(response="Dogs require the written consent of the landlord [2].", context=(RENT, PETS))
    with caplog.at_level(logging.ERROR):
        grounding = ground(request, postprocess(request, None, None), {**CHECKERS, CheckerName.LEXICAL: Broken()})
    assert grounding.claims[0].verdict is Verdict.UNCHECKED
    assert grounding.grounding_score == 0.0
    assert grounding.failed_checkers == {"lexical": "RuntimeError: cannot read 1 claim(s)"}
    assert "checker lexical failed" in caplog.text


def test_languages_without_spaces_are_compared_too() -> None:
    (claim,) = check(
        "房东可以每年提高一次租金。[1]", context=("根据法律，房东可以每年提高一次租金。狗需要同意。",)
    ).claims
    assert claim.verdict is Verdict.SUPPORTED


TEXT = st.lists(
    st.one_of(
        st.sampled_from(
            [RENT, PETS, " ", "\n", "[1]", "[3].", "The rent rises 4.2%. ", "Dogs? ", "狗需要同意。", "| a | b |"]
        ),
        st.text(alphabet=st.characters(codec="utf-8"), max_size=15),
    ),
    max_size=8,
).map("".join)


@given(TEXT, st.lists(TEXT.filter(bool), max_size=3))
def test_claims_cover_the_response_and_evidence_exists(response: str, context: Any) -> None:
    grounding = check(response, context=context)
    position = 0
    for claim in grounding.claims:
        assert position <= claim.start_pos < claim.end_pos <= len(response)
        assert response[claim.start_pos : claim.end_pos] == claim.text
        position = claim.end_pos
        for evidence in claim.evidence:
            assert 0 <= evidence.start < evidence.end <= len(context[evidence.source_index])
    assert sum(grounding.counts.values()) == len(grounding.claims)
    assert check(response, context=context) == grounding
