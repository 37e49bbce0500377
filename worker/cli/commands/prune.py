"""``nightdesk prune``: removes the content of jobs that ended long ago, or the jobs altogether."""

import re
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.paging import Paging, paging
from worker.cli.progress import progress
from worker.cli.removing import Removal, removal
from worker.cli.session import Session, session
from worker.ledger.erasure import Kept
from worker.ledger.postgres import PostgresLedger
from worker.settings import load_settings

_AGE = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Old:
    """Jobs that have been final for so long."""

    than: timedelta
    batch: UUID | None
    tenant: str | None
    rows: bool
    """Jobs whose content is erased already count, too."""

    async def pages(self, ledger: PostgresLedger) -> AsyncIterator[tuple[UUID, list[Kept]]]:
        """The jobs in pages, each with its batch; a batch ends with an empty page."""
        async for batch_id in self._batches(ledger):
            async for jobs in ledger.erasure.kept_jobs(batch_id, self.than):
                if chosen := [job for job in jobs if job.due and (self.rows or not job.erased)]:
                    yield batch_id, chosen
            yield batch_id, []

    async def _batches(self, ledger: PostgresLedger) -> AsyncIterator[UUID]:
        if self.batch is not None:
            yield (await ledger.reading.batch_status(self.batch)).batch_id
            return
        async for batch_id in ledger.erasure.kept_batches(self.tenant, self.than, rows=self.rows):
            yield batch_id


@dataclass(slots=True)
class Told:
    """What was, or would be, removed; the sums are those of deleted rows, which nothing else holds."""

    jobs: int = 0
    batches: int = 0
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: str | None = "0"
    """None: the price of a call is unknown."""


def command(
    *,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Of jobs final for longer: 90d, 12w, 36h.")],
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only of this batch.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this tenant.")] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Delete the jobs with all their rows, not their content.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: options.Json = False,
) -> int:
    """Remove the content of jobs that ended long ago, or the jobs altogether; for a nightly timer.

    Works in chunks: ended with Ctrl-C it goes on the next time. A batch keeps its line with what it cost.
    """
    if batch is not None and tenant is not None:
        raise InputError("give --batch or --tenant, not both")
    old = Old(age(older_than), options.batch_id(batch) if batch else None, tenant, rows)
    verb = "deleted" if rows else "erased"
    with (
        session(load_settings(), writes=False) as desk,
        progress(quiet=False) as shown,
        paging(verb, shown, again="The same command takes the rest") as course,
    ):
        told, missed = run_interruptible(_count(desk, old) if dry_run else _prune(desk, old, course))
    if as_json:
        write_json(asdict(told))
    else:
        tell(f"{told.jobs} jobs of {told.batches} batches {'would be ' if dry_run else ''}{verb}")
        if rows and not dry_run:
            spent = "an unknown cost" if told.cost_usd is None else f"{told.cost_usd} USD"
            tell(
                f"in their rows stood {told.attempts} attempts, {told.input_tokens} input and {told.output_tokens} "
                f"output tokens, {spent}; each batch keeps what it cost"
            )
    return INCOMPLETE if missed or course.refused else OK


def age(text: str) -> timedelta:
    """Read an age such as ``90d``; raises ``InputError``."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is not an age; say for example 90d, 12w, 36h, 30m or 0s", field="older-than")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


async def _count(desk: Session, old: Old) -> tuple[Told, bool]:
    told, batches = Told(), set()
    async with desk.ledger() as ledger:
        async for batch_id, jobs in old.pages(ledger):
            told.jobs += len(jobs)
            batches |= {batch_id} if jobs else set()
    told.batches = len(batches)
    return told, False


async def _prune(desk: Session, old: Old, course: Paging) -> tuple[Told, bool]:
    batches = set()
    async with removal(desk, course) as remove:
        async for batch_id, jobs in old.pages(remove.ledger):
            if not jobs:
                await remove.seal(batch_id)
                continue
            batches.add(batch_id)
            await (remove.delete(jobs) if old.rows else remove.erase(jobs))
    return _sums(remove, len(batches)), remove.redis_missed


def _sums(remove: Removal, batches: int) -> Told:
    gone = remove.deleted
    costs = [deleted.cost_usd for deleted in gone]
    cost_usd = None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))
    return Told(
        jobs=remove.erased + sum(len(one.runs) for one in gone),
        batches=batches,
        attempts=sum(one.attempts for one in gone),
        input_tokens=sum(one.input_tokens for one in gone),
        output_tokens=sum(one.output_tokens for one in gone),
        cost_usd=None if cost_usd is None else format(cost_usd.normalize(), "f"),
    )
