"""Takes one completion through the check as a job's last answer, and names what no reader should see of its text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic

import orjson

from schemas.failure import Failure
from schemas.generation import OutputFormat
from schemas.job import JobRequest
from schemas.model_call import Completion, Correction
from schemas.states import JobState, Outcome
from tasks.answers.active_content import is_active
from tasks.check import AnotherRound, run_checkers
from tasks.ports import FinalJob
from tests.builders import lease_for_check


@dataclass(frozen=True)
class Output:
    """The text of a final job; ``again``: the answer would get a second round first."""

    name: str
    request: JobRequest
    raw: str
    text: str
    state: JobState
    outcome: Outcome | None
    again: bool
    warnings: tuple[str, ...]
    reasoning: str
    failure: Failure | None


def outputs(name: str, request: JobRequest, completion: Completion) -> Output:
    """The output of one completion, without another call."""
    job = lease_for_check(request, completion)
    result = run_checkers(job, monotonic())
    again = isinstance(result, AnotherRound)
    if again:
        given_up = Correction(purpose="reask", given_up="this is a probe, without a second call")
        result = run_checkers(replace(job, correction=given_up), monotonic())
    assert isinstance(result, FinalJob)
    record = result.record
    return Output(
        name=name,
        request=request,
        raw=completion.text,
        text=record.answer,
        state=result.state,
        outcome=result.outcome,
        again=again,
        warnings=record.quality.warnings,
        reasoning=record.quality.reasoning,
        failure=record.failure,
    )


# ---- faults -------------------------------------------------------------------------------------------------------

_RAW = re.compile(r'"segments"|"citations"|"sufficient"|\{\s*"text"|^\s*\[\s*[{"]')
_REASONING = re.compile(r"</?think|</?thinking|<\|", re.IGNORECASE)
_LIVE = re.compile(r"<(?:script|img|svg|iframe|a|p|b|div|br)\b|<!--|javascript:|\bon\w+\s*=", re.IGNORECASE)


def faults(output: Output) -> Iterator[str]:
    """Parts of an output that no reader should see."""
    text, output_format = output.text, output.request.config.output_format
    if not text.strip():
        yield "empty"
    if output_format is OutputFormat.JSON:
        try:
            value = orjson.loads(text)
            entries = value["answer"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            yield "no JSON of an answer"
            return
        text = "\n".join(entry["text"] for entry in entries) or value.get("message", "")
        if not text.strip():
            yield "empty"
    if _RAW.search(text):
        yield "raw JSON"
    if _REASONING.search(text):
        yield "a thought"
    if (output_format is OutputFormat.PLAIN and _LIVE.search(text)) or (
        output_format is not OutputFormat.PLAIN and is_active(text)
    ):
        yield "HTML or a script link"
    sentences = [
        line for line in re.split(r"(?<=[.!?])\s+|\n", re.sub(r"\[\d+\]|\W(?=\W)", "", text)) if len(line) > 20
    ]
    if len(sentences) != len(set(sentences)):
        yield "a repetition"
