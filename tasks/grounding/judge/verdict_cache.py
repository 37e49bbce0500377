"""Caches a judge's verdicts within a batch, so that a claim with the same evidence is asked about once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from schemas.grounding import ReusedFrom
from tasks.errors import LedgerError
from tasks.grounding.judge.request import JudgeRequest, cacheable_claims, key_of, read_pairs, without_cached
from tasks.grounding.judge.verdicts import JudgeReply
from tasks.ports import CachedVerdict, Journal, Leased, NewVerdicts, VerdictQuery
from tasks.scheduling.batching import CpuBatcher

log = logging.getLogger(__name__)


@dataclass(slots=True)
class VerdictCache:
    """The verdicts of all judges, shared with other processes through the ledger.

    Only a verdict that counts is cached. Where the ledger can't be asked, the cache is empty: then the judge is asked.
    """

    journal: Journal
    _locks: dict[tuple[UUID, bytes], asyncio.Event] = field(default_factory=dict)
    """Set when the call that asks about this key now has its reply, or has none."""

    @asynccontextmanager
    async def locked(self, job: Leased, request: JudgeRequest, judge: str) -> AsyncIterator[None]:
        """Locks the claims of a request for other calls of this process.

        Waits for the calls that hold them now, for each claim once: a verdict that does not come, or does not count, is
        not waited for again. A waiting call holds no lock, so no two wait for each other.
        """
        keys = [(job.batch_id, key) for key in _keys(job, request, judge)]
        waited: set[tuple[UUID, bytes]] = set()
        while busy := [key for key in keys if key in self._locks and key not in waited]:
            waited.update(busy)
            for lock in {self._locks[key] for key in busy}:
                await lock.wait()
        over = asyncio.Event()
        for key in keys:
            self._locks.setdefault(key, over)
        try:
            yield
        finally:
            for key in keys:
                if self._locks.get(key) is over:
                    del self._locks[key]
            over.set()

    async def without_cached(self, job: Leased, request: JudgeRequest, judge: str, cpu: CpuBatcher) -> JudgeRequest:
        """The request without the claims with a cached verdict of this judge."""
        keys = _keys(job, request, judge)
        if not keys:
            return request
        try:
            cached = await self.journal.find_verdicts(VerdictQuery(job.batch_id, tuple(keys)))
        except LedgerError as error:
            log.warning("cached verdicts for job %s can't be read; the judge is asked: %s", job.job_id, error)
            return request
        if not cached:
            return request
        verdicts = [(keys[key], verdict) for key, verdict in cached.items()]
        return await cpu.do(partial(_with_verdicts, request, verdicts))

    async def store(self, job: Leased, request: JudgeRequest, reply: JudgeReply, cpu: CpuBatcher) -> None:
        """Caches the verdicts of a reply; returns when other processes can read them."""
        if reply.reply is None or reply.attempt_id is None:
            return
        keys = {at: key for key, positions in _keys(job, request, reply.judge).items() for at in positions}
        if not keys:
            return
        try:
            numbers = await cpu.do(partial(cacheable_claims, request, reply.reply))
            verdicts = tuple((keys[request.selection.claims[number - 1]], number) for number in numbers)
            if verdicts:
                await self.journal.store_verdicts(NewVerdicts(reply.attempt_id, verdicts))
        except LedgerError as error:
            log.warning("the verdicts of job %s can't be cached; other jobs ask again: %s", job.job_id, error)
        except Exception:
            # The policy: an answer that was paid for is used, whether it is cached or not.
            log.exception("the verdicts of job %s are not cached; other jobs ask again", job.job_id)


def _keys(job: Leased, request: JudgeRequest, judge: str) -> Mapping[bytes, list[int]]:
    """The keys of the open claims without a finding, with their positions; none where nothing is shared."""
    recheck = job.recheck.id if job.recheck is not None else None
    if job.recheck is not None and recheck is None:
        return {}
    keys: dict[bytes, list[int]] = {}
    for position in request.open:
        if position not in request.cached:
            key = key_of(request.pairs[position].sha256, judge, request.prompt, recheck)
            keys.setdefault(key, []).append(position)
    return keys


def _with_verdicts(request: JudgeRequest, cached: Sequence[tuple[Sequence[int], CachedVerdict]]) -> JudgeRequest:
    """Reads cached replies with the sources of this request; a verdict that does not count here is left out.

    Args:
        request: the request without cached verdicts.
        cached: the positions of equal pairs, with the place of the verdict on them.
    """
    at: dict[UUID, dict[int, int]] = {}
    for positions, verdict in cached:
        at.setdefault(verdict.attempt_id, {})[verdict.number] = positions[0]
    replies = {verdict.attempt_id: verdict.reply for _, verdict in cached}
    by_attempt = {attempt: read_pairs(request, replies[attempt], numbers) for attempt, numbers in at.items()}
    findings = {}
    for positions, verdict in cached:
        finding = by_attempt[verdict.attempt_id][verdict.number]
        if finding.verdict is not None:
            origin = ReusedFrom(job_id=verdict.job_id, attempt_id=verdict.attempt_id, number=verdict.number)
            findings.update(dict.fromkeys(positions, replace(finding, reused_from=origin)))
    return without_cached(request, findings) if findings else request
