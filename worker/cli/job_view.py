"""Shows one answer with its claims and sources, or everything known of a job: its answer, how it came about, what it cost, and the messages sent."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from schemas.generation import WINDOWS, CheckerName
from schemas.grounding import Claim, Evidence, Verdict
from schemas.job import JobRequest
from schemas.model_call import Ask, FinishReason, ProviderSnapshot
from schemas.record import JobResult
from schemas.states import JobState
from tasks.ports import JobView, Purpose
from worker.cli.console import WIDE, console, facts_of, moment, safe, table_of
from worker.operations.audit import Audit, Messages, source_name
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
    _facts(out, f"Job {view.job_id}", {**_job(view), "asked again as": detail.replays})
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
            "judge by default": _default_judge(audit),
            "failure": f"{result.failure.kind.value}: {result.failure.message}" if result.failure else None,
        },
    )
    _facts(out, "Judge verdicts reused, without a call", _reused_verdicts(result.claims))
    labels = ((_label(label, view.run), "") for label in detail.labels)
    _table(out, "Labels", ("on", "verdict", "by", "at", "note"), labels)
    if len(result.asks) > 1:
        asks = ((_ask(ask), "green" if ask.won else "") for ask in result.asks)
        _table(out, "Rounds", ("round", "model", "outcome", "claims", "grounding", "cost", "asked on because"), asks)
    _attempts(out, detail.attempts, detail.completions)
    _facts(out, "Waits for a provider batch", _parked(view, detail.attempts))
    events = (
        ((_at(event["at"]), *(event[name] for name in ("run", "kind", "actor", "detail"))), "")
        for event in detail.events
    )
    _table(out, "Events", ("at", "run", "event", "by", "detail"), events)
    if result.timing_ms is not None:
        timings = {name: f"{value:.1f} ms" for name, value in result.timing_ms.model_dump().items() if value}
        _facts(out, "Timings", timings)
    if result.provider_snapshot is not None:
        _facts(out, "Provider", _provider(result.provider_snapshot))
    if (record := view.record) is not None and record.prompt_name:
        prompt = f"{record.prompt_name} {record.prompt_version}, template {record.prompt_hash}"
        _facts(out, "Prompt", {"prompt": prompt})
    if audit.messages is not None:
        _messages(out, audit.messages)
    if len(audit.proofs) > 1:
        proofs = {
            call: f"{'proven' if proven else 'NOT proven'}: SHA-256 {sha256}" for call, sha256, proven in audit.proofs
        }
        _facts(out, "Messages of every answer", proofs)


def _job(view: JobView) -> Facts:
    request = view.request
    return {
        "batch": f"{view.batch_id}, line {view.position + 1}",
        "custom id": view.custom_id,
        "tenant": view.tenant,
        "state": view.state.value + (f", held: {view.held_reason}" if view.held_reason else ""),
        "outcome": view.outcome.value if view.outcome else None,
        "step": f"{view.step.value}, run {view.run}, round {view.round}",
        "created": view.created_at,
        "scheduled": view.scheduled_at if view.scheduled_at > view.created_at else None,
        "started": view.started_at,
        "finished": view.finished_at,
        "published": view.published_at,
        "erased": view.erased_at,
        "replay of": view.replay_of,
        "cost": cost(view.cost_usd),
        "message id": request.message_id,
        "retrieval record": request.retrieval_record_id,
        "trace id": request.trace_id,
        "request id": request.request_id,
        "config": None if view.erased_at else request.config.model_dump(mode="json", exclude_defaults=True),
        "metadata": request.metadata,
    }


def _default_judge(audit: Audit) -> str | None:
    """The cost of a judge that the job does not ask for; None where it was not asked."""
    view = audit.detail.view
    calls = [attempt for attempt in audit.detail.attempts if attempt["purpose"] == Purpose.JUDGE]
    if not calls or view.erased_at or CheckerName.JUDGE in view.request.config.checkers:
        return None
    costs = [call["cost_usd"] for call in calls]
    total = cost(None if None in costs else sum(map(float, costs)))
    models = ", ".join(sorted({f"{call['provider']}:{call['model']}" for call in calls}))
    return f"{models}, asked about what words leave open; cost {total} (NIGHTDESK_DEFAULT_JUDGE_SHARE=0 turns it off)"


def _reused_verdicts(claims: Sequence[Claim]) -> Facts:
    """The calls that reused verdicts are from: ``nightdesk show`` of that job has the question and the reply."""
    return {
        f"claim {number}": f"job {origin.job_id}, claim {origin.number} of attempt {origin.attempt_id}"
        for number, claim in enumerate(claims, start=1)
        if (origin := claim.reused_from) is not None
    }


def _provider(snapshot: ProviderSnapshot) -> Facts:
    facts = {name.replace("_", " "): value for name, value in snapshot if name != "shared_from"}
    if (origin := snapshot.shared_from) is not None:
        facts["answer taken from"] = f"job {origin.job_id}, answered {moment(origin.answered_at)}"
    return facts


def _parked(view: JobView, attempts: Sequence[Facts]) -> Facts:
    """The batch or response that a pending job waits for."""
    if view.state is not JobState.PENDING or not attempts:
        return {}
    attempt = attempts[-1]
    return {
        "since": _clock(attempt["opened_at"]),
        "lane": attempt["lane"],
        "response" if attempt["lane"] in WINDOWS else "batch": attempt["provider_batch_name"]
        or ("being created" if attempt["provider_batch_id"] else "not sent yet"),
        "lane chosen because": attempt["lane_reason"],
    }


def _ask(ask: Ask) -> Row:
    """One round of a job with several: a model's answer by its verdicts."""
    checked = ask.supported + ask.ungrounded
    score = "" if ask.grounding_score is None else f"{ask.grounding_score:.2f}"
    return (
        f"{ask.round}{' won' if ask.won else ''}", ask.model or ask.provider, ask.outcome.value if ask.outcome else "none",
        f"{ask.supported} of {checked}" if checked else "", score, cost(ask.cost_usd), ask.shortfall,
    )  # fmt: skip


