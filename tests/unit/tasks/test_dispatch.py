"""The duties of dispatch over the in-memory ledger, and what it does while Redis or the ledger is away."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from schemas.states import JobState, Step
from tasks import rescue, standin
from tasks.dispatch import MESSAGE_IDS, Dispatch, Pace
from tasks.errors import BrokerUnavailable, LedgerUnavailable
from tasks.rescue import Rescue
from tasks.standin import StandIn
from tests.builders import make_batch, make_config, make_final, make_jobs, make_request
from worker.ledger.memory import MemoryLedger

LEASE = timedelta(seconds=60)
READ = make_config(checkers=("structure", "lexical", "local"))


class Bell:
    """Remembers what it was told; away, it raises."""

    def __init__(self) -> None:
        self.hints: list[tuple[Step, list[UUID], bool]] = []
        self.published: dict[UUID, bytes] = {}
        self.away = False
        self.lost = False
        self.remembered = 0
        self.unread = 0

    def _reach(self) -> None:
        if self.away:
            raise BrokerUnavailable("away")

    async def hint(self, step: Step, job_ids: Sequence[UUID], *, urgent: bool = False) -> None:
        self._reach()
        self.hints.append((step, list(job_ids), urgent))

    async def waiting(self, step: Step) -> int:
        self._reach()
        return self.unread

    async def publish(self, results: Sequence[tuple[UUID, bytes]]) -> None:
        self._reach()
        self.published.update(results)

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        self._reach()

    async def lost_its_data(self) -> bool:
        self._reach()
        return self.lost

    async def remember(self) -> None:
        self._reach()
        self.lost = False
        self.remembered += 1


class Hall:
    """A ledger, a bell and the dispatch between them."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.bell = Bell()
        self.generate = SimpleNamespace(throttled=False)
        pace = Pace(publish_older_than=timedelta(0), check_backlog=3)
        feeds: Any = {Step.GENERATE: self.generate}
        self.local_served = True
        stand_in = StandIn(self.ledger, lambda: self.local_served, timedelta(seconds=30))
        self.dispatch = Dispatch(self.ledger, self.bell, Rescue(self.ledger, LEASE), stand_in, feeds, pace)

    async def submit(self, count: int, **request: Any) -> tuple[UUID, ...]:
        jobs = make_jobs(*(make_request(f"{n}?", **request) for n in range(count)))
        return (await self.ledger.submit(make_batch(), [jobs])).job_ids

    async def finish(self, count: int) -> list[UUID]:
        await self.submit(count)
        jobs = await self.ledger.lease(Step.GENERATE, "w", LEASE, count)
        await self.ledger.finish([make_final(job) for job in jobs])
        return [job.job_id for job in jobs]


def test_hints_go_out_in_messages_of_a_size_urgent_ones_apart() -> None:
    async def story() -> None:
        hall = Hall()
        await hall.submit(MESSAGE_IDS * 2 + 5)
        await hall.submit(3, priority=5)
        await hall.dispatch.tick()
        await hall.dispatch.tick()

        assert [(len(ids), urgent) for _, ids, urgent in hall.bell.hints] == [
            (3, True),
            (50, False),
            (50, False),
            (5, False),
        ]

    asyncio.run(story())


def test_messages_that_nobody_takes_are_not_piled_up() -> None:
    async def story() -> None:
        hall = Hall()
        await hall.submit(3)
        hall.bell.unread = 1_000
        await hall.dispatch.tick()
        assert hall.bell.hints == []
        hall.bell.unread = 10
        await hall.dispatch.tick()
        assert len(hall.bell.hints) == 1

    asyncio.run(story())


def test_results_are_published_once_and_again_when_redis_lost_them() -> None:
    async def story() -> None:
        hall = Hall()
        job_ids = await hall.finish(5)
        await hall.dispatch.tick()
        assert set(hall.bell.published) == set(job_ids)

        hall.bell.published.clear()
        await hall.dispatch.tick()
        assert hall.bell.published == {}

        hall.bell.lost = True
        await hall.dispatch.tick()
        assert set(hall.bell.published) == set(job_ids)
        assert hall.bell.remembered == 1

    asyncio.run(story())


def test_while_redis_is_away_the_ledgers_duties_go_on_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        hall = Hall()
        hall.bell.away = True
        job_ids = await hall.finish(2)
        late = await hall.submit(1, deadline=datetime.now(UTC) + timedelta(seconds=5))
        hall.ledger.advance(timedelta(seconds=10))
        await hall.dispatch.tick()
        await hall.dispatch.tick()
        (view,) = await hall.ledger.views(late)
        assert view.state is JobState.EXPIRED
        assert sum("Redis can't be reached" in record.message for record in caplog.records) == 1

        hall.bell.away = False
        await hall.dispatch.tick()
        assert set(hall.bell.published) == {*job_ids, *late}

    asyncio.run(story())


