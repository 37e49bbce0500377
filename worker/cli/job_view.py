"""Shows one answer with its claims and sources, or everything known of a job: its answer, how it came about, what it cost, and the messages sent."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from schemas.generation import CheckerName
from schemas.grounding import Claim, Evidence, Verdict
from schemas.job import JobRequest
from schemas.model_call import Ask, FinishReason
from schemas.record import JobResult
from worker.cli.console import console, facts_of, moment, safe, table_of
from worker.operations.audit import JOB, Audit, Messages, source_name
from worker.operations.counts import cost

COLOURS = {
    Verdict.SUPPORTED: "green",
    Verdict.CONTRADICTED: "bold red",
    Verdict.UNSUPPORTED: "red",
    Verdict.UNDECIDED: "yellow",
    Verdict.NOT_CHECKABLE: "dim",
    Verdict.UNCHECKED: "yellow",
}

WORDS = "words"
"""The lexical layer, as a reader knows it."""

SNIPPET = 300
"""Characters of evidence shown; more is cut in the middle."""

INDENT = 2


def show_answer(out: Console, request: JobRequest, result: JobResult) -> None:
    """Writes one answer with everything that lets a reader judge it."""
    out.print(safe("Question", "bold"))
    out.print(_indented(safe(request.query or "(none: a given answer was checked)")))
    out.print(safe("Answer", "bold"), safe(f"({_kind(result)})", "dim"))
    out.print(_indented(_response(result)))
    if result.claims:
        out.print(safe("Claims", "bold"), _score(result))
        out.print(_indented(Group(*_claims(request, result))))
    if sources := list(_sources(request, result)):
        out.print(safe("Sources", "bold"), safe(f"({len(sources)} of {len(request.context)} given are used)", "dim"))
        out.print(_indented(Group(*sources)))


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 1, INDENT), expand=False)


def _kind(result: JobResult) -> str:
    kind, snapshot = (result.outcome or result.state).value, result.provider_snapshot
    if snapshot is None:
        return kind
    return f"{kind}, {' '.join(filter(None, (snapshot.provider, snapshot.model_returned or snapshot.model_asked)))}"


def _response(result: JobResult) -> Text:
    """The answer with its citation markers set off."""
    text = safe(result.response)
    for citation in result.citations:
        text.stylize("bold cyan" if citation.verified else "bold yellow", citation.start_pos, citation.end_pos)
    return text


def _score(result: JobResult) -> Text:
    scores = [] if result.grounding_score is None else [f"grounding {result.grounding_score:.2f}"]
    if result.decided:
        layers = ", ".join(
            f"{count} by {WORDS if name == CheckerName.LEXICAL else name}" for name, count in result.decided.items()
        )
        checkable = sum(claim.verdict is not Verdict.NOT_CHECKABLE for claim in result.claims)
        scores.append(f"decided {layers}, of {checkable}")
    if result.confidence is not None:
        scores.append(f"confidence {result.confidence:.2f}")
    return safe(f"({', '.join(scores)})" if scores else "", "dim")


def _claims(request: JobRequest, result: JobResult) -> Iterator[RenderableType]:
    ranks = {citation.source_index: citation.rank for citation in result.citations}
    for number, claim in enumerate(result.claims, start=1):
        style = COLOURS[claim.verdict]
        table = Table.grid(padding=(0, 1))
        table.add_row(
            Text(f"{number} {claim.verdict.sign}", style=style),
            Text.assemble((claim.verdict.value, style), "  ", safe(claim.text)),
        )
        for remark in _remarks(claim):
            table.add_row("", safe(remark, "yellow"))
        for evidence in claim.evidence:
            if evidence.source_index < len(request.context):
                table.add_row("", _evidence(request, evidence, ranks))
        yield table


def _remarks(claim: Claim) -> Iterator[str]:
    if claim.miscited:
        yield "supported, but not by the source it cites"
    if claim.reason and claim.verdict is not Verdict.SUPPORTED:
        yield claim.reason


def _evidence(request: JobRequest, evidence: Evidence, ranks: dict[int, int]) -> Text:
    source = request.context[evidence.source_index]
    words = " ".join(source.content[evidence.start : evidence.end].split())
    if len(words) > SNIPPET:
        words = f"{words[: SNIPPET // 2]} … {words[-SNIPPET // 2 :]}"
    rank = ranks.get(evidence.source_index)
    name = f"[{rank}]" if rank else f"source {evidence.source_index + 1}, not cited"
    return Text.assemble((f"{name} ", "cyan"), safe(f"“{words}”", "italic dim"))


def _sources(request: JobRequest, result: JobResult) -> Iterator[RenderableType]:
    """The cited sources, by the number they have in the answer."""
    ranked = {citation.rank: citation.source_index for citation in result.citations}
    for rank, index in sorted(ranked.items()):
        if index < len(request.context):
            yield Text.assemble((f"[{rank}] ", "bold cyan"), safe(source_name(request.context[index], index + 1)))


Facts = Mapping[str, Any]
Row = Sequence[Any]


def show_job(audit: Audit) -> None:
    """Writes the whole audit of a job."""
    out = console()
    view, result, detail = audit.detail.view, audit.result, audit.detail
    _facts(out, f"Job {view.job_id}", _job(audit))
    show_answer(out, view.request, result)
    grounding = view.record.grounding if view.record else None
    _facts(
        out,
        "Quality",
        {
            "reasoning": result.reasoning,
            "abstained because": result.abstain_reason,
            "sufficient context": result.sufficient_context,
            "answer quality": result.answer_quality,
            "warnings": "; ".join(result.warnings),
            "checkers": grounding and grounding.checkers,
            "failed checkers": grounding and grounding.failed_checkers,
            "skipped checkers": grounding and grounding.skipped_checkers,
            "failure": f"{result.failure.kind.value}: {result.failure.message}" if result.failure else None,
        },
    )
    _table(out, "Labels", ("on", "verdict", "by", "at", "note"), (_label(label, view.run) for label in detail.labels))
    if len(result.asks) > 1:
        asks = ("round", "model", "outcome", "claims", "grounding", "cost", "asked on because")
        _table(out, "Rounds", asks, map(_ask, result.asks))
    rows = (row for attempt in detail.attempts for row in _attempt(attempt))
    headings = ("attempt", "asked of", "took", "outcome", "tokens", "cost")
    _table(out, "Attempts", headings, rows, whole={"attempt", "took", "tokens", "cost"})
    calls = {attempt["id"]: _call(attempt) for attempt in detail.attempts}
    broken = (row for row in detail.completions if row["finish_reason"] == FinishReason.INTERRUPTED and not row["won"])
    parts = {calls[row["attempt_id"]]: row.get("unreadable") or row["parsed"]["text"] for row in broken}
    _facts(out, "Came before the stream broke", parts)
    events = (
        [_at(event["at"]), *(event[name] for name in ("run", "kind", "actor", "detail"))] for event in detail.events
    )
    _table(out, "Events", ("at", "run", "event", "by", "detail"), events)
    origin = {} if result.provider_snapshot is None else result.provider_snapshot.model_dump(mode="json")
    if (record := view.record) is not None and record.prompt_name:
        origin["prompt"] = f"{record.prompt_name} {record.prompt_version}, template {record.prompt_hash}"
    timings = {} if result.timing_ms is None else result.timing_ms.model_dump()
    origin |= {f"{name} ms": f"{value:.1f}" for name, value in timings.items() if value}
    _facts(out, "How it was made", _named(origin))
    if audit.messages is not None:
        _messages(out, audit.messages)
    if len(audit.proofs) > 1:
        proofs = {
            call: f"{'proven' if proven else 'NOT proven'}: SHA-256 {sha256}" for call, sha256, proven in audit.proofs
        }
        _facts(out, "Messages of every answer", proofs)


def _job(audit: Audit) -> Facts:
    view = audit.detail.view
    own = {name: getattr(view, name) for name in JOB if name not in {"job_id", "batch_id", "position", "cost_usd"}}
    request = view.request.model_dump(
        mode="json", include={"message_id", "retrieval_record_id", "trace_id", "request_id", "metadata"}
    )
    config = None if view.erased_at else view.request.config.model_dump(mode="json", exclude_defaults=True)
    return {
        "batch": f"{view.batch_id}, line {view.position + 1}",
        **_named(own),
        "cost": cost(view.cost_usd),
        **_named(request),
        "config": config,
        "asked again as": audit.detail.replays,
    }


def _named(facts: Facts) -> Facts:
    return {name.replace("_", " "): value for name, value in facts.items()}


def _ask(ask: Ask) -> Row:
    """One round of a job with several: a model's answer by its verdicts."""
    checked = ask.supported + ask.ungrounded
    score = "" if ask.grounding_score is None else f"{ask.grounding_score:.2f}"
    return (
        f"{ask.round}{' won' if ask.won else ''}", ask.model or ask.provider, ask.outcome.value if ask.outcome else "none",
        f"{ask.supported} of {checked}" if checked else "", score, cost(ask.cost_usd), ask.shortfall,
    )  # fmt: skip


