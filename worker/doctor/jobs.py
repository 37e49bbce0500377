"""Checks the jobs: none stuck, overdue, unpublished or held without anybody knowing; money; and what must always hold."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID

from schemas.states import HeldReason
from worker.doctor.finding import Finding, Severity
from worker.doctor.workers import count
from worker.ledger.health import BILLED_WITHIN, OPENED_WITHIN, LedgerHealth
from worker.ledger.invariants import Violation

BATCHES_NAMED = 3

RELEASES = {
    HeldReason.BUDGET: (
        "the batch's budget is used up",
        "'nightdesk release {batch} --reason budget --max-cost-usd USD' with a new ceiling for the whole batch",
    ),
    HeldReason.LANE_PAUSED: (
        "no calls are made to their provider (see the paused lanes)",
        "mend what the paused lane says, then 'nightdesk release {batch} --reason lane_paused'",
    ),
    HeldReason.BATCH_PAUSED: (
        "somebody paused the batch",
        "'nightdesk release {batch} --reason batch_paused' lets it go on",
    ),
    HeldReason.UNKNOWN_OUTCOME: (
        "their call may have been billed without an answer",
        "'nightdesk release {batch} --reason unknown_outcome' may pay twice; else 'nightdesk cancel {batch}'",
    ),
}
"""Why jobs are held, and how they are released; ``{batch}`` is a batch's id."""


def check_moving(health: LedgerHealth) -> Iterator[Finding]:
    """What the dispatch duties of any worker do within seconds is done."""
    if health.stuck:
        yield Finding(
            "stuck_leases",
            Severity.PROBLEM,
            f"{count(health.stuck)} jobs run on leases that ran out more than two lease times ago; nobody rescues them",
            "start a worker: it rescues them once it has reached the ledger for one lease time",
        )
    if health.overdue:
        yield Finding(
            "overdue",
            Severity.PROBLEM,
            f"{count(health.overdue)} scheduled jobs were due more than a minute ago; nobody promotes them",
            "start a worker, of any queue; if some run, look for 'dispatch waits' or 'broke' in their logs",
        )
    if health.quarantined:
        first = health.quarantined[0]
        yield Finding(
            "quarantine",
            Severity.PROBLEM,
            f"{count(len(health.quarantined))} jobs can't be changed by what the workers do in turn, the first of them job "
            f"{first.job_id} ({first.duty}: {first.reason})",
            "mend what the reason and PostgreSQL's log say (a damaged row, or a trigger of yours); workers try again within "
            "an hour",
        )
    if health.unpublished:
        yield Finding(
            "unpublished",
            Severity.WARNING,
            f"the results of {count(health.unpublished)} final jobs are not in Redis after more than a minute",
            "start a worker and check that it reaches Redis; 'nightdesk results' reads them from the ledger meanwhile",
        )


def check_held(health: LedgerHealth) -> Iterator[Finding]:
    """Jobs that wait for a person, a finding for each reason."""
    batches: dict[HeldReason, dict[UUID, int]] = defaultdict(dict)
    for held in health.held:
        batches[held.reason][held.batch_id] = held.jobs
    for reason, jobs in batches.items():
        why, remedy = RELEASES[reason]
        named = ", ".join(map(str, list(jobs)[:BATCHES_NAMED])) + (" and others" if len(jobs) > BATCHES_NAMED else "")
        yield Finding(
            f"held_{reason.value}",
            Severity.WARNING,
            f"{sum(jobs.values()):,} jobs are held: {why} (batch {named})",
            remedy.format(batch=next(iter(jobs)) if len(jobs) == 1 else "BATCH"),
        )


def check_money(health: LedgerHealth) -> Iterator[Finding]:
    """Calls that may have cost money without leading anywhere."""
    if health.billed_twice:
        yield Finding(
            "billed_twice",
            Severity.NOTE,
            f"possibly billed twice: {count(health.billed_twice)} calls of the last {BILLED_WITHIN.days} days were "
            "made again because their outcome was unknown then",
            "nothing; their cost is counted, at the worst case while unknown. NIGHTDESK_HOLD_UNKNOWN=true holds such jobs instead",
        )
    if health.left_open:
        hours = int(OPENED_WITHIN.total_seconds() // 3600)
        yield Finding(
            "attempts_left_open",
            Severity.WARNING,
            f"{count(health.left_open)} calls of the last {hours} hours were never closed though their jobs are final: "
            "the worker died before it wrote down what became of them",
            "compare with the provider's bill; what they reserved stays reserved in their batch's budget",
        )


def check_invariants(violations: Sequence[Violation]) -> Iterator[Finding]:
    """What no sequence of events may do to the ledger, a finding for each thing that does not hold."""
    for violation in violations:
        more = ", ..." if violation.count > len(violation.samples) else ""
        yield Finding(
            f"invariant_{violation.name}",
            Severity.PROBLEM,
            f"it does not hold that {violation.holds}: {violation.count:,} times ({', '.join(violation.samples)}{more})",
            "unless rows were changed by hand this is a defect of ours: keep a backup as it is, and report it with what "
            "'nightdesk show JOB' says of one of them",
        )