def test_generation_is_throttled_while_the_check_is_behind() -> None:
    async def story() -> None:
        hall = Hall()
        await hall.submit(4, response="An answer.")
        await hall.submit(2)
        await hall.dispatch.tick()

        assert hall.generate.throttled
        assert {step for step, _, _ in hall.bell.hints} == {Step.CHECK}

        await hall.ledger.lease(Step.CHECK, "w", LEASE, 4)
        await hall.submit(4, response="An answer.", config=READ)
        await hall.dispatch.tick()
        assert hall.generate.throttled, "the checks of the local model count, too"

        await hall.ledger.lease(Step.LOCAL, "w", LEASE, 4)
        await hall.dispatch.tick()
        assert not hall.generate.throttled
        assert {step for step, _, _ in hall.bell.hints} == set(Step)

    asyncio.run(story())


def test_jobs_for_the_local_model_are_hinted_to_those_who_have_it() -> None:
    async def story() -> None:
        hall = Hall()
        hall.local_served = False
        job_ids = await hall.submit(2, response="An answer.", config=READ)
        await hall.dispatch.tick()
        assert hall.bell.hints == [], "a message that nobody takes would lie in Redis for ever"

        hall.local_served = True
        await hall.dispatch.tick()
        assert hall.bell.hints == [(Step.LOCAL, list(job_ids), False)]

    asyncio.run(story())


def test_the_plain_check_stands_in_once_nobody_had_the_local_model_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(standin, "monotonic", lambda: clock[0])

    async def story() -> None:
        hall = Hall()
        hall.local_served = False
        duty = hall.dispatch.stand_in
        job_ids = await hall.submit(2, response="An answer.", config=READ)
        await hall.dispatch.tick()
        clock[0] += 29
        assert await duty.run() == []
        hall.local_served = True
        assert await duty.run() == []
        hall.local_served = False
        assert await duty.run() == [], "a worker was there: the time counts anew"
        clock[0] += 29
        assert await duty.run() == []
        assert [record.message.count("after 30 s") for record in caplog.records] == [1, 1]

        clock[0] += 1
        await hall.dispatch.tick()

        assert hall.bell.hints == [(Step.CHECK, list(job_ids), False)]
        assert sum("without it and end as partial" in record.message for record in caplog.records) == 1
        await hall.submit(1, response="Another.", config=READ)
        assert len(await duty.run()) == 1, "those that come later need not wait"
        assert len(caplog.records) == 3, "told once"

    asyncio.run(story())


def test_where_there_is_no_local_model_nothing_waits_for_one() -> None:
    async def story() -> None:
        ledger = MemoryLedger()
        duty = StandIn(ledger, lambda: False, timedelta(0))
        jobs = make_jobs(
            make_request("a?", response="An answer.", config=READ), make_request("b?", response="Another.")
        )
        await ledger.submit(make_batch(), [jobs])
        assert await duty.run() == [jobs[0].id]
        assert len(await ledger.lease(Step.CHECK, "w", LEASE, 9)) == 2

    asyncio.run(story())


def test_a_duty_that_breaks_does_not_keep_the_others_from_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        hall = Hall()
        job_ids = await hall.finish(1)

        async def breaks(limit: int) -> int:
            raise ZeroDivisionError

        hall.ledger.promote = breaks  # type: ignore[method-assign]
        await hall.dispatch.tick()

        assert set(hall.bell.published) == set(job_ids)
        assert "the duty _promote broke" in caplog.text

    asyncio.run(story())


def test_a_rescue_waits_until_the_ledger_was_reachable_for_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(rescue, "monotonic", lambda: clock[0])

    async def story() -> None:
        hall = Hall()
        hall.ledger.advance(timedelta(hours=1))
        await hall.submit(1)
        (job,) = await hall.ledger.lease(Step.GENERATE, "w", LEASE, 1)
        hall.ledger.advance(LEASE * 2)
        duty = Rescue(hall.ledger, LEASE)

        assert await duty.run() == []
        clock[0] += 59
        assert await duty.run() == []
        duty.broken()
        clock[0] += 59
        assert await duty.run() == []
        clock[0] += 60
        assert await duty.run() == [job.job_id]

    asyncio.run(story())


def test_an_outage_of_the_ledger_starts_the_wait_for_rescues_anew() -> None:
    async def story() -> None:
        hall = Hall()
        await hall.dispatch.tick()

        async def away(limit: int) -> int:
            raise LedgerUnavailable("away")

        hall.ledger.promote = away  # type: ignore[method-assign]
        hall.dispatch.rescue._reachable_since = 1.0
        await hall.dispatch.tick()

        assert hall.dispatch.rescue._reachable_since is None

    asyncio.run(story())