def _call(attempt: Facts) -> str:
    return f"{attempt['run']}.{attempt['round']} {attempt['purpose']} {attempt['number']}"


def _attempt(attempt: Facts) -> Iterator[Row]:
    """The row of an attempt, and one for each remark on it: why it failed, why in its lane."""
    usage, took, outcome = attempt["usage"] or {}, "", attempt["outcome"]
    if attempt["closed_at"] is not None:
        took = f"{(_at(attempt['closed_at']) - _at(attempt['opened_at'])).total_seconds():.3f} s"
    waits = f"open in {attempt['provider_batch_name'] or attempt['lane']}"
    yield (
        _call(attempt),
        ":".join(name for name in (attempt["provider"], attempt["model"]) if name),
        took,
        "shared, no call" if attempt.get("shared_from") else outcome or waits,
        f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)}" if usage else "",
        cost(attempt["cost_usd"]),
    )
    remarks = ((attempt["failure"] or {}).get("message"), attempt.get("unreadable"), attempt["lane_reason"])
    yield from (("", remark) for remark in remarks if remark)


def _label(label: Facts, run: int) -> Row:
    """A label of a person; of an earlier run with its number."""
    place = "the answer" if label["claim"] is None else f"claim {label['claim']}"
    earlier = f" of run {label['run']}" if label["run"] != run else ""
    return place + earlier, label["verdict"], label["actor"], _at(label["at"]), label["note"]


