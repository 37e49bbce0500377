"""Collects the state of batches, with the lanes that make no calls, and says why jobs wait or failed, each with the command that helps."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from schemas.batch import BatchStatus, FailureCause, LaneStatus, RemoteBatchStatus
from schemas.budget import DAY, TOTAL, BudgetStatus
from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState
from schemas.window import parse_period
from worker.ledger.fleet import LaneNotice
from worker.ledger.postgres import PostgresLedger
from worker.operations.counts import cost, count_of

if TYPE_CHECKING:
    from worker.ledger.remote_overview import RemoteNotice


@dataclass(frozen=True, slots=True)
class Overview:
    """Batches, newest first, and the lanes without calls."""

    batches: list[BatchStatus]
    lanes: list[LaneNotice]
    remote: "Sequence[RemoteNotice]" = ()
    """Provider batches in which the jobs of a single batch wait."""
    unserved: Sequence[str] = ()
    """Queues with available jobs that no worker takes."""
    workers: Sequence[str] = ()
    """Names of those that are alive, of this home and elsewhere."""
    budgets: Sequence[BudgetStatus] = ()
    """Budgets of its tenant, where jobs of a single batch wait for one."""


async def overview(ledger: PostgresLedger, *, newest: int) -> Overview:
    """The newest batches."""
    lanes, unserved = await ledger.fleet.lane_notices(), await ledger.fleet.unserved()
    workers = await ledger.fleet.workers()
    return Overview(await ledger.reading.batches(newest), lanes, unserved=unserved, workers=workers)


async def batch_overview(ledger: PostgresLedger, batch_id: UUID) -> Overview:
    """One batch, with the kinds of error in its answers; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    remote = await ledger.remote_overview.notices(batch_id) if JobState.PENDING in status.states else ()
    failed = status.states.get(JobState.FAILED)
    budgets = await budgets_in_short(ledger, status)
    further = {
        "refused_lines": await ledger.uploads.refused_lines(batch_id),
        "failures": await ledger.figures.failure_causes(batch_id) if failed else (),
        "errors": await ledger.reading.error_kinds(batch_id),
        "spilled": await ledger.remote_overview.spilled(batch_id),
        "budgets": tuple(budgets) or None,
        "provider_batches": tuple(RemoteBatchStatus.model_validate(each, from_attributes=True) for each in remote),
    }
    lanes, unserved = await ledger.fleet.lane_notices(), await ledger.fleet.unserved()
    return Overview([status.model_copy(update=further)], lanes, remote, unserved, budgets=budgets)


RELEASES = {
    HeldReason.BUDGET: (
        "what is left of the batch's budget pays for no further call",
        "'nightdesk release {batch} --max-cost-usd USD' with a new ceiling for the whole batch",
    ),
    HeldReason.KEY_BUDGET: (
        "the key that submitted them has no money left",
        "'nightdesk budget list' shows what it may spend; more with 'nightdesk keys limit KEY --max-cost-usd USD' or '--max-cost-usd-per-day USD'",
    ),
    HeldReason.LANE_PAUSED: (
        "no calls are made to their provider (see the paused lanes)",
        "fix what the paused lane reports, then 'nightdesk release {batch} --reason lane_paused'",
    ),
    HeldReason.BATCH_PAUSED: (
        "an operator paused the batch",
        "'nightdesk release {batch} --reason batch_paused' lets it go on",
    ),
    HeldReason.PRICE_UNKNOWN: (
        "the price of their model is not known, so no ceiling or budget could be kept",
        "give its price ('prices' in NIGHTDESK_PROVIDERS) and start the workers again, or 'nightdesk budget remove'; then 'nightdesk release {batch} --reason price_unknown'",
    ),
    HeldReason.TENANT_BUDGET: (
        "the budget of their tenant for the day or the night is used up",
        "they go on by themselves in its next period ('nightdesk budget list'); sooner with 'nightdesk budget set'",
    ),
    HeldReason.UNKNOWN_OUTCOME: (
        "their call may have been billed without an answer",
        "'nightdesk cancel {batch}', or, which may pay twice: nightdesk release {batch} --reason unknown_outcome",
    ),
}
"""The cause of each hold, and its release; ``{batch}`` is a batch's id."""


_SCOPES = {HeldReason.TENANT_BUDGET: False, HeldReason.KEY_BUDGET: True}
"""Holds for budgets; True: of the key, not of the tenant."""


async def budgets_in_short(ledger: PostgresLedger, status: BatchStatus) -> list[BudgetStatus]:
    """The budgets for which jobs of a batch wait; none where none does."""
    scopes = {of_key for reason, of_key in _SCOPES.items() if reason in status.held}
    if not scopes:
        return []
    all_budgets = await ledger.budgets.all(status.tenant, status.batch_id)
    budgets = [budget for budget in all_budgets if (budget.key is not None) in scopes]
    # Money that is promised to others may leave too little, too.
    return [budget for budget in budgets if budget.used_up] or budgets


