"""``nightdesk erase``: removes what jobs were asked and what was answered, for good."""

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from schemas.states import FINAL_STATES
from tasks.errors import InputError, NotFound
from tasks.poll import job_ids
from worker.cli import options
from worker.cli.actor import actor
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

NAMED = 5
"""Jobs that are not final, named one by one."""

_ANY_AGE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose content: jobs by id, a batch, or all of a tenant."""

    jobs: tuple[UUID, ...] = ()
    batch: UUID | None = None
    tenant: str | None = None

    async def pages(self, ledger: PostgresLedger) -> AsyncIterator[tuple[UUID, list[Kept]]]:
        """Its jobs in pages, each with its batch; raises ``NotFound``."""
        if self.jobs:
            async for page in _named(ledger, self.jobs):
                yield page
            return
        found = False
        async for batch_id in self._batches(ledger):
            found = True
            async for jobs in ledger.erasure.kept_jobs(batch_id, _ANY_AGE):
                yield batch_id, jobs
        if not found:
            raise NotFound(f"no jobs of a tenant {self.tenant!r}")

    async def _batches(self, ledger: PostgresLedger) -> AsyncIterator[UUID]:
        if self.batch is not None:
            yield (await ledger.reading.batch_status(self.batch)).batch_id
            return
        async for batch_id in ledger.erasure.kept_batches(self.tenant, _ANY_AGE, rows=True):
            yield batch_id


async def _named(ledger: PostgresLedger, ids: tuple[UUID, ...]) -> AsyncIterator[tuple[UUID, list[Kept]]]:
    found = await ledger.reading.views(ids)
    if missing := sorted(set(ids) - {view.job_id for view in found}):
        raise NotFound(f"no job {', '.join(map(str, missing))}")
    for view in found:
        kept = Kept(view.job_id, view.run, view.state, view.finished_at is not None, view.erased_at is not None)
        yield view.batch_id, [kept]


def command(
    *,
    job: Annotated[list[str] | None, typer.Option(metavar="ID", help="A job; may be given more than once.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="All jobs of a batch.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="All jobs of a tenant.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel first what is not final yet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> int:
    """Remove what jobs were asked and what was answered, for good; states, times and costs are kept.

    Questions, sources, answers, audit records, custom ids and keys go, from the ledger, from Redis and from this home.
    """
    if sum(chosen is not None for chosen in (job or None, batch, tenant)) != 1:
        raise InputError("give one of --job, --batch and --tenant")
    scope = Scope(tuple(dict.fromkeys(job_ids(job or []))), options.batch_id(batch) if batch else None, tenant)
    with session(load_settings(), writes=False) as desk:
        count = run_interruptible(_looked_at(desk, scope, cancel=cancel))
        _confirm(count, yes=yes)
        with progress(quiet=False) as shown, paging("erased", shown, again="The same command takes the rest") as course:
            course.total = count
            done, left = run_interruptible(_erase(desk, scope, course, cancel=cancel))
    if as_json:
        write_json({"erased": done.erased, "not_final": left, "batches": done.sealed, "unheard_calls": done.unheard})
    else:
        tell(
            f"{done.erased} of {count} jobs erased, the others were before; {done.sealed} batches are wholly erased now"
        )
        if done.unheard:
            tell(
                f"what became of {done.unheard} calls of these jobs is not known: an answer that a worker kept on its disk "
                "(spool in its NIGHTDESK_HOME) stays there until a worker starts in that home, and is dropped then"
            )
        if left:
            tell(f"{left} jobs came meanwhile and are not final: erase again")
    return INCOMPLETE if left or done.redis_missed or course.refused else OK


def _confirm(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"the content of {count} jobs would be removed for good: say --yes")
    typer.confirm(f"Remove the content of {count} jobs for good?", abort=True, err=True)


async def _looked_at(desk: Session, scope: Scope, *, cancel: bool) -> int:
    """How many jobs that are; raises ``InputError`` when some are not final and are not to be cancelled."""
    count, active = 0, 0
    named: list[str] = []
    async with desk.ledger() as ledger:
        async for _, jobs in scope.pages(ledger):
            count += len(jobs)
            for job in jobs:
                if job.state not in FINAL_STATES:
                    active += 1
                    named += [f"{job.job_id} ({job.state.value})"] if len(named) < NAMED else []
    if active and not cancel:
        more = f" and {active - len(named)} more" if active > len(named) else ""
        raise InputError(
            f"{active} of {count} jobs are not final: {', '.join(named)}{more}; wait for them, or say --cancel. "
            "Nothing was erased"
        )
    return count


async def _erase(desk: Session, scope: Scope, course: Paging, *, cancel: bool) -> tuple[Removal, int]:
    left = 0
    async with removal(desk, course) as remove:
        last: UUID | None = None
        async for batch_id, jobs in scope.pages(remove.ledger):
            if last not in {None, batch_id}:
                await remove.seal(last)
            last = batch_id
            active = {job.job_id for job in jobs if job.state not in FINAL_STATES}
            if active and cancel:
                # What ended by itself meanwhile is final all the same.
                await remove.ledger.actions.cancel(
                    sorted(active), actor(), lambda page: course.refused.update(page.refused)
                )
                active &= course.refused.keys()
            left += len(active)
            await remove.erase(job for job in jobs if job.job_id not in active)
        if last is not None:
            await remove.seal(last)
    return remove, left
