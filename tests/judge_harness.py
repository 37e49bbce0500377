"""One answer in its check over a real ledger, with a judge that does what a test says."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.grounding import Claim, Grounding
from schemas.job import JobRequest
from schemas.model_call import ProviderSnapshot, SharedFrom
from schemas.states import Step
from tasks.calls.retry import RetryPolicy
from tasks.check import Check
from tasks.grounding.judge.call import Judge, JudgeOptions
from tasks.ports import CheapJudge, FinalJob, JobView, Leased, Limits, Turn
from tasks.prompting.messages import render
from tests.builders import closed_ok, make_answer, make_attempt, make_batch, make_jobs, to_check
from tests.fakes.inline import Inline
from tests.fakes.quiet import Unlimited, paid_calls
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers
from worker.process.journal import LedgerJournal

LEASE = timedelta(seconds=60)
SOURCE = (
    "The night desk opens at nine in the evening. The editor in chief is Ann Lee. The morning edition is printed in "
    "Port Lune at four, and lorries carry it to the villages of the valley before dawn."
)
PARAPHRASE = "The paper reaches the valley villages by lorry while it is still dark."
QUOTE = "lorries carry it to the villages of the valley before dawn"
WRONG = "Lorries also take the evening papers to the coast."
PLAIN = "The night desk opens at nine in the evening."


def supplied_answer(*claims: str, **config: Any) -> JobRequest:
    config.setdefault("checkers", ["structure", "lexical", "judge"])
    config.setdefault("judge", "scripted")
    return JobRequest(query="q", context=({"content": SOURCE},), response=" ".join(claims), config=config)


def verdict(claim: int, label: str, quote: str = "", passage: int = 1) -> dict[str, Any]:
    return {"claim": claim, "verdict": label, "passage": passage, "quote": quote}


def verdicts_json(*verdicts: dict[str, Any]) -> str:
    return json.dumps({"verdicts": verdicts})


def verdicts_reply(*verdicts: dict[str, Any]) -> Act:
    return answers(verdicts_json(*verdicts), protocol=AnswerProtocol.SEGMENTS)


class _Killed(BaseException):
    """The end of a process."""


@dataclass
class JudgeHarness:
    """One job in its check, with a judge that does what the test says."""

    judge: ScriptedProvider
    ledger: LentLedger = field(default_factory=LentLedger)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    finals: list[Leased] = field(default_factory=list)
    step: Step = Step.CHECK
    limits: Limits = field(default_factory=Unlimited)
    default_share: Decimal = Decimal(0)
    """Of the cost of an answer by the provider ``writer``, for the judge as the cheap model of its vendor."""
    least_usd: Decimal = Decimal(0)

    async def submit(self, request: JobRequest, **batch: Any) -> None:
        await self.ledger.submission.submit(make_batch(**batch), [make_jobs(request)])

    async def answer(self, text: str, cost_usd: Decimal, shared_from: SharedFrom | None = None) -> None:
        """Store a generated answer of the provider ``writer``."""
        (job,) = await self.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        attempt = make_attempt(job, reserved_usd=cost_usd)
        await self.ledger.attempts.open_attempts([attempt])
        snapshot = ProviderSnapshot(provider="writer", model_asked="writer-1", shared_from=shared_from)
        answer = make_answer(text, cost_usd=cost_usd, snapshot=snapshot)
        answer = replace(answer, prompt=render(job.request, answer.completion.protocol))
        closed = closed_ok(job, attempt, answer=answer, cost_usd=cost_usd, then=to_check(job))
        await self.ledger.attempts.close_attempts([closed])

    async def lease(self) -> Leased:
        await self.ledger.duties.promote(10)
        (job,) = await self.ledger.queue.lease(self.step, "w", LEASE, 1)
        return job

    async def check(self, job: Leased) -> None:
        journal = LedgerJournal(self.ledger)
        calls = paid_calls(journal, self.policy, self.limits)
        registry = Registry(self.judge, cheap={"writer": CheapJudge(Turn(self.judge.name), "none", self.least_usd)})
        options = JudgeOptions(max_tokens=500, default_share=self.default_share)
        judge = Judge(self.ledger.queue, calls, registry, options)
        check = Check(self.ledger.queue, journal, Inline(), judge)
        check.desk = replace(check.desk, pack=self._pack)
        await check.run(job)
        await journal.close()

    async def killed_before(self, verb: str) -> None:
        """Check a job until its process dies before it says this to the ledger, and have it rescued."""

        async def dies(*_: object) -> None:
            raise _Killed

        store = self.ledger.queue if verb == "finish" else self.ledger.cache
        method = getattr(store, verb)
        setattr(store, verb, dies)
        with pytest.raises(_Killed):
            await self.check(await self.lease())
        setattr(store, verb, method)
        self.ledger.advance(LEASE * 2)
        await self.ledger.duties.rescue(10, None)

    def _pack(self, final: FinalJob) -> FinalJob:
        """Keeps each job as it is when its result is packed for publishing."""
        self.finals.append(final.job)
        return final

    async def view(self) -> JobView:
        (batch,) = await self.ledger.reading.batches(1)
        (view,) = [view async for view in self.ledger.reading.batch_views(batch.batch_id)]
        return view

    async def outcomes(self) -> list[tuple[str, str | None, bool]]:
        detail = await self.ledger.reading.job_detail((await self.view()).job_id)
        return [(attempt["purpose"], attempt["outcome"], attempt["spent"]) for attempt in detail.attempts]

    async def finish(self) -> JobView:
        for _ in range(300):
            if (view := await self.view()).finished_at or view.held_reason:
                return view
            await self.ledger.duties.promote(10)
            for job in await self.ledger.queue.lease(self.step, "w", LEASE, 1):
                await self.check(job)
            self.ledger.advance(timedelta(minutes=6))
        raise AssertionError("it never ends")


def judge_harness(*acts: Act, **settings: Any) -> JudgeHarness:
    return JudgeHarness(ScriptedProvider(*acts), **settings)


def check_answer(request: JobRequest, *acts: Act, **settings: Any) -> tuple[JudgeHarness, JobView]:
    """Check one answer to its end."""
    harness = judge_harness(*acts, **settings)

    async def scenario() -> JobView:
        await harness.submit(request)
        return await harness.finish()

    return harness, asyncio.run(scenario())


def grounding_of(view: JobView) -> Grounding:
    assert view.record is not None
    assert view.record.grounding is not None
    return view.record.grounding


def claims_of(view: JobView) -> list[Claim]:
    return list(grounding_of(view).claims)
