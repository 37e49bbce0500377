"""Checks in the process that stored the answer: the same result as by the separate step, and what is left to that one."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from schemas.job import JobRequest
from schemas.states import JobState, Step
from tasks import check, generate
from tasks.calls.paid_call import PaidCalls
from tasks.calls.retry import RetryPolicy
from tasks.check import CHECK_BEHIND, DIRECT_REQUEST_BYTES, DIRECT_WAITING, Check, DirectCheck
from tasks.errors import LedgerUnavailable
from tasks.generate import Generate
from tasks.ports import Answered, JobView, Leased, LeaseKey
from tasks.prompting.messages import render
from tasks.scheduling.cpu_pieces import LoopPieces
from tasks.scheduling.feed import Feed
from tests.builders import make_batch, make_completion, make_jobs, make_request
from tests.fakes.ledger import MemoryLedger
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers
from worker.ledger.journal import LedgerJournal

LEASE = timedelta(seconds=60)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until something holds, for five seconds at most."""
    turned = asyncio.Event()
    async with asyncio.timeout(5):
        while not holds():
            asyncio.get_running_loop().call_later(0.001, turned.set)
            await turned.wait()
            turned.clear()


class Keys:
    """A keeper of leases."""

    def __init__(self) -> None:
        self.losses: dict[LeaseKey, Callable[[], None]] = {}

    def hold(self, key: LeaseKey, lost: Callable[[], None]) -> None:
        self.losses[key] = lost

    def release(self, key: LeaseKey) -> None:
        del self.losses[key]


@dataclass
class DirectHarness:
    """The feed of ``generate`` over the in-memory ledger, with the direct check behind it."""

    acts: tuple[Act, ...] = (answers(),)
    slots: int = 4
    backlog: int | None = 0
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    keys: Keys = field(default_factory=Keys)
    hints: list[Leased] = field(default_factory=list)
    finals: list[Leased] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = LedgerJournal(self.ledger)
        self.provider = ScriptedProvider(*self.acts)
        self.pieces = LoopPieces()
        self.check = Check(self.ledger.queue, self.journal, self.pieces, lambda job, _: self.finals.append(job))
        self.direct = DirectCheck(self.check, self.pieces, self.slots, None if self.backlog is None else self._count)
        self.generate = Generate(
            self.ledger.queue, self.journal, PaidCalls(self.journal, RetryPolicy(), lambda: 0.5),
            Registry(self.provider), self.hints.append, lambda job, _: self.finals.append(job), direct=self.direct,
        )  # fmt: skip
        self.checks = self._feed(Step.CHECK, self.direct.run)
        self.feed = self._feed(Step.GENERATE, self.generate.run, self.checks.take)

    def _feed(self, step: Step, work: Any, then: Callable[[Leased], None] | None = None) -> Feed:
        return Feed(
            step, slots=self.slots, worker="w", lease_for=LEASE, queue=self.ledger.queue, keeper=self.keys, run=work, then=then
        )  # fmt: skip

    async def _count(self, at_most: int) -> int:
        assert self.backlog is not None
        return min(self.backlog, at_most)

    async def submit(self, *requests: JobRequest) -> list[Any]:
        return list((await self.ledger.submission.submit(make_batch(), [make_jobs(*requests)])).job_ids)

    async def answer(self, *requests: JobRequest) -> list[JobView]:
        """Takes jobs as far as this process takes them."""
        ids = await self.submit(*requests)
        self.feed.start()
        await self.feed.admit(ids, urgent=False)
        await self.stop()
        return await self.ledger.reading.views(ids)

    async def stop(self, within: timedelta = timedelta(seconds=5)) -> None:
        await self.feed.drain(within)
        await self.checks.drain(within)
        await self.journal.close()


def test_a_job_ends_under_one_lease_with_no_hint() -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        (view,) = await harness.answer(make_request())

        assert (view.state, view.step) == (JobState.COMPLETED, Step.CHECK)
        assert harness.hints == []
        assert [job.job_id for job in harness.finals] == [view.job_id]
        assert harness.keys.losses == {}
        assert len(harness.provider.calls) == 1

    run(scenario())


def test_the_result_is_that_of_the_separate_step() -> None:
    async def scenario() -> None:
        text = "The desk opens at nine. [1] It closes at noon. [2]"
        direct, apart = DirectHarness(acts=(answers(text),)), DirectHarness(acts=(answers(text),))
        apart.generate.direct = None
        request = make_request(context=["The desk opens at nine.", "The desk closes at five."])
        (view,) = await direct.answer(request)
        (stored,) = await apart.answer(request)
        assert (stored.state, stored.step) == (JobState.AVAILABLE, Step.CHECK)
        (job,) = await apart.ledger.queue.lease(Step.CHECK, "w", LEASE, 1)
        journal = LedgerJournal(apart.ledger)
        await Check(apart.ledger.queue, journal, LoopPieces(), lambda *_: None).run(job)
        await journal.close()
        (other,) = await apart.ledger.reading.views([stored.job_id])

        assert view.record is not None
        assert other.record is not None
        differing = {"message_id": "", "timing_ms": None, "created_at": None, "job_id": None}
        left, right = (record.model_dump() | differing for record in (view.record, other.record))
        assert left == right
        assert (view.outcome, view.cost_usd) == (other.outcome, other.cost_usd)

    run(scenario())


