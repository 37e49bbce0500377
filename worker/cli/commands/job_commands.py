"""``nightdesk cancel``, ``release`` and ``retry``: change the state of jobs."""

from decimal import Decimal, InvalidOperation
from typing import Annotated
from uuid import UUID

import typer

from schemas.states import HeldReason
from tasks.errors import InputError
from tasks.poll import job_ids
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.job_operation import operate
from worker.cli.terminal import tell, write_json
from worker.operations import job_changes
from worker.operations.operator import JobPages

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
    try:
        target = UUID(batch_or_job)
    except ValueError:
        raise InputError(f"{batch_or_job!r} is neither a batch id nor a job id") from None
    again = f"'nightdesk cancel {target}' cancels the rest; none of them is called any more"
    cancelled, pages = operate(
        "cancelled", lambda operator, pages: job_changes.cancel(operator, target, pages), again=again
    )
    return _sum_up("cancelled", cancelled, pages, "jobs cancelled", as_json=as_json)


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
    released, pages = operate(
        "released",
        lambda operator, pages: job_changes.release(operator, batch_id, pages, reasons=reasons, max_cost_usd=ceiling),
        again=f"'nightdesk release {batch_id}' releases the rest",
    )
    if as_json:
        write_json({"batch_id": str(batch_id), "released": released})
    else:
        tell(f"{released} jobs released; workers take them from here")
    return INCOMPLETE if pages.refused else OK


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise InputError(f"{text!r} is not an amount in USD", field="--max-cost-usd") from None
    if not amount.is_finite() or amount < 0:
        raise InputError(f"{text} is not an amount in USD, from 0 up", field="--max-cost-usd")
    return amount


def retry(
    batch_or_jobs: Annotated[list[str], typer.Argument(metavar="BATCH|JOB", help="A batch's id, or ids of jobs.")],
    as_json: options.Json = False,
) -> int:
    """Run final jobs again: the jobs named, or those of a batch that failed, were cancelled or expired.

    Goes through them in pages; ended midway, the same command takes the rest.
    """
    ids = job_ids(batch_or_jobs)
    names = f"{' '.join(map(str, ids[:MOST_SHOWN]))}{' ...' if len(ids) > MOST_SHOWN else ''}"
    retried, pages = operate(
        "retried",
        lambda operator, pages: job_changes.retry(operator, ids, pages),
        again=f"'nightdesk retry {names}' takes the rest",
    )
    return _sum_up("retried", retried, pages, "jobs start a new run", as_json=as_json)


def _sum_up(verb: str, changed: list[UUID], pages: JobPages, text: str, *, as_json: bool) -> int:
    if as_json:
        refused = {str(job_id): reason for job_id, reason in pages.refused.items()}
        write_json({verb: [str(job_id) for job_id in changed], "refused": refused})
    else:
        tell(f"{len(changed)} {text}")
    return INCOMPLETE if pages.refused else OK
