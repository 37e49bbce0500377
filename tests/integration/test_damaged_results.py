"""Results of provider batches that can't be read, in part or at all: what can be is stored at once, the rest ends in time."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle
from typing import Any

import orjson
import pytest

from schemas.generation import Lane
from schemas.job import JobRequest
from tests.judge_harness import PARAPHRASE, QUOTE, SOURCE
from tests.lane_harness import LaneHarness, lane_jobs, over
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub
from worker.doctor.backlog import check_remote
from worker.operations.overview import Overview, batch_overview

JOBS = 4
MINUTE = timedelta(minutes=1)

Damage = Callable[[bytes], bytes]

PROVIDERS = ("openai", "anthropic")


def first_row(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """Change the first row."""

    def damage(content: bytes) -> bytes:
        first, _, rest = content.partition(b"\n")
        return orjson.dumps(change(orjson.loads(first))) + b"\n" + rest

    return damage


def bare(row: dict[str, Any]) -> dict[str, Any]:
    """A row with neither an answer nor an error."""
    return {"custom_id": row["custom_id"], "response": None, "error": None, "result": None}


ONE_ROW: dict[str, Damage] = {
    "the last line is cut": lambda content: content[: content.rstrip(b"\n").rfind(b"\n") + 60],
    "a row is no object": first_row(lambda row: [row["custom_id"]]),
    "a row is HTML": lambda content: b"<html>Bad gateway</html>\n" + content.partition(b"\n")[2],
    "a row has neither answer nor error": first_row(bare),
}
NO_ROW: dict[str, Damage] = {
    "a page in HTML": lambda _: b"<!doctype html>\n<html><body>Sign in</body></html>\n",
    "nothing": lambda _: b"",
}
HARMLESS: dict[str, Damage] = {
    "a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "CRLF and blank lines": lambda content: b"\n" + content.replace(b"\n", b"\r\n\r\n"),
    "other ends of lines in texts": lambda content: content.replace(b"opens", "opens\u2028".encode()),
    "a number that is none": lambda content: content.replace(b'"custom_id"', b'"logprob": NaN, "custom_id"'),
}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(JUDGE, "trusting", True)
    monkeypatch.setattr(JUDGE, "truth", {PARAPHRASE: QUOTE})
    with running_stub() as stub:
        stub.remote.ends_after_s = 10**6
        yield stub


async def in_a_batch(harness: LaneHarness, stage: str) -> None:
    """Have the calls of all jobs created as one batch, which has ended."""
    if stage == "answers":
        await harness.submit(*lane_jobs(JOBS, Lane.PROVIDER_BATCH))
        await harness.generate()
    else:
        config = {"lane": Lane.PROVIDER_BATCH, "checkers": ["structure", "lexical", "judge"], "judge": harness.provider}
        await harness.submit(
            *(
                JobRequest(query="q", context=[f"{SOURCE} Note {number}."], response=PARAPHRASE, config=config)
                for number in range(JOBS)
            )
        )
        await harness.check()
    assert await harness.tally() == {("provider_batch", "open"): JOBS}
    await harness.lane.turn()
    (batch,) = harness.stub.remote.batches.values()
    batch.ends_at = 0
    await harness.forward(MINUTE)


async def look_once(harness: LaneHarness) -> None:
    """One look at the batch that is due."""
    (batch,) = await harness.ledger.remote_batches.take_due(1, timedelta(seconds=30))
    await harness.lane._look_after(batch)
    await harness.forward(MINUTE)


async def look_until_it_ends(harness: LaneHarness) -> int:
    """The looks until the batch has ended."""
    for looks in range(1, 40):
        await look_once(harness)
        (row,) = await harness.rows("SELECT count(*) AS n FROM provider_batch WHERE ended_at IS NULL")
        if not row.n:
            return looks
    raise AssertionError("it never ends")


async def overview_of(harness: LaneHarness) -> Overview:
    (row,) = await harness.rows("SELECT id FROM batch")
    return await batch_overview(harness.ledger, row.id)


@pytest.mark.parametrize(
    ("how", "provider", "stage"),
    [*zip(ONE_ROW, cycle(PROVIDERS), cycle(("answers", "judges", "judges", "answers")), strict=False)],
)
def test_rows_that_can_be_read_are_stored_at_once(
    database_url: str, stub: Stub, stage: str, provider: str, how: str
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, stage)
        await look_once(harness)
        assert (await harness.tally())["provider_batch", "ok"] == JOBS - 1
        await look_until_it_ends(harness) if (await overview_of(harness)).remote else None
        calls = await harness.tally()
        assert calls["provider_batch", "ok"] == JOBS - 1
        assert sum(calls.values()) == JOBS
        assert calls.keys() - {("provider_batch", "ok")} <= {
            ("provider_batch", "unknown"),
            ("provider_batch", "error:bad_answer"),
        }
        (cost,) = await harness.rows("SELECT cost_usd, reserved_usd FROM attempt WHERE outcome <> 'ok'")
        assert cost.cost_usd == cost.reserved_usd, "it may have been billed"

    stub.remote.damage = ONE_ROW[how]
    over(database_url, stub, scenario, provider=provider)


@pytest.mark.parametrize(("how", "provider"), [*zip([*NO_ROW, 404, 403], cycle(PROVIDERS), strict=False)])
def test_results_that_stay_unreadable_end_as_unknown_and_are_told_at_once(
    database_url: str, stub: Stub, provider: str, how: str | int
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, "answers")
        await look_once(harness)
        overview = await overview_of(harness)
        (notice,) = overview.remote
        assert notice.trouble
        assert "looked at again at" in notice.event
        assert "expected" not in notice.event
        (finding,) = check_remote(overview.remote)
        assert (finding.check, notice.trouble in finding.what) == ("provider_batch_unreadable", True)
        assert overview.batches[0].provider_batches[0].trouble == notice.trouble

        assert await look_until_it_ends(harness) < 15
        assert await harness.tally() == {("provider_batch", "unknown"): JOBS}
        (states,) = await harness.rows("SELECT array_agg(DISTINCT state) AS all FROM job")
        assert states.all == ["scheduled"]

    if isinstance(how, int):
        stub.remote.refuses_content = how
    else:
        stub.remote.damage = NO_ROW[how]
    over(database_url, stub, scenario, provider=provider)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_that_can_be_read_again_are_stored(database_url: str, stub: Stub, provider: str) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, "answers")
        stub.remote.refuses_content = 500
        for _ in range(20):
            await look_once(harness)
        (notice,) = (await overview_of(harness)).remote
        assert notice.trouble
        stub.remote.refuses_content = 0
        await look_once(harness)
        assert await harness.tally() == {("provider_batch", "ok"): JOBS}

    over(database_url, stub, scenario, provider=provider)


@pytest.mark.parametrize(("how", "provider"), [*zip(HARMLESS, cycle(PROVIDERS), strict=False)])
def test_what_is_only_written_otherwise_is_read(database_url: str, stub: Stub, provider: str, how: str) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, "answers")
        await look_once(harness)
        assert await harness.tally() == {("provider_batch", "ok"): JOBS}

    stub.remote.damage = HARMLESS[how]
    over(database_url, stub, scenario, provider=provider)


def test_an_outage_ends_the_calls_after_a_day(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, "answers")
        stub.remote.refuses_content = 500
        await look_once(harness)
        await harness.forward(timedelta(hours=25))
        await look_once(harness)
        assert await harness.tally() == {("provider_batch", "unknown"): JOBS}

    over(database_url, stub, scenario)


@pytest.mark.parametrize(
    "damage",
    [
        r"UPDATE job_request SET head = '[]' WHERE job_id = (SELECT id FROM job ORDER BY position LIMIT 1)",
        "UPDATE provider_batch_call SET call = '{}' WHERE job_id = (SELECT id FROM job ORDER BY position LIMIT 1)",
    ],
)
def test_a_job_that_cannot_be_read_keeps_no_answer_of_its_batch_back(
    database_url: str, stub: Stub, damage: str
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness, "answers")
        await harness.rows(damage)
        await look_once(harness)
        assert await harness.tally() == {("provider_batch", "ok"): JOBS - 1, ("provider_batch", "unknown"): 1}
        kinds = await harness.rows("SELECT failure_kind, count(*)::int AS n FROM job WHERE state = 'failed' GROUP BY 1")
        assert [(row.failure_kind, row.n) for row in kinds] == [("unreadable", 1)]

    over(database_url, stub, scenario)
