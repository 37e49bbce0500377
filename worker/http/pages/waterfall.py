"""Draws the times of a job as bars below each other: its wait, its calls, and the phases of its record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from schemas.record import TimingMs
from tasks.ports import JobView

_PHASES = {
    "queue": "waited for a worker",
    "retry_wait": "failed attempts and the waits after them",
    "limiter_wait": "waited for a permit",
    "share_wait": "waited for an identical request",
    "provider_batch_wait": "waited for a provider batch",
    "prompt": "prompt",
    "llm": "call",
    "postprocess": "parse and cite",
    "check": "check",
    "persist": "ledger and transfers",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: begin and length as shares of the whole, in percent."""

    name: str
    detail: str
    start: float
    width: float
    milliseconds: float
    kind: str


def calls(view: JobView, attempts: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """The present run as it went: from its acceptance, or its first call, to its end."""
    own = [attempt for attempt in attempts if attempt["run"] == view.run]
    opened = [_at(attempt["opened_at"]) for attempt in own]
    closed = [_at(attempt["closed_at"]) if attempt["closed_at"] else None for attempt in own]
    begin = view.created_at
    if view.run > 1:
        begin = min(filter(None, [*opened, view.started_at]), default=begin)
    end = max(filter(None, [*opened, *closed, view.finished_at or view.started_at or begin]))
    length = max(end - begin, timedelta(milliseconds=1))
    spans: list[tuple[str, str, datetime, datetime, str]] = []
    if view.started_at is not None and view.started_at > begin:
        spans.append(("waited", "until a worker took it", begin, view.started_at, "wait"))
    for attempt, first, last in zip(own, opened, closed, strict=True):
        name = f"{attempt['purpose']} {attempt['round']}.{attempt['number']}"
        model = ":".join(filter(None, (attempt["provider"], attempt["model"])))
        kind = "call" if attempt["outcome"] == "ok" else "fault"
        spans.append((name, f"{model}, {attempt['outcome'] or 'open'}", first, last or end, kind))
    if view.finished_at is not None:
        spans.append(("whole run", "to the final write", begin, view.finished_at, "whole"))
    return [
        Bar(
            name,
            detail,
            max(0.0, 100 * (first - begin) / length),
            max(0.3, 100 * (last - first) / length),
            (last - first) / timedelta(milliseconds=1),
            kind,
        )
        for name, detail, first, last, kind in spans
    ]


def phases(timing: TimingMs | None) -> list[Bar]:
    """The phases of a record after each other, as far as they took time."""
    if timing is None:
        return []
    values = {name: value for name, value in timing.model_dump().items() if name in _PHASES and value > 0}
    total = sum(values.values()) or 1.0
    bars, start = [], 0.0
    for name, text in _PHASES.items():
        if name in values:
            width = 100 * values[name] / total
            kind = "call" if name == "llm" else "wait" if "wait" in name or name == "queue" else "whole"
            bars.append(Bar(text, "", start, max(0.3, width), values[name], kind))
            start += width
    return bars


def _at(value: str) -> datetime:
    return datetime.fromisoformat(value)