def _at(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _messages(out: Console, messages: Messages) -> None:
    out.print(Rule(safe("Messages sent", "bold"), align="left", style="dim"))
    for role, text in messages.texts:
        out.print(Rule(role, align="left", style="dim"))
        # Neither framed nor wrapped: what is copied from here is what was sent.
        out.print(safe(text), soft_wrap=True)
    out.print(Rule(style="dim"))
    if messages.proven:
        text, style = f"proven: SHA-256 {messages.sha256} of these messages is the one noted for the call", "green"
    else:
        text, style = f"NOT proven: these messages do not give the SHA-256 {messages.sha256} noted", "bold red"
    out.print(safe(text, style))


def _facts(out: Console, title: str, facts: Facts) -> None:
    _titled(out, title, facts_of({label: _words(value) for label, value in facts.items()}))


def _words(value: Any) -> str:
    """A value for people; empty where there is none."""
    match value:
        case None:
            return ""
        case datetime():
            return moment(value)
        case Mapping():
            return ", ".join(f"{key}={each}" for key, each in value.items())
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)


def _table(out: Console, title: str, headings: Sequence[str], rows: Iterable[Row], whole: Collection[str] = ()) -> None:
    """Writes rows under a title; nothing without rows."""
    table = table_of(*headings, whole=whole)
    for cells in rows:
        table.add_row(*(safe(_words(cell)) for cell in cells))
    _titled(out, title, table)


def _titled(out: Console, title: str, table: Table) -> None:
    if table.row_count:
        out.print(Rule(safe(title, "bold"), align="left", style="dim"))
        out.print(table)
        out.print()
