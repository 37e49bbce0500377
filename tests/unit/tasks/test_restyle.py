"""Restyling stored answers: the result equals that of a job with the target style from the start."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from time import monotonic
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.answer import CanonicalAnswer
from schemas.generation import AnswerProtocol, CitationStyle, OutputFormat
from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.model_call import Correction
from schemas.states import Outcome
from tasks.answers.parse import merge_repeated
from tasks.policy.restyle import restyle
from tasks.ports import FinalJob, JobView
from tasks.results import result_of, view_of_final
from tests.unit.tasks.test_check import examine, leased_for_check
from tests.unit.tasks.test_render_properties import ANSWERS

FORMATS = [format_ for format_ in OutputFormat if format_ is not OutputFormat.AUTO]
CONTEXT = (
    {"content": "The night desk opens at nine. It closes at four.", "title": "Hours [2024] | *all*", "page": 3},
    {"content": "费用为四欧元。The fee is 4 EUR.", "metadata": {"section_hierarchy": ["Fees", "Night"]}},
)
SEGMENTS = json.dumps(
    {
        "sufficient": True,
        "segments": [
            {"text": "The night desk opens at nine. It closes at four.", "citations": [{"source": 1, "quote": "opens at nine"}]},
            {"text": "费用为四欧元。", "citations": [{"source": 2, "quote": "费用为四欧元"}]},
            {"text": "The editor eats | pancakes daily.", "citations": [{"source": 2, "quote": ""}, {"source": 1, "quote": ""}]},
        ],
    },
    ensure_ascii=False,
)  # fmt: skip


def view(text: str, protocol: AnswerProtocol = AnswerProtocol.SEGMENTS, **config: Any) -> JobView:
    request = JobRequest(query="When does the desk open?", context=CONTEXT, config={"strictness": "strict", **config})
    # As if the model had been asked again in vain: this answer is the last.
    correction = Correction(purpose="reask", given_up="it was no better")
    job = replace(leased_for_check(request, text, protocol=protocol), correction=correction)
    final = examine(job, monotonic())
    assert isinstance(final, FinalJob)
    return view_of_final(final, datetime(2026, 1, 1, tzinfo=UTC))


@given(ANSWERS, st.sampled_from(CitationStyle), st.sampled_from(CitationStyle), st.sampled_from(FORMATS))
def test_restyling_any_answer_equals_rendering_it_and_claims_keep_their_words(
    answer: CanonicalAnswer, before: CitationStyle, after: CitationStyle, output_format: OutputFormat
) -> None:
    # Steps keep repetitions that other formats merge, and the other way round: those answers differ before they are rendered.
    assume(merge_repeated(answer, steps=True) == merge_repeated(answer, steps=False))
    text = answer.model_dump_json()
    plainly: dict[str, Any] = {"ungrounded_appendix": False}
    start = view(text, citation_style=before, **plainly)
    direct = view(text, citation_style=after, output_format=output_format, **plainly)
    moved = restyle(start, after, output_format)
    if not all(each.outcome and each.outcome.has_answer for each in (start, direct)):
        return
    assert (moved.response, moved.citations) == (result_of(direct).response, result_of(direct).citations)
    checked = [claim for claim in result_of(start).claims if claim.verdict is not Verdict.NOT_CHECKABLE]
    checkable = [claim for claim in moved.claims if claim.verdict is not Verdict.NOT_CHECKABLE]
    assert [(claim.verdict, claim.evidence) for claim in checkable] == [
        (claim.verdict, claim.evidence) for claim in checked
    ]
    for claim in moved.claims:
        assert moved.response[claim.start_pos : claim.end_pos] == claim.text


def test_verdicts_and_evidence_stay_with_their_words() -> None:
    first = result_of(job_view := view(SEGMENTS))
    for style, output_format in product(CitationStyle, FORMATS):
        moved = restyle(job_view, style, output_format)
        assert [claim.verdict for claim in moved.claims] == [claim.verdict for claim in first.claims]
        assert [claim.evidence for claim in moved.claims] == [claim.evidence for claim in first.claims]
        assert "opens at nine" in moved.claims[0].text
        assert "pancakes" in moved.claims[-1].text
        assert moved.grounding_score == first.grounding_score


def test_the_list_of_sources_is_there_once_and_the_score_has_its_own_name() -> None:
    job_view = view(SEGMENTS, ungrounded_appendix=False)
    numbered = restyle(job_view, with_sources=True).response
    assert numbered.endswith(
        "**Sources:**\n\n- [1] Hours \\[2024\\] \\| \\*all\\*, p. 3\n- [2] source 2 - Fees > Night"
    )
    for style in CitationStyle:
        with_list = restyle(job_view, style, with_sources=True).response
        assert with_list.count("source 2 - Fees") == (2 if style is CitationStyle.INLINE else 1) + (
            style is CitationStyle.INLINE
        )
    assert job_view.record is not None
    quality = job_view.record.quality.model_copy(update={"answer_quality": 0.87})
    assert job_view.record.grounding is not None
    assert job_view.record.grounding.confidence is not None
    line = f"\n\n*Confidence: {job_view.record.grounding.confidence:.1%}*"
    assert restyle(job_view, with_confidence=True).response.endswith(line)
    uncalibrated = job_view.record.grounding.model_copy(update={"confidence": None})
    changed = job_view.record.model_copy(update={"quality": quality, "grounding": uncalibrated})
    scored = JobView(**{**_fields(job_view), "record": changed})
    assert restyle(scored, with_confidence=True).response.endswith("\n\n*Answer quality: 87.0%*")


def _fields(job_view: JobView) -> dict[str, Any]:
    return {name: getattr(job_view, name) for name in JobView.__dataclass_fields__}


def test_an_answer_that_was_not_rendered_is_returned_unchanged() -> None:
    abstained = view(json.dumps({"sufficient": False, "segments": []}))
    assert abstained.outcome is Outcome.ABSTAINED
    assert restyle(abstained, CitationStyle.INLINE) == result_of(abstained)
    as_json = restyle(abstained, output_format=OutputFormat.JSON)
    value = json.loads(as_json.response)
    assert (value["answer"], value["status"], value["message"]) == ([], "abstained", result_of(abstained).response)
    job_view = view(SEGMENTS)
    assert job_view.record is not None
    old = JobView(**{**_fields(job_view), "record": job_view.record.model_copy(update={"canonical": None})})
    result = restyle(old, CitationStyle.INLINE)
    assert result.response == result_of(old).response
    assert "no canonical form" in result.warnings[-1]


def test_a_supplied_answer_is_not_restyled() -> None:
    request = JobRequest(context=CONTEXT, response="The night desk opens at nine [1].")
    job = leased_for_check(request, "")
    final = examine(job, monotonic())
    assert isinstance(final, FinalJob)
    result = restyle(view_of_final(final, datetime.now(UTC)), CitationStyle.FOOTNOTE)
    assert result.response == request.response
    assert "stays unchanged" in result.warnings[-1]
