"""Amendments of a checked answer by its policy: shortened, listed, hidden, failed, always with exact offsets."""

from dataclasses import replace
from functools import cache
from time import monotonic
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.failure import FailureKind
from schemas.generation import CitationStyle, OutputFormat
from schemas.job import JobRequest
from schemas.record import RecordStatus
from schemas.states import JobState, Outcome
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.policy.outcome import CheckedAnswer, amend
from tasks.ports import FinalJob, Leased
from tasks.prompting.messages import render
from tests.builders import make_completion
from tests.unit.tasks.test_check import BAD, GOOD, SOURCE, examine, examined, leased_for_check, request_with

PLAIN_BAD = "The editor eats forty pancakes with syrup each Sunday."


def test_flagged_claims_are_warned_of_and_listed_under_the_answer() -> None:
    record = examined(f"{GOOD} {BAD}").record

    assert record.answer == f"{GOOD} {BAD}\n\n---\nNot verified against the sources:\n- {PLAIN_BAD}"
    assert f"words can't tell whether the sources support it: {PLAIN_BAD}" in record.quality.warnings
    assert record.grounding is not None
    assert [record.answer[claim.start_pos : claim.end_pos] for claim in record.grounding.claims] == [GOOD, BAD]


@pytest.mark.parametrize(
    "config",
    [
        {"ungrounded_appendix": False},
        {"require_grounding": False},
        {"output_format": "table"},
        {"on_ungrounded": "redact"},
    ],
)
def test_nothing_is_listed_where_it_does_not_belong(config: dict[str, Any]) -> None:
    assert "---\nNot" not in examined(f"{GOOD} {BAD}", **config).record.answer


@pytest.mark.parametrize(("policy", "outcome"), [("flag", Outcome.PARTIAL), ("reject", Outcome.REJECTED)])
def test_a_supplied_answer_stays_unchanged(policy: str, outcome: Outcome) -> None:
    config = {"max_response_length": 5, "on_ungrounded": policy, "strictness": "strict"}
    request = JobRequest(context=({"content": SOURCE},), response=f"{GOOD} {BAD}", config=config)
    final = examine(leased_for_check(request, ""), monotonic())

    assert isinstance(final, FinalJob)
    assert (final.outcome, final.record.answer) == (outcome, f"{GOOD} {BAD}")
    assert any("pancakes" in warning for warning in final.record.quality.warnings)


@pytest.mark.parametrize(
    ("language", "heading"),
    [
        ("de", "Durch die Quellen"),
        ("German", "Durch die Quellen"),
        ("fr-CA", "Non vérifié"),
        ("Klingon", "Not verified"),
    ],
)
def test_the_list_is_headed_in_the_language_of_the_answer(language: str, heading: str) -> None:
    assert heading in examined(f"{GOOD} {BAD}", language=language).record.answer


def test_a_rejected_answer_is_not_shown_but_kept() -> None:
    final = examined(f"{GOOD} {BAD}", on_ungrounded="reject")
    record = final.record

    assert (final.outcome, record.status) == (Outcome.REJECTED, RecordStatus.PARTIAL)
    assert "pancakes" not in record.answer
    assert (record.citations, record.output_structured) == ((), None)
    assert "pancakes" in (record.output_raw or "")
    assert record.canonical is not None
    assert len(record.canonical.segments) == 2
    own = examined(f"{GOOD} {BAD}", on_ungrounded="reject", fallback_messages={"rejected": "Ask a person."})
    assert own.record.answer == "Ask a person."


def test_missing_citations_fail_the_job_if_the_config_requires_it() -> None:
    text = "The night desk opens at nine in the evening."
    final = examined(text, missing_citations="failed")

    assert (final.state, final.outcome, final.record.status) == (JobState.FAILED, None, RecordStatus.FAILED)
    assert final.record.failure is not None
    assert final.record.failure.kind is FailureKind.MISSING_CITATIONS
    assert "0 citations, at least 1" in final.record.failure.message
    assert (final.record.output_raw, text in final.record.answer) == (text, False)
    assert examined(GOOD, missing_citations="failed").outcome is Outcome.ANSWERED
    assert examined(text, missing_citations="failed", include_citations=False).state is JobState.COMPLETED
    assert examined("[none] Not in the sources.", missing_citations="failed").outcome is Outcome.ABSTAINED


