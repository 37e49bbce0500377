"""Finds batches by the names that people gave them."""

from uuid import UUID

from tasks.errors import NotFound
from worker.cli.exits import run_interruptible
from worker.cli.session import Session, session
from worker.settings import load_settings


def batches_of_name(name: str) -> list[UUID]:
    """The newest few batches with a name; none without a ledger."""

    async def read(opened: Session) -> list[UUID]:
        async with opened.ledger() as ledger:
            return await ledger.browsing.of_name(name)

    try:
        with session(load_settings(), writes=False) as opened:
            return run_interruptible(read(opened))
    except NotFound:
        return []