def _attempts(out: Console, attempts: Sequence[Facts], completions: Sequence[Facts]) -> None:
    interrupted = FinishReason.INTERRUPTED
    broken = {row["attempt_id"]: row for row in completions if row["finish_reason"] == interrupted}
    wide = out.width >= WIDE
    rows: list[tuple[Row, str]] = []
    parts: dict[str, str] = {}
    for attempt in attempts:
        outcome = attempt["outcome"]
        rows.append((_cells(attempt, wide=wide), "" if outcome == "ok" else "yellow"))
        remarks = ((attempt["failure"] or {}).get("message"), attempt.get("unreadable"))
        rows.extend((("", remark), "red") for remark in remarks if remark)
        if outcome != "ok" and attempt["id"] in broken:
            row = broken[attempt["id"]]
            parts[f"{attempt['run']}.{attempt['round']}, no. {attempt['number']}"] = row.get("unreadable") or str(
                row["parsed"]["text"]
            )
    headings = ("attempt", "asked of", *(["opened"] if wide else []), "took", "outcome", "tokens", "cost")
    _table(out, "Attempts", headings, rows, whole={"attempt", "took", "tokens", "cost"})
    _facts(out, "Came before the stream broke", parts)


def _cells(attempt: Facts, *, wide: bool) -> Row:
    usage, took = attempt["usage"] or {}, ""
    if attempt["closed_at"] is not None:
        took = f"{(_at(attempt['closed_at']) - _at(attempt['opened_at'])).total_seconds():.3f} s"
    return (
        f"{attempt['run']}.{attempt['round']} {attempt['purpose']} {attempt['number']}",
        ":".join(name for name in (attempt["provider"], attempt["model"]) if name),
        *([_clock(attempt["opened_at"])] if wide else []), took,
        "shared, no call" if attempt.get("shared_from") else attempt["outcome"] or "open",
        f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)}" if usage else "",
        cost(attempt["cost_usd"]),
    )  # fmt: skip


def _label(label: Facts, run: int) -> Row:
    """A label of a person; of an earlier run with its number."""
    place = "the answer" if label["claim"] is None else f"claim {label['claim']}"
    earlier = f" of run {label['run']}" if label["run"] != run else ""
    return place + earlier, label["verdict"], label["actor"], _at(label["at"]), label["note"]


def _at(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _clock(value: Any) -> str:
    return _at(value).astimezone().strftime("%H:%M:%S.%f")[:-3]


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


def _table(
    out: Console, title: str, headings: Sequence[str], rows: Iterable[tuple[Row, str]], whole: Collection[str] = ()
) -> None:
    """Writes rows, each with its style, under a title; nothing without rows."""
    table = table_of(*headings, whole=whole)
    for cells, style in rows:
        table.add_row(*(safe(_words(cell), style) for cell in cells))
    _titled(out, title, table)


def _titled(out: Console, title: str, table: Table) -> None:
    if table.row_count:
        out.print(Rule(safe(title, "bold"), align="left", style="dim"))
        out.print(table)
        out.print()
