"""``nightdesk cancel``, ``release``, ``retry``, ``erase`` and ``prune``: change many jobs page by page, or remove them."""

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, TypeVar
from uuid import UUID

import typer

from schemas.batch import BatchStatus
from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState
from tasks.errors import InputError, LedgerError, ServiceUnavailable
from tasks.results import parse_job_ids
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK, run_interruptible
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, session
from worker.cli.terminal import actor, tell, warn, write_json
from worker.operations import content_removal, job_changes
from worker.operations.content_removal import ErasureScope, PruneScope, Removal
from worker.operations.counts import count_of
from worker.operations.operator import JobPages, Operator
from worker.settings import load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import supervisor_of

MOST_NAMED = 20
"""Jobs that can't be changed, named one by one."""

Result = TypeVar("Result")


@asynccontextmanager
async def operator_of(opened: Session) -> AsyncIterator[Operator]:
    """The person at this terminal, with the ledger of a session."""
    async with opened.ledger() as ledger:
        yield Operator(actor(), opened.settings, opened.where, ledger, warn)


@contextmanager
def job_pages(verb: str, reporter: Reporter, *, again: str) -> Iterator[JobPages]:
    """Counts and shows pages; on Ctrl-C, or when the ledger is lost, says how far it came and how it goes on (``again``).

    ``verb`` says what becomes of the jobs: ``cancelled``.
    """
    pages = JobPages(lambda pages: reporter.pages(verb, pages.jobs, pages.total))
    try:
        yield pages
    except (KeyboardInterrupt, ServiceUnavailable, LedgerError) as error:
        if pages.jobs or isinstance(error, KeyboardInterrupt):
            tell(f"Ended midway: {count_of(pages.changed, 'job')} {verb} so far. {again}")
        raise
    finally:
        for job_id, reason in list(pages.refused.items())[:MOST_NAMED]:
            warn(f"job {job_id} can't be {verb}: {reason}")
        if len(pages.refused) > MOST_NAMED:
            warn(f"{count_of(len(pages.refused) - MOST_NAMED, 'more job')} can't be {verb}")


def operate(
    verb: str, operation: Callable[[Operator, JobPages], Awaitable[Result]], *, again: str
) -> tuple[Result, JobPages]:
    """Runs one operation on the ledger of the settings; returns its result and the pages that it went through."""

    async def run(opened: Session, pages: JobPages) -> Result:
        async with operator_of(opened) as operator:
            return await operation(operator, pages)

    with (
        session(load_settings(), writes=False) as opened,
        reporting(quiet=False) as reporter,
        job_pages(verb, reporter, again=again) as pages,
    ):
        return run_interruptible(run(opened, pages)), pages


MOST_SHOWN = 3
"""Ids that a message repeats."""


def cancel(
    batch_or_job: Annotated[str, typer.Argument(metavar="BATCH|JOB", help="The id of a batch or of a job.")],
    as_json: options.Json = False,
) -> int:
    """Cancel a job, or all jobs of a batch that are not final. What a running call costs is still recorded.

    A batch is cancelled in pages; from the first moment on none of its jobs is called. Ended midway, the same command cancels
    the rest.
    """
    target = options.batch_id(batch_or_job)
    again = f"'nightdesk cancel {target}' cancels the rest; none of them is called any more"
    cancelled, pages = operate(
        "cancelled", lambda operator, pages: job_changes.cancel(operator, target, pages), again=again
    )
    return _sum_up("cancelled", cancelled, pages, f"{count_of(len(cancelled), 'job')} cancelled", as_json=as_json)


def pause(batch: options.BatchId, as_json: options.Json = False) -> int:
    """Begin no further call of a batch. Calls under way end, and their answers are kept; 'resume' lets it go on.

    Goes through the jobs in pages; ended midway, the same command pauses the rest.
    """
    batch_id = options.batch_id(batch)

    async def operation(operator: Operator, pages: JobPages) -> tuple[int, BatchStatus]:
        count = await job_changes.pause(operator, batch_id, pages)
        return count, await operator.ledger.reading.batch_status(batch_id)

    (paused, status), pages = operate("paused", operation, again=f"'nightdesk pause {batch_id}' pauses the rest")
    if as_json:
        write_json({"batch_id": str(batch_id), "paused": paused})
    else:
        tell(pause_line(paused, status))
    return INCOMPLETE if pages.refused else OK


def pause_line(count: int, status: BatchStatus) -> str:
    """The outcome of a pause, for people: what waits, and what goes on at the provider."""
    if not status.jobs - status.final:
        return "nothing was paused: all jobs are final"
    on_hold = f"{count_of(count, 'job')} {'was' if count == 1 else 'were'} paused"
    parts = [on_hold if count else "the batch is paused, and no further job waited for a call"]
    if under_way := status.states.get(JobState.PENDING, 0) + status.states.get(JobState.RUNNING, 0):
        parts.append(f"{count_of(under_way, 'call')} under way will end, be paid and be stored")
    return "; ".join([*parts, f"to let it go on: nightdesk resume {status.batch_id}"])


