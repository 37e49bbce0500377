"""Checks the work: workers for every step, as they report themselves; jobs that are stuck or held, money, invariants, lanes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID

from schemas.states import HeldReason, Step
from worker.doctor.finding import Finding, Severity, note, problem, warning
from worker.ledger.fleet import LaneNotice
from worker.ledger.inspection import BILLED_WITHIN, MANY, OPENED_WITHIN, LedgerHealth
from worker.ledger.invariants import Violation
from worker.ledger.remote_overview import RemoteNotice
from worker.operations.counts import count_of
from worker.operations.overview import RELEASES
from worker.settings import Settings

BATCHES_NAMED = 3


def check_workers(health: LedgerHealth, settings: Settings) -> Iterator[Finding]:
    """Findings about steps that no worker serves, and about workers of urgent jobs: none where there should be, or no others."""
    if not health.served:
        waiting = sum(health.available.values())
        if waiting or not health.urgent_workers:
            what = "only workers of urgent jobs are alive" if health.urgent_workers else "no worker is alive"
            yield _missing("workers", what, waiting, "start them: 'nightdesk up', or 'nightdesk worker'")
        return
    yield from (_unserved(step, health, settings) for step in Step if _lacks_worker(step, health, settings))
    if settings.urgent_processes and not health.urgent_workers:
        yield warning(
            "urgent_workers",
            "no worker takes urgent jobs alone, though NIGHTDESK_URGENT_PROCESSES asks for one: beside much other work they "
            "take longer in the other workers",
            "start it: 'nightdesk up', or 'nightdesk worker --queues urgent'; its log says why it ended",
        )


def _lacks_worker(step: Step, health: LedgerHealth, settings: Settings) -> bool:
    """Tells a step that no worker serves; not every installation has a local model."""
    needed = step is not Step.LOCAL or health.available[step] or settings.local_model
    return bool(needed) and step not in health.served


def _unserved(step: Step, health: LedgerHealth, settings: Settings) -> Finding:
    remedy = f"start one: 'nightdesk worker --queues {step.value}', or 'nightdesk up'"
    if step is Step.LOCAL and settings.local_model is None:
        remedy = f"set NIGHTDESK_LOCAL_MODEL and {remedy}, or leave 'local' out of the jobs' checkers"
    what = f"no worker serves the queue {step.value}"
    return _missing(f"queue_{step.value}", what, health.available[step], remedy)


def _missing(check: str, what: str, waiting: int, remedy: str) -> Finding:
    severity = Severity.PROBLEM if waiting else Severity.WARNING
    return Finding(check, severity, f"{what}; {count(waiting, 'job waits', 'jobs wait')}" if waiting else what, remedy)


def count(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun; it stops at ``MANY``."""
    return count_of(number, noun, plural) if number < MANY else f"{MANY:,} or more {plural or noun + 's'}"


def check_moving(health: LedgerHealth) -> Iterator[Finding]:
    """Findings about jobs that the dispatch duties of any worker should have moved within seconds."""
    if health.stuck:
        yield problem(
            "stuck_leases",
            f"{count(health.stuck, 'job runs on a lease', 'jobs run on leases')} that ran out more than two lease times ago; no worker rescues them",
            "start a worker: it rescues them once it has reached the ledger for one lease time",
        )
    if health.overdue:
        yield problem(
            "overdue",
            f"{count(health.overdue, 'scheduled job was', 'scheduled jobs were')} due more than a minute ago; no worker promotes them",
            "start a worker, of any queue; if some run, look for 'dispatch waits' or 'broke' in their logs",
        )
    if health.quarantined:
        first = health.quarantined[0]
        yield problem(
            "quarantine",
            f"{count(len(health.quarantined), 'job')} can't be changed by what the workers do in turn, the first of them job "
            f"{first.job_id} ({first.duty}: {first.reason})",
            "fix the cause that the reason and PostgreSQL's log name (a damaged row, or a trigger of yours); workers try again within "
            "an hour",
        )
    if health.unreadable:
        yield warning(
            "unreadable",
            f"{count(len(health.unreadable), 'job')} of the last {BILLED_WITHIN.days} days failed because what the ledger holds of them "
            f"can't be read, the first of them job {health.unreadable[0]}",
            "'nightdesk show JOB' says why; look at the server's log and disk, restore the rows from a backup and retry these jobs, or "
            "submit them again",
        )
    if health.unpublished:
        yield warning(
            "unpublished",
            f"the results of {count(health.unpublished, 'final job')} are not in Redis after more than a minute",
            "start a worker and check that it reaches Redis; 'nightdesk results' reads them from the ledger meanwhile",
        )


