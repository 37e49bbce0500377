"""Removes content wherever Nightdesk put it: the ledger, Redis and the spool of this home."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from schemas.model_call import total_usd
from schemas.states import FINAL_STATES
from tasks.errors import InputError, NotFound
from worker.ledger.postgres import PostgresLedger
from worker.ledger.removal import JobPage, StoredJob
from worker.operations.counts import count_of
from worker.operations.operator import JobPages, Operator, PublishedResults, published_results
from worker.process.spool import Spool, spool_folder, write_back

NAMED_JOBS = 5
"""Jobs that are not final, named one by one."""

_ANY_AGE = timedelta(0)


class ErasureScope(NamedTuple):
    """The jobs to erase: by id, of a batch, or all of a tenant."""

    jobs: tuple[UUID, ...] = ()
    batch: UUID | None = None
    tenant: str | None = None

    async def pages(self, ledger: PostgresLedger) -> AsyncIterator[JobPage]:
        """The jobs in pages, each with its batch; raises ``NotFound``."""
        if self.jobs:
            views = await ledger.reading.views(self.jobs)
            if missing := sorted(set(self.jobs) - {view.job_id for view in views}):
                raise NotFound(f"no job {', '.join(map(str, missing))}")
            for view in views:
                final, erased = view.finished_at is not None, view.erased_at is not None
                yield view.batch_id, [StoredJob(view.job_id, view.run, view.state, final, erased)]
            return
        batches = 0
        async for batch_id in _batches(ledger, self.batch, self.tenant, _ANY_AGE, rows=True):
            batches += 1
            async for jobs in ledger.erasure.job_pages(batch_id, _ANY_AGE):
                yield batch_id, jobs
        if not batches:
            raise NotFound(f"no jobs of a tenant {self.tenant!r}")


class PruneScope(NamedTuple):
    """The jobs to prune: final for longer than an age, of all batches, one batch or one tenant."""

    older_than: timedelta
    batch: UUID | None = None
    tenant: str | None = None
    rows: bool = False
    """Delete the jobs with all their rows, also those whose content is erased; else erase the content."""

    def pages(self, ledger: PostgresLedger) -> AsyncIterator[JobPage]:
        """The jobs in pages, each with its batch; a batch ends with an empty page."""
        batches = _batches(ledger, self.batch, self.tenant, self.older_than, rows=self.rows)
        return ledger.erasure.due_pages(batches, self.older_than, rows=self.rows)


async def _batches(
    ledger: PostgresLedger, batch_id: UUID | None, tenant: str | None, older_than: timedelta, *, rows: bool
) -> AsyncIterator[UUID]:
    if batch_id is not None:
        yield (await ledger.reading.batch_status(batch_id)).batch_id
        return
    async for each in ledger.erasure.old_batches(tenant, older_than, rows=rows):
        yield each


@dataclass(slots=True)
class Removal:
    """The counts of a removal, chunk by chunk; each is whole in the ledger, so the same call again does the rest."""

    erased: int = 0
    deleted: int = 0
    attempts: int = 0
    """Of the deleted jobs, as the tokens and the cost: nothing else holds these sums."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)
    """None: the price of a call is unknown."""
    batches: set[UUID] = field(default_factory=set)
    sealed: int = 0
    """Batches of which nothing is left but times and costs."""
    unknown_calls: int = 0
    """Calls of erased jobs whose answers may lie on the disk of another worker."""
    not_final: int = 0
    """Jobs that were not erased because they are not final."""
    redis_unreachable: bool = False

    @property
    def jobs(self) -> int:
        """Jobs erased and deleted."""
        return self.erased + self.deleted


async def survey(operator: Operator, scope: ErasureScope, *, cancel: bool) -> int:
    """Counts the jobs of a scope; raises ``InputError`` when some are not final and are not to be cancelled."""
    count, active = 0, 0
    names: list[str] = []
    async for _, jobs in scope.pages(operator.ledger):
        count += len(jobs)
        for job in jobs:
            if job.state not in FINAL_STATES:
                active += 1
                names += [f"{job.job_id} ({job.state.value})"] if len(names) < NAMED_JOBS else []
    if active and not cancel:
        more = f" and {active - len(names)} more" if active > len(names) else ""
        raise InputError(
            f"{active:,} of {count_of(count, 'job')} not final: {', '.join(names)}{more}; wait for them, or say --cancel. "
            "Nothing was erased"
        )
    return count