def resume(batch: options.BatchId, as_json: options.Json = False) -> int:
    """Let a paused batch go on, as 'release --reason batch_paused' does. Deadlines have not moved meanwhile."""
    return release(batch, HeldReason.BATCH_PAUSED, as_json=as_json)


def release(
    batch: options.BatchId,
    reason: Annotated[
        HeldReason | None, typer.Option(help="Release only what is held for this reason; default: everything.")
    ] = None,
    max_cost_usd: Annotated[
        str | None, typer.Option("--max-cost-usd", metavar="USD", help="The batch's new ceiling on cost.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Let held jobs of a batch go on, with a new ceiling on cost if one is given.

    Goes through them in pages; ended midway, the same command releases the rest.
    """
    batch_id = options.batch_id(batch)
    ceiling = None if max_cost_usd is None else _amount(max_cost_usd)
    reasons = list(HeldReason) if reason is None else [reason]

    async def operation(operator: Operator, pages: JobPages) -> tuple[int, bool, str]:
        before = await operator.ledger.reading.batch_status(batch_id)
        resumed = before.paused and HeldReason.BATCH_PAUSED in reasons
        count = await job_changes.release(operator, batch_id, pages, reasons=reasons, max_cost_usd=ceiling)
        return count, resumed, await next_step(operator, batch_id) if count or resumed else ""

    (released, resumed, step), pages = operate(
        "released",
        operation,
        again=f"'nightdesk release {batch_id}' releases the rest",
    )
    if as_json:
        write_json({"batch_id": str(batch_id), "released": released})
    else:
        tell(release_line(released, ceiling, step, resumed=resumed))
    return INCOMPLETE if pages.refused else OK


def release_line(count: int, ceiling: Decimal | None, step: str, *, resumed: bool = False) -> str:
    """The outcome of a release, for people; ``resumed``: the batch was paused, and is no more."""
    parts = ["the batch is no longer paused"] if resumed and not count else []
    parts.append(f"{count_of(count, 'job')} released" if count else "no job was held")
    if ceiling is not None:
        parts.append(f"the batch's ceiling is {ceiling:f} USD now")
    elif not count and not resumed:
        parts.append("nothing changed")
    return "; ".join([*parts, *([step] if step else [])])


async def next_step(operator: Operator, batch_id: UUID | None) -> str:
    """The way on of jobs that wait for a call, for people; warns of workers with another key or other settings."""
    supervisor = supervisor_of(operator.settings, state_of(operator.settings))
    if difference := supervisor.difference():
        warn(difference)
    if supervisor.running() or await operator.ledger.fleet.workers():
        return "workers take it from here"
    resume = "" if batch_id is None else f", or go on with: nightdesk run --resume {batch_id} -o OUT"
    return f"no worker runs: 'nightdesk up' starts them{resume}"


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise InputError(f"{text!r} is not an amount in USD", field="--max-cost-usd") from None
    if not amount.is_finite() or amount < 0:
        raise InputError(f"{text} is not an amount in USD, from 0 up", field="--max-cost-usd")
    return amount


def retry(
    batch_or_jobs: Annotated[
        list[str], typer.Argument(metavar="BATCH|JOB", help="A batch's id, or jobs: their ids, or BATCH:CUSTOM_ID.")
    ],
    causes: Annotated[
        list[FailureKind] | None,
        typer.Option(
            "--cause", metavar="CAUSE", help="Of a batch, only jobs that ended for it; 'report' lists causes."
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Run final jobs again: the jobs named, or those of a batch that failed, were cancelled or expired.

    Goes through them in pages; ended midway, the same command takes the rest.
    """
    targets = [options.job_target(text, "a batch's or a job's") for text in batch_or_jobs]
    names = f"{' '.join(batch_or_jobs[:MOST_SHOWN])}{' ...' if len(targets) > MOST_SHOWN else ''}"

    async def operation(operator: Operator, pages: JobPages) -> tuple[list[UUID], str]:
        locate = operator.ledger.reading.locate
        ids = [await locate(first, name) if name else first for first, name in targets]
        changed = await job_changes.retry(operator, ids, pages, causes=causes or ())
        batch_id = ids[0] if len(ids) == 1 and ids != changed else None
        return changed, await next_step(operator, batch_id) if changed else ""

    (retried, step), pages = operate(
        "retried",
        operation,
        again=f"'nightdesk retry {names}' takes the rest",
    )
    text = f"{count_of(len(retried), 'job')} {'starts' if len(retried) == 1 else 'start'} a new run"
    text += f"; {step}" if step else ""
    return _sum_up("retried", retried, pages, text, as_json=as_json)


def _sum_up(verb: str, changed: list[UUID], pages: JobPages, text: str, *, as_json: bool) -> int:
    if as_json:
        refused = {str(job_id): reason for job_id, reason in pages.refused.items()}
        write_json({verb: [str(job_id) for job_id in changed], "refused": refused})
    else:
        tell(text)
    return INCOMPLETE if pages.refused else OK


_AGE = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_REST = "The same command takes the rest"


def erase(
    *,
    job: Annotated[list[str] | None, typer.Option(metavar="ID", help="A job; may be given more than once.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="All jobs of a batch.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="All jobs of a tenant.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="First cancel unfinished jobs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> int:
    """Remove what jobs were asked and what was answered, for good; states, times and costs are kept.

    Questions, sources, answers, audit records, custom ids and keys go, from the ledger, from Redis and from this home.
    """
    if sum(scope is not None for scope in (job or None, batch, tenant)) != 1:
        raise InputError("give one of --job, --batch and --tenant")
    scope = ErasureScope(
        tuple(dict.fromkeys(parse_job_ids(job or []))),
        options.batch_id(batch) if batch else None,
        options.stored_tenant(tenant),
    )
    with session(load_settings(), writes=False) as opened:
        count = run_interruptible(_survey(opened, scope, cancel=cancel))
        _confirm(count, yes=yes)
        with reporting(quiet=False) as reporter, job_pages("erased", reporter, again=_REST) as pages:
            pages.total = count
            done = run_interruptible(_erase(opened, scope, pages, cancel=cancel))
    if as_json:
        write_json({
            "erased": done.erased, "not_final": done.not_final, "batches": done.sealed,
            "unheard_calls": done.unknown_calls,
        })  # fmt: skip
    else:
        _sum_up_erased(done, count)
    return INCOMPLETE if done.not_final or done.redis_unreachable or pages.refused else OK


async def _survey(opened: Session, scope: ErasureScope, *, cancel: bool) -> int:
    async with operator_of(opened) as operator:
        return await content_removal.survey(operator, scope, cancel=cancel)


async def _erase(opened: Session, scope: ErasureScope, pages: JobPages, *, cancel: bool) -> Removal:
    async with operator_of(opened) as operator:
        return await content_removal.erase(operator, scope, pages, cancel=cancel)


def _confirm(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"the content of {count_of(count, 'job')} would be removed for good: say --yes")
    typer.confirm(f"Remove the content of {count_of(count, 'job')} for good?", abort=True, err=True)


def _sum_up_erased(done: Removal, count: int) -> None:
    before = "" if done.erased == count else ", the others were before"
    sealed = f"; {count_of(done.sealed, 'batch', 'batches')} wholly erased now" if done.sealed else ""
    tell(f"{done.erased:,} of {count_of(count, 'job')} erased{before}{sealed}")
    if done.unknown_calls:
        tell(
            f"what became of {count_of(done.unknown_calls, 'call')} of these jobs is not known: an answer that a worker kept on its disk "
            "(spool in its NIGHTDESK_HOME) stays there until a worker starts in that home, and is dropped then"
        )
    if done.not_final:
        tell(f"{count_of(done.not_final, 'job')} came meanwhile, not final: erase again")


def prune(
    *,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Only jobs final for longer: 90d, 12w, 36h.")],
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only of this batch.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this tenant.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Delete the jobs with their rows, not only content.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: options.Json = False,
) -> int:
    """Remove the content of jobs that ended long ago, or delete the jobs; for a nightly timer.

    Works in chunks: ended with Ctrl-C it goes on the next time. A batch keeps its line with what it cost.
    """
    if batch is not None and tenant is not None:
        raise InputError("give --batch or --tenant, not both")
    scope = PruneScope(age(older_than), options.batch_id(batch) if batch else None, options.stored_tenant(tenant), rows)
    verb = "deleted" if rows else "erased"

    async def operation(operator: Operator, pages: JobPages) -> Removal:
        return await (
            content_removal.survey_old(operator, scope) if dry_run else content_removal.prune(operator, scope, pages)
        )

    done, pages = operate(verb, operation, again=_REST)
    cost = None if done.cost_usd is None else format(done.cost_usd.normalize(), "f")
    if as_json:
        write_json({
            "jobs": done.jobs, "batches": len(done.batches), "attempts": done.attempts,
            "input_tokens": done.input_tokens, "output_tokens": done.output_tokens, "cost_usd": cost,
        })  # fmt: skip
    else:
        tell(
            f"{count_of(done.jobs, 'job')} of {count_of(len(done.batches), 'batch', 'batches')} {'would be ' if dry_run else ''}{verb}"
        )
        if rows and not dry_run:
            tell(
                f"their rows held {done.attempts} attempts, {done.input_tokens} input and {done.output_tokens} "
                f"output tokens, {'an unknown cost' if cost is None else f'{cost} USD'}; each batch keeps what it cost"
            )
    return INCOMPLETE if done.redis_unreachable or pages.refused else OK


def age(text: str) -> timedelta:
    """Reads an age such as ``90d``; raises ``InputError``."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not an age; say for example 90d, 12w, 36h, 30m or 0s", field="older-than")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