def budget_line(budget: BudgetStatus) -> str:
    """The words for a budget for which jobs wait: cause, time and remedy."""
    spent = f"{cost(budget.spent_usd)} spent"
    if budget.reserved_usd:
        spent += f" and {cost(budget.reserved_usd)} reserved for calls under way"
    when = "" if budget.next_at is None else f", at the latest on {next_period(budget)}, when its next period begins"
    alone, sooner = f"go on by themselves{when}", "; sooner"
    if budget.least_usd is not None and budget.too_small:
        alone, sooner = f"need a larger one, for a call reserves {dollars(budget.least_usd)} or more", ", set"
    elif budget.key is not None and budget.next_at is None:
        alone, sooner = "need more money", ""
    if budget.key is not None:
        # A later key may have its name.
        name = budget.key_id if budget.key_revoked else budget.key
        return (
            f"the {key_words(budget)} may spend {dollars(budget.max_cost_usd)} {words_of(budget.period)} and has no room for the next "
            f"call ({spent}): its jobs {alone}{sooner} with: nightdesk keys limit {name} {OPTIONS[budget.period]} USD"
        )
    # A name of old may have a line break.
    tenant = budget.tenant if budget.tenant.isprintable() else repr(budget.tenant)
    return (
        f"the tenant {tenant} has a budget of {dollars(budget.max_cost_usd)} for {budget.period!r} and no room in it for "
        f"the next call ({spent}): its jobs {alone}{sooner} with: "
        f"nightdesk budget set {budget.period!r} USD --tenant {shlex.quote(tenant)}"
    )


def key_words(budget: BudgetStatus) -> str:
    """The key of a budget in words: one that was revoked with its id, for a later one may have its name."""
    return f"revoked key {budget.key} ({budget.key_id})" if budget.key_revoked else f"key {budget.key}"


def next_period(budget: BudgetStatus) -> str:
    """The beginning of the next period of a budget, by its own clocks; empty where it is not known."""
    if budget.next_at is None:
        return ""
    return f"{budget.next_at.astimezone(parse_period(budget.period).zone):%Y-%m-%d %H:%M %Z}"


OPTIONS = {TOTAL: "--max-cost-usd", DAY: "--max-cost-usd-per-day"}
"""Of ``nightdesk keys``: those that set the budgets of a key, by their periods."""


def words_of(period: str) -> str:
    """The period of a budget of a key, in words."""
    return "in all" if period == TOTAL else "a day (UTC)"


def dollars(usd: Decimal) -> str:
    """An amount that a person set, exact and without the zeros that say nothing."""
    return f"{usd.normalize():f} USD"


def unserved_line(queues: Sequence[str], started: Collection[str] = ()) -> str:
    """The words for queues with available jobs that no worker takes; ``started`` have worker processes of this home."""
    names = " and ".join(queues)
    if set(queues) <= set(started):
        return (
            f"the workers of this home do not take jobs of the queue{'s' if len(queues) > 1 else ''} {names} yet: they are starting, "
            "a server of the home had ended and they connect to it again, or the machine is overloaded; if it stays so, see their logs in 'logs' of the home"
        )
    return f"no worker takes jobs of the queue{'s' if len(queues) > 1 else ''} {names}; 'nightdesk up' starts what is missing"


def status_document(status: BatchStatus, lanes: Sequence[LaneNotice]) -> dict[str, Any]:
    """The status of a batch with the lanes without calls, for programs."""
    paused = tuple(LaneStatus(**asdict(lane), remedy=lane.remedy) for lane in lanes)
    return status.model_copy(update={"lanes": paused}).model_dump(mode="json")


_REMEDIES = {
    FailureKind.INVALID_REQUEST: "correct the setting that it names, restart the workers, then: {again}{change}",
    FailureKind.CONTEXT_EXCEEDED: "set a model with a larger window, restart the workers, then: {again}{change}",
    FailureKind.AUTHENTICATION: "set a key that is accepted, restart the workers, then: {again}",
    FailureKind.PERMISSION: "let the key use the model, then: {again}",
    FailureKind.NOT_FOUND: "set a model that exists, restart the workers, then: {again}{change}",
    FailureKind.PARAMETER: "change the setting that it names, restart the workers, then: {again}{change}",
    FailureKind.CONFIGURATION: "correct the setting, restart the workers, then: {again}",
    FailureKind.BAD_ANSWER: "raise max_tokens or take another model; the same again: {again}",
    FailureKind.MISSING_CITATIONS: "lower min_citations, or let such answers be partial; the same again: {again}",
    FailureKind.WORKER_LOST: "the job may be the cause: look at its sources and the workers' logs, then: {again}",
    FailureKind.UNREADABLE: "restore the rows of these jobs from a backup, then: {again}; or submit them again",
    FailureKind.INTERNAL: "a defect of Nightdesk: keep the message and the log, and report it",
}
"""The remedy by cause; a cause that is not here went away by itself, perhaps."""


def remedy(batch_id: UUID, kind: FailureKind) -> str:
    """The remedy for jobs of a batch that failed for a cause."""
    again = f"nightdesk retry {batch_id} --cause {kind.value}"
    change = "; or correct the lines in their file and run it again: those with an answer keep it"
    return _REMEDIES.get(kind, "try them again: {again}").format(again=again, change=change)


def failure_lines(batch_id: UUID, causes: tuple[FailureCause, ...]) -> list[str]:
    """Two lines a cause: number, example and the words of the first failure; the remedy."""
    lines = []
    for cause in causes:
        example = " ".join(cause.example.split()).rstrip(".")
        lines.append(
            f"{count_of(cause.jobs, 'job')} failed ({cause.kind.value}), such as {batch_id}:line{cause.position + 1}: {example}"
        )
        lines.append(f"To fix it: {remedy(batch_id, cause.kind)}")
    return lines
