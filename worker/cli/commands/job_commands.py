"""``nightdesk pause``, ``release``, ``cancel`` and ``retry``: change many jobs page by page."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, TypeVar
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState
from tasks.errors import LedgerError, ServiceUnavailable
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import argument, option
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, session
from worker.cli.summary import held_lines
from worker.cli.terminal import actor, tell, warn, write_json
from worker.operations import job_changes
from worker.operations.api_keys import amount
from worker.operations.counts import count_of
from worker.operations.operator import JobPages, Operator
from worker.operations.overview import dollars
from worker.supervise.state_directory import state_of
from worker.supervise.workers import supervisor_of

MOST_NAMED = 20
"""Jobs that can't be changed, named one by one."""

NAMED_ALONE = {HeldReason.LANE_PAUSED, HeldReason.UNKNOWN_OUTCOME}
"""Holds whose release concerns other batches or may pay twice: ended only where they are named."""

MOST_SHOWN = 3
"""Ids that a message repeats."""

Result = TypeVar("Result")


def as_operator(opened: Session, operation: Callable[[Operator], Coroutine[Any, Any, Result]]) -> Result:
    """The result of an operation that the person at this terminal orders."""
    return opened.on_ledger(lambda ledger: operation(Operator(actor(), opened.settings, opened.where, ledger, warn)))


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
    verb: str, operation: Callable[[Operator, JobPages], Coroutine[Any, Any, Result]], *, again: str
) -> tuple[Result, JobPages]:
    """Runs one operation on the ledger of the settings; returns its result and the pages that it went through."""
    with (
        session(writes=False) as opened,
        reporting(quiet=False) as reporter,
        job_pages(verb, reporter, again=again) as pages,
    ):
        return as_operator(opened, lambda operator: operation(operator, pages)), pages


def pause(batch_id: options.BatchId, as_json: options.Json = False) -> int:
    """Begin no further call of a batch. Calls under way end, and their answers are kept; 'release' lets it go on.

    Goes through the jobs in pages; ended midway, the same command pauses the rest.
    """

    async def operation(operator: Operator, pages: JobPages) -> tuple[int, str]:
        count = await job_changes.pause(operator, batch_id, pages)
        return count, pause_line(count, await operator.ledger.reading.batch_status(batch_id))

    (paused, text), pages = operate("paused", operation, again=f"'nightdesk pause {batch_id}' pauses the rest")
    return _sum_up({"batch_id": str(batch_id), "paused": paused}, pages, text, as_json=as_json)


def pause_line(count: int, status: BatchStatus) -> str:
    """The outcome of a pause, for people: what waits, and what goes on at the provider."""
    if not status.jobs - status.final:
        return "nothing was paused: all jobs are final"
    under_way = status.states.get(JobState.PENDING, 0) + status.states.get(JobState.RUNNING, 0)
    goes_on = f"; {count_of(under_way, 'call')} under way will end, be paid and be stored" if under_way else ""
    return f"the batch is paused, {count_of(count, 'job')} with it{goes_on}; to let it go on: nightdesk release {status.batch_id}"