def check_held(health: LedgerHealth) -> Iterator[Finding]:
    """Jobs that wait for a person, a finding for each reason."""
    batches: dict[HeldReason, dict[UUID, int]] = defaultdict(dict)
    for group in health.holds:
        batches[group.reason][group.batch_id] = group.jobs
    for reason, jobs in batches.items():
        why, remedy = RELEASES[reason]
        named = ", ".join(map(str, list(jobs)[:BATCHES_NAMED])) + (" and others" if len(jobs) > BATCHES_NAMED else "")
        yield warning(
            f"held_{reason.value}",
            f"{count_of(sum(jobs.values()), 'job is', 'jobs are')} held: {why} (batch {named})",
            remedy.format(batch=next(iter(jobs)) if len(jobs) == 1 else "BATCH"),
        )


def check_money(health: LedgerHealth) -> Iterator[Finding]:
    """Calls that may have cost money without leading anywhere."""
    if health.billed_twice:
        yield note(
            "billed_twice",
            f"possibly billed twice: {count(health.billed_twice, 'call')} of the last {BILLED_WITHIN.days} days "
            "made again because their outcome was unknown then",
            "nothing; their cost is counted, at the worst case while unknown. NIGHTDESK_HOLD_UNKNOWN=true holds such jobs instead",
        )
    if health.left_open:
        hours = int(OPENED_WITHIN.total_seconds() // 3600)
        yield warning(
            "attempts_left_open",
            f"{count(health.left_open, 'call')} of the last {hours} hours never closed though their jobs are final: "
            "the worker died before it wrote down what became of them",
            "compare with the provider's bill; what they reserved stays reserved in their batch's budget",
        )


def check_invariants(violations: Sequence[Violation]) -> Iterator[Finding]:
    """A finding for each invariant of the ledger that does not hold."""
    for violation in violations:
        more = ", ..." if violation.count > len(violation.samples) else ""
        yield problem(
            f"invariant_{violation.name}",
            f"broken invariant: {violation.holds}: {violation.count:,} times ({', '.join(violation.samples)}{more})",
            "unless rows were changed by hand this is a defect of Nightdesk: keep a backup as it is, and report it with what "
            "'nightdesk show JOB' says of one of them",
        )


def check_remote(notices: Sequence[RemoteNotice]) -> Iterator[Finding]:
    """Findings about provider batches that should have ended, or be created or cancelled by now."""
    for notice in notices:
        if notice.trouble is not None:
            yield warning(
                "provider_batch_unreadable",
                notice.event,
                "look at the batch and its files at the provider, and at the key's rights; what can be read is stored, and after "
                "an hour (a day of outages) the other calls end as unknown",
            )
        elif notice.late:
            yield warning(
                "provider_batch_late",
                notice.event,
                "see the batch at the provider and the log of the workers with the queue 'generate' ('provider batch'); "
                "cancel it there: its calls are made again, those that it finished are kept",
            )


def check_lanes(lanes: Sequence[LaneNotice]) -> Iterator[Finding]:
    """Findings about paused lanes and unreachable providers."""
    for notice in lanes:
        if notice.paused:
            release = "then 'nightdesk release BATCH --reason lane_paused' for any batch held"
            yield warning("lane_paused", notice.event, f"{notice.remedy}, {release}")
        else:
            yield warning(
                "unreachable",
                notice.event,
                f"{notice.remedy}; {notice.consequence}",
            )
