"""``nightdesk release``: lets held jobs go on."""

from decimal import Decimal, InvalidOperation
from typing import Annotated
from uuid import UUID

import typer

from schemas.states import HeldReason
from tasks.errors import InputError
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.paging import Paging, paging
from worker.cli.progress import progress
from worker.cli.session import Session, session
from worker.settings import load_settings


def command(
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
    with (
        session(load_settings(), writes=False) as desk,
        progress(quiet=False) as shown,
        paging("released", shown, again=f"'nightdesk release {batch_id}' releases the rest") as course,
    ):
        released = run_interruptible(_release(desk, batch_id, reasons, ceiling, course))
    if as_json:
        write_json({"batch_id": str(batch_id), "released": released})
    else:
        tell(f"{released} jobs released; workers take them from here")
    return INCOMPLETE if course.refused else OK


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise InputError(f"{text!r} is not an amount in USD", field="--max-cost-usd") from None
    if not amount.is_finite() or amount < 0:
        raise InputError(f"{text} is not an amount in USD, from 0 up", field="--max-cost-usd")
    return amount


async def _release(
    desk: Session, batch_id: UUID, reasons: list[HeldReason], ceiling: Decimal | None, course: Paging
) -> int:
    """How many jobs of the batch are no longer held."""
    async with desk.ledger() as ledger:
        before = await ledger.reading.batch_status(batch_id)
        course.total = sum(count for reason, count in before.held.items() if reason in reasons)
        if ceiling is not None:
            await ledger.actions.set_budget(batch_id, ceiling, actor())
        for reason in reasons:
            if reason is HeldReason.BATCH_PAUSED and before.paused:
                await ledger.actions.pause_batch(batch_id, actor(), paused=False, on_page=course.add)
            else:
                await ledger.actions.release(batch_id, reason, actor(), course.add)
        after = await ledger.reading.batch_status(batch_id)
    return sum(before.held.values()) - sum(after.held.values())