# ---- to its length ---------------------------------------------------------------------------------------------


FOUR = "The morning edition is printed in Port Lune at four [1]."


@cache
def any_job() -> Leased:
    return leased_for_check(request_with(), GOOD)


def checked(text: str, **config: Any) -> CheckedAnswer:
    request = request_with(**config)
    completion = make_completion(text)
    processed = postprocess(request, render(request, completion.protocol), completion)
    return CheckedAnswer(replace(any_job(), request=request), completion, processed, ground(request, processed))


def assert_offsets_hold(answer: CheckedAnswer) -> None:
    response = answer.processed.response
    for citation in answer.processed.citations:
        assert citation.quoted_text == SOURCE[citation.source_start or 0 : citation.source_end or 0]
        assert str(citation.rank) in response[citation.start_pos : citation.end_pos] or not answer.processed.markers
    assert answer.grounding is not None
    for claim in answer.grounding.claims:
        assert claim.text == response[claim.start_pos : claim.end_pos]


def test_a_long_answer_is_cut_at_a_sentence_end_and_says_so() -> None:
    shorter, amendments = amend(checked(f"{GOOD} {FOUR} {BAD}", max_response_length=110))

    assert shorter.processed.response == f"{GOOD} {FOUR}"
    assert amendments == ("the answer was cut at a sentence end from 164 to at most 110 characters",)
    assert amendments[0] in shorter.processed.warnings
    assert [warning for warning in shorter.processed.warnings if "at most 110 allowed" in warning] == []
    assert shorter.grounding is not None
    assert len(shorter.grounding.claims) == 2
    assert_offsets_hold(shorter)


def test_a_first_sentence_that_is_too_long_is_cut_at_a_word() -> None:
    shorter, amendments = amend(checked(f"{GOOD} {BAD}", max_response_length=30))

    assert shorter.processed.response == "The night desk opens at [1]…"
    assert "within its first sentence" in amendments[0]
    assert_offsets_hold(shorter)


SENTENCES = st.lists(
    st.sampled_from([GOOD, FOUR, BAD, "Is it open?", "Mars is red.", "Ätna [1]!", "* a point [1]\n"]),
    min_size=1,
    max_size=8,
)


@given(
    SENTENCES,
    st.sampled_from(CitationStyle),
    st.sampled_from([form for form in OutputFormat if form is not OutputFormat.AUTO]),
    st.integers(min_value=1, max_value=400),
    st.sampled_from(["flag", "redact"]),
)
def test_any_answer_is_cut_to_its_length_with_exact_offsets(
    sentences: list[str], style: CitationStyle, output_format: OutputFormat, limit: int, policy: str
) -> None:
    answer = checked(
        " ".join(sentences),
        citation_style=style,
        output_format=output_format,
        max_response_length=limit,
        on_ungrounded=policy,
    )
    shorter, amendments = amend(answer)

    fits = len(shorter.processed.response) <= limit
    assert fits or any("could not be cut" in amendment for amendment in amendments)
    assert not any("cut" in amendment for amendment in amendments) or len(answer.processed.response) > limit
    response = shorter.processed.response
    for citation in shorter.processed.citations:
        assert citation.quoted_text == SOURCE[citation.source_start or 0 : citation.source_end or 0]
        assert 0 <= citation.start_pos <= citation.end_pos <= len(response)
    for claim in shorter.grounding.claims if shorter.grounding else ():
        assert claim.text == response[claim.start_pos : claim.end_pos]
    if output_format is OutputFormat.JSON:
        orjson.loads(response)