async def erase(operator: Operator, scope: ErasureScope, pages: JobPages, *, cancel: bool) -> Removal:
    """Erases the content of all final jobs of a scope; with ``cancel`` the others are cancelled first."""
    async with _eraser(operator, pages) as eraser:
        last: UUID | None = None
        async for batch_id, jobs in scope.pages(operator.ledger):
            if last not in {None, batch_id}:
                await eraser.seal(last)
            last = batch_id
            active = {job.job_id for job in jobs if job.state not in FINAL_STATES}
            if active and cancel:
                # What ended by itself meanwhile is final all the same.
                await operator.ledger.actions.cancel(
                    sorted(active), operator.name, lambda page: pages.refused.update(page.refused)
                )
                active &= pages.refused.keys()
            eraser.done.not_final += len(active)
            await eraser.erase(job for job in jobs if job.job_id not in active)
        if last is not None:
            await eraser.seal(last)
    return eraser.done


async def prune(operator: Operator, scope: PruneScope, pages: JobPages) -> Removal:
    """Erases the content of old jobs, or deletes them with all their rows."""
    async with _eraser(operator, pages) as eraser:
        async for batch_id, jobs in scope.pages(operator.ledger):
            if not jobs:
                await eraser.seal(batch_id)
                continue
            eraser.done.batches.add(batch_id)
            await (eraser.delete(jobs) if scope.rows else eraser.erase(jobs))
    return eraser.done


async def survey_old(operator: Operator, scope: PruneScope) -> Removal:
    """Counts the jobs and batches that ``prune`` would take, and removes nothing."""
    done = Removal()
    async for batch_id, jobs in scope.pages(operator.ledger):
        done.erased += len(jobs)
        done.batches |= {batch_id} if jobs else set()
    return done


@dataclass(slots=True)
class _Eraser:
    operator: Operator
    pages: JobPages
    results: PublishedResults
    done: Removal = field(default_factory=Removal)

    async def erase(self, jobs: Iterable[StoredJob]) -> None:
        """Erases final jobs; what is published of them goes also where the ledger had erased them before."""
        ledger, runs = self.operator.ledger, {job.job_id: job.run for job in jobs}
        changed = await ledger.erasure.erase(list(runs), self.operator.name, self.pages.add)
        self.done.erased += len(changed)
        self.done.unknown_calls += await ledger.erasure.uncertain_calls(list(runs))
        runs |= changed
        await self.results.delete(runs, texts=runs)

    async def delete(self, jobs: Iterable[StoredJob]) -> None:
        """Deletes final jobs with all their rows."""
        deleted = await self.operator.ledger.erasure.delete([job.job_id for job in jobs], self.pages.add)
        self.done.deleted += len(deleted.runs)
        self.done.attempts += deleted.attempts
        self.done.input_tokens += deleted.input_tokens
        self.done.output_tokens += deleted.output_tokens
        self.done.cost_usd = total_usd(self.done.cost_usd, deleted.cost_usd)
        await self.results.delete(deleted.runs, texts=deleted.runs)

    async def seal(self, batch_id: UUID) -> None:
        """Removes the texts of a batch itself, once none of its jobs has content."""
        self.done.sealed += await self.operator.ledger.erasure.seal(batch_id)


@asynccontextmanager
async def _eraser(operator: Operator, pages: JobPages) -> AsyncIterator[_Eraser]:
    """A removal; at its end the answers that dead workers left on disk here are written, or dropped where erased."""
    consequence = (
        f"results and streamed texts stay there for up to {operator.settings.results_kept_s:.0f} s after their "
        "job ended. 'nightdesk erase' again, when it is back, removes them at once"
    )
    async with published_results(operator, consequence) as results:
        eraser = _Eraser(operator, pages, results)
        yield eraser
        home = operator.settings.home
        spool = Spool(spool_folder(home, await operator.ledger.identity()))
        await write_back(spool, operator.ledger.attempts)
        spool.leave()
        eraser.done.redis_unreachable = results.unreachable
