"""Prints where the jobs of a night went by the lane ``auto``, and their cost, beside the same jobs at list price.

    python -m bench.lanes [--jobs 300]

The ledger's clock is sped up: it moves ten minutes at a time while the stub's batches and responses end when the story says so. Calls go over
HTTP by the SDK; parking, batches, cancels, collection and money are those of a worker. A job is done when its answer is stored.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from schemas.generation import Lane
from schemas.states import Step
from tests.lane_harness import LaneHarness, lane_harness, lane_jobs
from tests.servers import running_servers
from tests.stub.server import running_stub
from worker.providers.prices import LANE_SHARES

HOUR, STEP, DAY = timedelta(hours=1), timedelta(minutes=10), timedelta(days=1)
NEVER_S = 10**9

COLUMNS = ("provider_batch", "background", "background_2h", "standard")

_PAID = "SELECT job_id, lane, outcome, cost_usd FROM attempt"


@dataclass
class Story:
    """Some jobs of the night.

    Attributes:
        time_left: until their deadline.
        ends_after: time that their provider batch, or each of their responses, takes; None: it never ends.
        unobserved: expected time of a batch.
    """

    name: str
    lane: Lane
    time_left: timedelta | None
    ends_after: timedelta | None
    jobs: int
    unobserved: timedelta = 2 * HOUR
    ids: list[UUID] = field(default_factory=list)
    done_after: timedelta | None = None
    """When the last of them had its answer, or expired."""


def stories(jobs: int) -> list[Story]:
    """The night."""
    return [
        Story("8 h, batch ends after 1 h", Lane.AUTO, 8 * HOUR, HOUR, jobs),
        Story("8 h, batch stalls", Lane.AUTO, 8 * HOUR, None, jobs),
        Story("4 h, batch ends after 3 h 30", Lane.AUTO, 4 * HOUR, 3.5 * HOUR, jobs),
        Story("30 min", Lane.AUTO, HOUR / 2, HOUR, jobs),
        Story("no deadline, ends after 10 h", Lane.AUTO, None, 10 * HOUR, jobs),
        Story("8 h, named lane, batch stalls", Lane.PROVIDER_BATCH, 8 * HOUR, None, jobs),
        Story("20 h, response ends after 3 h", Lane.AUTO, 20 * HOUR, 3 * HOUR, jobs, DAY),
        Story("20 h, responses stall", Lane.AUTO, 20 * HOUR, None, jobs, DAY),
        Story("4 h, response ends after 1 h", Lane.AUTO, 4 * HOUR, HOUR, jobs, DAY),
        Story("4 h, responses stall", Lane.AUTO, 4 * HOUR, None, jobs, DAY),
        Story("8 h, standard", Lane.STANDARD, 8 * HOUR, None, jobs),
    ]


async def night(harness: LaneHarness, story: Story) -> None:
    """Lives through the night of one story, in steps of ten minutes."""
    remote = harness.stub.remote
    background = harness.stub.background
    remote.ends_after_s = background.ends_after_s = NEVER_S
    # As a batch is half done when it is cancelled, every second response is done when its cancel comes.
    background.late = 0.5
    before = set(remote.batches)
    story.ids = await harness.submit(*lane_jobs(story.jobs, story.lane), time_left=story.time_left)
    began, steps = await harness.now(), 0
    while True:
        await harness.generate()
        await harness.look()
        await harness.generate()
        await harness.ledger.duties.expire(10_000)
        views = await harness.ledger.reading.views(story.ids)
        if all(view.finished_at or view.step is not Step.GENERATE for view in views):
            story.done_after = await harness.now() - began
            return
        steps += 1
        await harness.forward(began + steps * STEP - await harness.now())
        if story.ends_after is not None and await harness.now() - began >= story.ends_after:
            for name in set(remote.batches) - before:
                if not remote.batches[name].cancelled:
                    remote.batches[name].ends_at = min(remote.batches[name].ends_at, 0.0)
            for response in background.responses.values():
                response.ends_at = min(response.ends_at, 0.0)


async def measure(url: str, story: Story) -> tuple[tuple[str, ...], int]:
    """A row of the table, and its answers that were paid for twice or jobs with the lane auto that have none."""
    with running_stub(lean=True) as stub:
        async with lane_harness(url, stub, unobserved=story.unobserved) as harness:
            await night(harness, story)
            row, late = await account(harness, story)
        return row, late + sum(max(0, count - 1) for count in stub.billed.values())


async def account(harness: LaneHarness, story: Story) -> tuple[tuple[str, ...], int]:
    """A row of the table, and the number of jobs with the lane auto that have no answer."""
    ids = set(story.ids)
    attempts = [row for row in await harness.rows(_PAID) if row.job_id in ids]
    answered = Counter(row.lane for row in attempts if row.outcome == "ok")
    cost = sum((row.cost_usd or Decimal(0) for row in attempts), Decimal(0))
    shares = {"provider_batch": Decimal("0.5"), "standard": Decimal(1), **LANE_SHARES}
    list_price = sum((row.cost_usd / shares[row.lane] for row in attempts if row.outcome == "ok"), Decimal(0))
    expired = story.jobs - sum(answered.values())
    minutes = round((story.done_after or timedelta(0)) / timedelta(minutes=1))
    row = (
        story.name, story.lane.value, *(str(answered[lane]) for lane in COLUMNS), str(expired),
        f"{minutes // 60}:{minutes % 60:02}", f"{cost:.4f}", f"{cost / list_price:.0%}" if list_price else "-",
    )  # fmt: skip
    return row, expired if story.lane is Lane.AUTO else 0


def show(rows: Sequence[tuple[str, ...]]) -> None:
    """Writes a table."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def main() -> int:
    """Reads the options and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="jobs of each row")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = [
        ("deadline", "lane", "batch", "8 h", "2 h", "at once", "expired", "after", "cost USD", "of list")
    ]
    broken = 0
    with running_servers() as servers:
        for story in stories(options.jobs):
            with servers.database() as url:
                row, mistakes = asyncio.run(measure(url, story))
            rows.append(row)
            broken += mistakes
    show(rows)
    sys.stdout.write(f"\n{broken} answers paid for twice, or jobs with the lane auto that missed their deadline\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