@pytest.mark.parametrize("change", [{"round": 1}, {"rescues": 1}, {"request_bytes": DIRECT_REQUEST_BYTES + 1}])
def test_second_rounds_suspects_and_big_requests_are_left_to_the_separate_step(change: dict[str, int]) -> None:
    async def scenario() -> None:
        harness = DirectHarness(backlog=None)
        await harness.submit(make_request())
        (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        answered = Answered(b"{}", make_completion())

        assert harness.direct.takes(job, answered)
        assert not harness.direct.takes(replace(job, **change), answered)
        await harness.journal.close()

    run(scenario())


def test_a_busy_loop_leaves_answers_to_the_workers_of_the_check_until_those_are_behind() -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        await harness.submit(make_request())
        (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        answered = Answered(b"{}", make_completion())
        pieces = [asyncio.ensure_future(harness.pieces.do(lambda: None)) for _ in range(DIRECT_WAITING)]
        await asyncio.sleep(0)

        assert not harness.direct.takes(job, answered)
        assert harness.direct.takes(replace(job, priority=1), answered), "urgent answers wait for no other worker"
        harness.backlog = CHECK_BEHIND
        await harness.direct.look()
        assert harness.direct.takes(job, answered)
        harness.backlog = CHECK_BEHIND - 1
        await harness.direct.look()
        assert not harness.direct.takes(job, answered)
        await asyncio.gather(*pieces)
        assert harness.direct.takes(job, answered)
        await harness.journal.close()

    run(scenario())


def test_the_backlog_is_counted_only_after_answers_were_left() -> None:
    async def scenario() -> None:
        async def count(_: int) -> int:
            raise LedgerUnavailable("asked")

        harness = DirectHarness()
        harness.direct.count_backlog = count
        await harness.direct.look()
        await harness.journal.close()

    run(scenario())


@dataclass
class Renders:
    """Counts the prompts that are made; the first ``broken`` ones break."""

    broken: int = 0
    count: int = 0

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        if self.count <= self.broken:
            raise ZeroDivisionError("oops")
        return render(*arguments)


@pytest.mark.parametrize(
    ("begins", "broken", "renders", "state"),
    [
        ("later", 0, 1, JobState.AVAILABLE),
        # It has its slot before the loop had a quiet turn: its prompt is made at once, and not again.
        ("at once", 0, 1, JobState.AVAILABLE),
        ("later", 1, 2, JobState.AVAILABLE),
        ("later", 2, 2, JobState.FAILED),
    ],
)
def test_a_prompt_is_made_before_its_job_has_a_slot(
    monkeypatch: pytest.MonkeyPatch, begins: str, broken: int, renders: int, state: JobState
) -> None:
    counted = Renders(broken)
    monkeypatch.setattr(generate, "render", counted)

    async def scenario() -> None:
        harness = DirectHarness()
        harness.generate.direct, harness.generate.pieces = None, harness.pieces
        (job_id,) = await harness.submit(make_request())
        (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        take_on = harness.generate.prepare(job)
        if begins == "later":
            await until(lambda: not harness.pieces.waiting)
            assert counted.count == 1
        await take_on(replace(job, waited_ms=job.waited_ms + 1500))
        await until(lambda: not harness.pieces.waiting)
        await harness.stop()

        (view,) = await harness.ledger.reading.views([job_id])
        assert (view.state, counted.count) == (state, renders)
        if state is JobState.AVAILABLE:
            (later,) = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 1)
            assert later.stored is not None
            assert later.stored.timing_ms["queue"] == pytest.approx(job.waited_ms + 1500)
            assert later.stored.timing_ms["prompt"] > 0

    run(scenario())


def chains() -> int:
    return sum(isinstance(each, generate.FallbackChain) for each in gc.get_objects())


def test_a_job_given_back_with_its_prompt_leaves_nothing_to_the_search_for_garbage() -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        harness.generate.direct, harness.generate.pieces = None, harness.pieces
        await harness.submit(make_request())
        (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        take_on = harness.generate.prepare(job)
        await until(lambda: not harness.pieces.waiting)
        gc.collect()
        gc.disable()
        try:
            assert chains() == 1
            del take_on
            await asyncio.sleep(0)
            assert chains() == 0
        finally:
            gc.enable()
        await harness.stop()

    run(scenario())


@pytest.mark.parametrize("begins", [True, False])
def test_a_busy_loop_keeps_no_job_that_began_or_was_given_back_before_its_prompt_was_made(*, begins: bool) -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        harness.generate.direct, harness.generate.pieces = None, harness.pieces
        await harness.submit(make_request())
        (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        with harness.pieces.hold():
            take_on = harness.generate.prepare(job)
            assert harness.pieces.waiting == 1
            if begins:
                await take_on(job)
            else:
                harness.generate.forget(job)
            assert harness.pieces.waiting == 0
        await harness.stop()

    run(scenario())


def test_no_check_begins_while_a_call_is_opened() -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        harness.generate.calls.opening = harness.pieces.hold
        gate, opens, checks = asyncio.Event(), [], []
        open_attempt = harness.journal.open_attempt

        async def open_later(attempt: Any) -> Any:
            opens.append(attempt)
            await gate.wait()
            return await open_attempt(attempt)

        harness.journal.open_attempt = open_later  # type: ignore[method-assign]
        ids = await harness.submit(make_request())
        harness.feed.start()
        await harness.feed.admit(ids, urgent=False)
        await until(lambda: bool(opens))
        check_other = asyncio.ensure_future(harness.pieces.do(lambda: checks.append(len(harness.provider.calls))))
        for _ in range(20):
            await asyncio.sleep(0)
        assert checks == []
        gate.set()
        await check_other
        await until(lambda: len(harness.finals) == 1)
        await harness.stop()
        assert len(checks) == 1

    run(scenario())


def test_answers_keep_their_slots_of_generate_while_there_is_no_room_for_their_check() -> None:
    async def scenario() -> None:
        harness = DirectHarness(slots=2, backlog=None)
        gate = asyncio.Event()
        check_answer = harness.check.run

        async def check_later(job: Leased) -> None:
            await gate.wait()
            await check_answer(job)

        harness.check = harness.direct.check = Gated(check_later)  # type: ignore[assignment]
        ids = await harness.submit(*(make_request(f"{n}?", priority=1) for n in range(6)))
        harness.feed.start()
        await harness.feed.admit(ids[:1], urgent=True)
        admitting = asyncio.create_task(harness.feed.admit(ids[1:], urgent=True))
        await until(lambda: (harness.checks.in_use, harness.feed.in_use, len(harness.provider.calls)) == (2, 3, 5))
        assert len(harness.provider.calls) == 5, "no call for what can't be checked"
        gate.set()
        await admitting
        await until(lambda: len(harness.finals) == 6)
        await harness.stop()

    run(scenario())


def test_an_urgent_answer_waits_for_no_other_check() -> None:
    async def scenario() -> None:
        harness = DirectHarness(backlog=None)
        gate = asyncio.Event()

        async def check_later(job: Leased) -> None:
            if job.priority <= 0:
                await gate.wait()
            await harness.check.run(job)

        harness.direct.check = Gated(check_later)  # type: ignore[assignment]
        ids = await harness.submit(*(make_request(f"{n}?") for n in range(8)))
        harness.feed.start()
        admitting = asyncio.create_task(harness.feed.admit(ids, urgent=False))
        await until(lambda: (harness.checks.in_use, harness.feed.in_use) == (4, 4))
        (urgent,) = await harness.submit(make_request("urgent?", priority=1))
        await harness.feed.admit([urgent], urgent=True)
        await until(lambda: [job.job_id for job in harness.finals] == [urgent])
        gate.set()
        await admitting
        await until(lambda: len(harness.finals) == 9)
        await harness.stop()

    run(scenario())


@dataclass
class Gated:
    """A check with another way to run."""

    run: Callable[[Leased], Coroutine[Any, Any, None]]


def test_a_stop_during_the_check_gives_the_job_to_another_worker() -> None:
    async def scenario() -> None:
        harness = DirectHarness()

        async def never(_: Leased) -> None:
            await asyncio.Event().wait()

        harness.direct.check = Gated(never)  # type: ignore[assignment]
        (job_id,) = await harness.submit(make_request())
        harness.feed.start()
        await harness.feed.admit([job_id], urgent=False)
        await until(lambda: harness.checks.in_use == 1)
        await harness.stop(within=timedelta(0))

        (view,) = await harness.ledger.reading.views([job_id])
        assert (view.state, view.step) == (JobState.AVAILABLE, Step.CHECK)
        (again,) = await harness.ledger.queue.lease(Step.CHECK, "w2", LEASE, 1)
        assert again.stored is not None
        assert len(harness.provider.calls) == 1

    run(scenario())


def test_a_lease_lost_during_the_check_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        harness = DirectHarness()
        began = asyncio.Event()

        async def never(_: Leased) -> None:
            began.set()
            await asyncio.Event().wait()

        harness.direct.check = Gated(never)  # type: ignore[assignment]
        (job_id,) = await harness.submit(make_request())
        harness.feed.start()
        await harness.feed.admit([job_id], urgent=False)
        await asyncio.wait_for(began.wait(), 5)
        ((_, lost),) = harness.keys.losses.items()
        await harness.ledger.actions.cancel([job_id], "ada")
        lost()
        await until(lambda: harness.checks.in_use == 0)
        await harness.stop()

        assert harness.finals == []
        (view,) = await harness.ledger.reading.views([job_id])
        assert view.state is JobState.CANCELLED

    run(scenario())


def test_a_broken_check_fails_the_job_and_keeps_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(check, "postprocess", breaks)

    async def scenario() -> None:
        harness = DirectHarness()
        (view,) = await harness.answer(make_request())
        assert view.state is JobState.FAILED
        assert view.record is not None
        assert view.record.output_raw

    run(scenario())
