"""Remembers what a judge said in a batch, so that a claim with the same evidence is asked about once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from schemas.grounding import ReusedFrom
from tasks.errors import LedgerError
from tasks.grounding.judge import JudgeReply, JudgeRequest, cacheable_claims, key_of, read_pairs, without_cached
from tasks.ports import CachedVerdict, Journal, Leased, NewVerdicts, VerdictQuery
from tasks.scheduling.batching import CpuBatcher

log = logging.getLogger(__name__)


@dataclass(slots=True)
class VerdictCache:
    """What the judges of this process's jobs said, known to all processes through the ledger.

    Only a word that counts is remembered, and a place of the ledger that can't be asked is as if nothing had been
    heard: then the judge is asked.
    """

    journal: Journal
    _asking: dict[tuple[UUID, bytes], asyncio.Event] = field(default_factory=dict)
    """Set when whoever asks about this key now has its answer, or has none."""

    @asynccontextmanager
    async def turn(self, job: Leased, question: JudgeRequest, judge: str) -> AsyncIterator[None]:
        """Let nobody else of this process ask about the same claims meanwhile.

        Waits for those who do now, for each claim once: a word that does not come, or does not count, is not waited
        for again. Who waits holds no turn, so nobody waits in a ring.
        """
        keys = [(job.batch_id, key) for key in _keys(job, question, judge)]
        waited: set[tuple[UUID, bytes]] = set()
        while busy := [key for key in keys if key in self._asking and key not in waited]:
            waited.update(busy)
            for others in {self._asking[key] for key in busy}:
                await others.wait()
        over = asyncio.Event()
        for key in keys:
            self._asking.setdefault(key, over)
        try:
            yield
        finally:
            for key in keys:
                if self._asking.get(key) is over:
                    del self._asking[key]
            over.set()

    async def recall(self, job: Leased, question: JudgeRequest, judge: str, thinking: CpuBatcher) -> JudgeRequest:
        """The question without the claims that this judge's word is known of in this batch."""
        keys = _keys(job, question, judge)
        if not keys:
            return question
        try:
            found = await self.journal.find_verdicts(VerdictQuery(job.batch_id, tuple(keys)))
        except LedgerError as error:
            log.warning("what was heard before for job %s can't be read; the judge is asked: %s", job.job_id, error)
            return question
        if not found:
            return question
        heard = [(keys[key], before) for key, before in found.items()]
        return await thinking.do(partial(_recalled, question, heard))

    async def tell(self, job: Leased, question: JudgeRequest, heard: JudgeReply, thinking: CpuBatcher) -> None:
        """Let others know what was heard now; returns when they do."""
        if heard.reply is None or heard.attempt_id is None:
            return
        keys = {at: key for key, positions in _keys(job, question, heard.judge).items() for at in positions}
        if not keys:
            return
        try:
            numbers = await thinking.do(partial(cacheable_claims, question, heard.reply))
            told = tuple((keys[question.asked.claims[number - 1]], number) for number in numbers)
            if told:
                await self.journal.store_verdicts(NewVerdicts(heard.attempt_id, told))
        except LedgerError as error:
            log.warning("what was heard for job %s can't be noted; others ask again: %s", job.job_id, error)
        except Exception:
            # The policy: an answer that was paid for is used, whether others hear of it or not.
            log.exception("what was heard for job %s is not remembered; others ask again", job.job_id)


def _keys(job: Leased, question: JudgeRequest, judge: str) -> Mapping[bytes, list[int]]:
    """The keys of the claims that are open and not known, with their positions; none where nothing is to be shared."""
    recheck = job.recheck.id if job.recheck is not None else None
    if job.recheck is not None and recheck is None:
        return {}
    keys: dict[bytes, list[int]] = {}
    for position in question.open:
        if position not in question.known:
            key = key_of(question.pairs[position].sha256, judge, question.prompt, recheck)
            keys.setdefault(key, []).append(position)
    return keys


def _recalled(question: JudgeRequest, heard: Sequence[tuple[Sequence[int], CachedVerdict]]) -> JudgeRequest:
    """Read what was said before with the sources of this question; a word that does not count here is not known.

    Args:
        question: what would be asked.
        heard: the positions of equal pairs, and where the word on them stands.
    """
    at: dict[UUID, dict[int, int]] = {}
    for positions, before in heard:
        at.setdefault(before.attempt_id, {})[before.number] = positions[0]
    replies = {before.attempt_id: before.reply for _, before in heard}
    said = {attempt: read_pairs(question, replies[attempt], numbers) for attempt, numbers in at.items()}
    known = {}
    for positions, before in heard:
        finding = said[before.attempt_id][before.number]
        if finding.verdict is not None:
            origin = ReusedFrom(job_id=before.job_id, attempt_id=before.attempt_id, number=before.number)
            known.update(dict.fromkeys(positions, replace(finding, reused_from=origin)))
    return without_cached(question, known) if known else question
