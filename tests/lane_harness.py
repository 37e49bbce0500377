"""Jobs of the step generate in one process over a real ledger: their calls go to a stub, at once or in its batches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from schemas.generation import Lane
from schemas.job import JobRequest
from schemas.states import Step
from tasks.check import Check
from tasks.generate import Generate
from tasks.grounding.judge.call import Judge
from tasks.grounding.judge.lane import JudgeLane
from tasks.lanes.choice import LaneChooser, LaneTerms
from tasks.lanes.parking import Parking
from tasks.ports.remote_batches import Gathering
from tests.builders import make_batch, make_jobs
from tests.contract.situations import LEASE
from tests.fakes.inline import Inline
from tests.fakes.quiet import paid_calls
from tests.lent_ledger import KeptLedger
from tests.servers import advance_clock
from tests.stub.server import Stub
from worker.lanes.background import BackgroundLane
from worker.lanes.collection import BatchLane
from worker.lanes.pace import LanePace
from worker.lanes.parked_calls import parked_together
from worker.lanes.settlement import Settlement
from worker.ledger.postgres import PostgresLedger
from worker.process.journal import LedgerJournal
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

MANY = 10_000

PACE = LanePace(Gathering(timedelta(0), timedelta(0)), first_look=timedelta(0), keep_for=timedelta(seconds=5))

_CALLS = """
SELECT a.lane, a.outcome, count(*)::int AS calls, sum(a.cost_usd) AS cost_usd FROM attempt a GROUP BY 1, 2 ORDER BY 1, 2
"""


@dataclass
class LaneHarness:
    """The parts of a worker that choose, park, send, collect and move calls; every step is taken by hand."""

    url: str
    ledger: PostgresLedger
    stub: Stub
    terms: LaneTerms
    provider: str

    def __post_init__(self) -> None:
        self.providers = ConfiguredProviders(
            Settings(provider=self.provider),
            {
                "OPENAI_API_KEY": "test-key",
                "OPENAI_BASE_URL": f"{self.stub.url}/v1",
                "ANTHROPIC_API_KEY": "test-key",
                "ANTHROPIC_BASE_URL": self.stub.url,
            },
        )
        self.journal = LedgerJournal(self.ledger)
        self.calls = paid_calls(self.journal)
        self.settlement = Settlement(self.ledger.queue, self.journal, self.calls, self.providers, lambda _: None)
        self.lane = self.new_lane()
        self.background = BackgroundLane(self.ledger.remote_batches, self.settlement, self.chooser(), PACE)
        parked_calls = parked_together("parked calls", self.ledger.remote_batches.park)
        self.responses = parked_together("background responses", self.ledger.remote_batches.park_responses)
        self.parking = Parking(parked_calls.send, self.responses.send, self.journal)
        self._ends = parked_calls.close, self.responses.close, self.journal.close, self.providers.close

    def chooser(self) -> LaneChooser:
        """A chooser that knows no times yet."""
        return LaneChooser(self.providers, self.ledger.remote_batches.times, self.terms)

    def new_lane(self) -> BatchLane:
        """The lane as another worker has it."""
        return BatchLane(self.ledger.remote_batches, self.settlement, self.chooser(), PACE)

    async def close(self) -> None:
        """Ends what is under way."""
        for end in self._ends:
            await end()

    async def submit(
        self, *requests: JobRequest, time_left: timedelta | None = None, window: str | None = None
    ) -> list[UUID]:
        """Submits jobs in a batch whose deadline is so far off."""
        deadline = None if time_left is None else await self.now() + time_left
        batch = make_batch(deadline=deadline, window=window)
        receipt = await self.ledger.submission.submit(batch, [make_jobs(*requests)])
        return list(receipt.job_ids)

    async def generate(self) -> None:
        """Takes all jobs that can go on through the step: they are answered, or parked."""
        await self.ledger.duties.promote(MANY)
        step = Generate(
            self.ledger.queue, self.journal, self.calls, self.providers, lambda _: None,
            parking=self.parking, lanes=self.chooser(),
        )  # fmt: skip
        jobs = await self.ledger.queue.lease(Step.GENERATE, "w", LEASE, MANY)
        await asyncio.gather(*map(step.run, jobs))

    async def check(self) -> None:
        """Takes all jobs that can go on through their check: they become final, or wait for their judge in a batch."""
        await self.ledger.duties.promote(MANY)
        judge = Judge(self.ledger.queue, self.calls, self.providers, lane=JudgeLane(self.chooser(), self.parking))
        jobs = await self.ledger.queue.lease(Step.CHECK, "w", LEASE, MANY)
        step = Check(self.ledger.queue, self.journal, Inline(), judge)
        await asyncio.gather(*map(step.run, jobs))

    async def look(self, lane: BatchLane | None = None) -> None:
        """Looks after batches and responses until nothing is left to do at once."""
        await self.forward(timedelta(seconds=10))
        for _ in range(3):
            await (lane or self.lane).turn()
            await self.background.turn()
            await self.forward(timedelta(seconds=10))

    async def now(self) -> datetime:
        """The time by the ledger's clock."""
        (row,) = await self.rows("SELECT nightdesk_now() AS now")
        moment: datetime = row.now
        return moment

    async def forward(self, by: timedelta) -> None:
        """Moves the ledger's clock."""
        await asyncio.to_thread(advance_clock, self.url, by)

    async def rows(self, statement: str) -> Sequence[Any]:
        """Reads the database."""
        return await self.ledger._database.rows(statement)

    async def tally(self) -> dict[tuple[str, str], int]:
        """Number of calls by lane and outcome."""
        return {(row.lane, row.outcome or "open"): row.calls for row in await self.rows(_CALLS)}


@asynccontextmanager
async def lane_harness(url: str, stub: Stub, *, provider: str = "openai", **terms: Any) -> AsyncIterator[LaneHarness]:
    """A harness; its ledger keeps all invariants in the end."""
    async with KeptLedger(url) as ledger:
        harness = LaneHarness(url, ledger, stub, LaneTerms(**terms), provider)
        try:
            yield harness
        finally:
            await harness.close()
        violations = await ledger.inspection.violations()
        assert violations == [], violations


Scenario = Callable[[LaneHarness], Awaitable[None]]


def over(url: str, stub: Stub, scenario: Scenario, **terms: Any) -> None:
    """Run a scenario with a harness of its own."""

    async def work() -> None:
        async with lane_harness(url, stub, **{"unobserved": timedelta(hours=2), **terms}) as harness:
            await scenario(harness)

    asyncio.run(work())


def lane_jobs(count: int, lane: Lane = Lane.AUTO, **config: Any) -> list[JobRequest]:
    """Jobs with a question each."""
    return [
        JobRequest(
            query=f"When does desk {number} open?",
            context=[f"Desk number {number} opens at nine."],
            config={"lane": lane, "checkers": ["lexical"], **config},
        )
        for number in range(count)
    ]