def release(
    batch_id: options.BatchId,
    reason: Annotated[
        HeldReason | None,
        option("Release only what is held for this reason; default: all but lane_paused and unknown_outcome."),
    ] = None,
    max_cost_usd: Annotated[
        str | None,
        option("The batch's new ceiling on cost; releases what the old one held.", "--max-cost-usd", metavar="USD"),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Let held jobs of a batch go on, with a new ceiling on cost if one is given.

    --reason lane_paused lets the calls of all batches go on, --reason unknown_outcome may pay twice. Goes through the jobs in
    pages; ended midway, the same command releases the rest.
    """
    ceiling = None if max_cost_usd is None else amount(max_cost_usd, field="--max-cost-usd")
    if reason is not None:
        reasons = [reason]
    else:
        reasons = [each for each in HeldReason if each not in NAMED_ALONE] if ceiling is None else [HeldReason.BUDGET]

    async def operation(operator: Operator, pages: JobPages) -> tuple[int, str]:
        before = await operator.ledger.reading.batch_status(batch_id)
        resumed = before.paused and HeldReason.BATCH_PAUSED in reasons
        count = await job_changes.release(operator, batch_id, pages, reasons=reasons, max_cost_usd=ceiling)
        step = await next_step(operator, batch_id) if count or resumed else ""
        lines = [release_line(count, ceiling, step, resumed=resumed)]
        if HeldReason.LANE_PAUSED in reasons:
            lines.append("no lane is paused any more: what was held for it goes on in all batches")
        return count, "\n".join(lines + held_lines(await operator.ledger.reading.batch_status(batch_id)))

    (released, text), pages = operate("released", operation, again=f"'nightdesk release {batch_id}' releases the rest")
    return _sum_up({"batch_id": str(batch_id), "released": released}, pages, text, as_json=as_json)


def release_line(count: int, ceiling: Decimal | None, step: str, *, resumed: bool = False) -> str:
    """The outcome of a release, for people; ``resumed``: the batch was paused, and is no more."""
    parts = (
        "the batch is no longer paused" if resumed else "",
        f"{count_of(count, 'job')} released" if count else "no job was held",
        "" if ceiling is None else f"the batch's ceiling is {dollars(ceiling)} now",
        step,
    )
    return "; ".join(filter(None, parts))


async def next_step(operator: Operator, batch_id: UUID | None) -> str:
    """The way on of jobs that wait for a call, for people; warns of workers with another key or other settings."""
    supervisor = supervisor_of(operator.settings, state_of(operator.settings))
    if difference := supervisor.difference():
        warn(difference)
    if supervisor.running() or await operator.ledger.fleet.workers():
        return "workers take it from here"
    resume = "" if batch_id is None else f", or go on with: nightdesk run --resume {batch_id} -o OUT"
    return f"no worker runs: 'nightdesk up' starts them{resume}"


def cancel(
    batch_or_job: options.Target,
    as_json: options.Json = False,
) -> int:
    """Cancel a job, or all jobs of a batch that are not final. What a running call costs is still recorded.

    A batch is cancelled in pages; from the first moment on none of its jobs is called. Ended midway, the same command cancels
    the rest.
    """
    target = options.job_target(batch_or_job)

    async def operation(operator: Operator, pages: JobPages) -> list[UUID]:
        return await job_changes.cancel(operator, await operator.ledger.reading.locate(*target), pages)

    again = f"'nightdesk cancel {batch_or_job}' cancels the rest; none of them is called any more"
    cancelled, pages = operate("cancelled", operation, again=again)
    return _sum_up_jobs("cancelled", cancelled, pages, f"{count_of(len(cancelled), 'job')} cancelled", as_json=as_json)


def retry(
    batch_or_jobs: Annotated[list[str], argument("A batch's id, or jobs: their ids, or BATCH:CUSTOM_ID.", "BATCH|JOB")],
    causes: Annotated[
        list[FailureKind] | None,
        option("Of a batch, only jobs that ended for it; 'report' lists causes.", "--cause", metavar="CAUSE"),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Run final jobs again: the jobs named, or those of a batch that failed, were cancelled or expired.

    Goes through them in pages; ended midway, the same command takes the rest.
    """
    targets = [options.job_target(text) for text in batch_or_jobs]
    names = f"{' '.join(batch_or_jobs[:MOST_SHOWN])}{' ...' if len(targets) > MOST_SHOWN else ''}"

    async def operation(operator: Operator, pages: JobPages) -> tuple[list[UUID], str]:
        ids = [await operator.ledger.reading.locate(*target) for target in targets]
        changed = await job_changes.retry(operator, ids, pages, causes=causes or ())
        batch_id = ids[0] if len(ids) == 1 and ids != changed else None
        return changed, f"; {await next_step(operator, batch_id)}" if changed else ""

    (retried, step), pages = operate("retried", operation, again=f"'nightdesk retry {names}' takes the rest")
    text = f"{count_of(len(retried), 'job starts', 'jobs start')} a new run{step}"
    return _sum_up_jobs("retried", retried, pages, text, as_json=as_json)


def _sum_up_jobs(verb: str, changed: Sequence[UUID], pages: JobPages, text: str, *, as_json: bool) -> int:
    refused = {str(job_id): reason for job_id, reason in pages.refused.items()}
    document = {verb: [str(job_id) for job_id in changed], "refused": refused}
    return _sum_up(document, pages, text, as_json=as_json)


def _sum_up(document: dict[str, Any], pages: JobPages, text: str, *, as_json: bool) -> int:
    if as_json:
        write_json(document)
    else:
        tell(text)
    return INCOMPLETE if pages.refused else OK
