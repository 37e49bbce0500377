"""Batches: what waits together is sent together, and each policy says what becomes of a send that failed."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tasks.errors import LedgerError, LedgerUnavailable, SchemaMismatch, Unstorable
from tests.virtual_time import VirtualTimeLoop
from worker.batching import BATCH_ROWS, Batcher, OnError


class Table:
    """Keeps rows; negative ones are unstorable, odd ones above 1,000 refused; the first ``away`` sends fail."""

    def __init__(self, away: int = 0, error: Exception | None = None) -> None:
        self.sends: list[list[int]] = []
        self.rows: list[int] = []
        self._away = away
        self._error = error or LedgerUnavailable("away")

    async def send(self, rows: Sequence[int]) -> list[int]:
        self.sends.append(list(rows))
        await asyncio.sleep(0)
        if self._away:
            self._away -= 1
            raise self._error
        if bad := [row for row in rows if row < 0]:
            raise Unstorable(f"can't keep {bad}")
        if any(row > 1000 and row % 2 for row in rows):
            raise LedgerError("an error nobody knows")
        self.rows.extend(rows)
        return [row * 10 for row in rows]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Pauses between tries take no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner


pytestmark = pytest.mark.usefixtures("runner")


async def test_rows_that_wait_together_share_a_send() -> None:
    table = Table()
    batcher = Batcher("rows", table.send)
    answers = await asyncio.gather(*(batcher.send(row) for row in range(120)))

    assert answers == [row * 10 for row in range(120)]
    assert [len(rows) for rows in table.sends] == [BATCH_ROWS, BATCH_ROWS, 20]


async def test_one_bad_row_fails_alone() -> None:
    table = Table()
    batcher = Batcher("rows", table.send)
    rows = [row if row != 37 else -37 for row in range(50)]
    answers = await asyncio.gather(*(batcher.send(row) for row in rows), return_exceptions=True)

    assert [at for at, answer in enumerate(answers) if isinstance(answer, Unstorable)] == [37]
    assert sorted(table.rows) == [row for row in range(50) if row != 37]
    assert len(table.sends) <= 2 * 6 + 1  # halving 50 rows


@pytest.mark.parametrize("error", [LedgerUnavailable("away"), LedgerError("no rights"), SchemaMismatch("no table")])
async def test_rows_are_sent_again_after_any_error_of_the_ledger(error: Exception) -> None:
    table = Table(away=3, error=error)
    batcher = Batcher("rows", table.send)
    assert await asyncio.gather(*(batcher.send(row) for row in range(50))) == [row * 10 for row in range(50)]
    await batcher.close()

    assert sorted(table.rows) == list(range(50)), "each once"


async def test_a_row_that_is_refused_for_ever_holds_up_no_other() -> None:
    table = Table()
    batcher = Batcher("rows", table.send)
    refused = asyncio.create_task(batcher.send(1001))
    answers = await asyncio.gather(*(batcher.send(row) for row in range(500)))

    assert answers == [row * 10 for row in range(500)]
    assert not refused.done()
    refused.cancel()
    assert sorted(table.rows) == list(range(500))


async def test_a_caller_that_gives_up_does_not_take_its_row_back() -> None:
    table = Table(away=1)
    batcher = Batcher("rows", table.send)
    caller = asyncio.create_task(batcher.send(7))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    await batcher.close()

    assert table.rows == [7]


async def test_a_defect_in_one_row_reaches_its_caller_alone() -> None:
    async def send(rows: Sequence[int]) -> list[str]:
        return [str(60 // row) for row in rows]

    batcher = Batcher("rows", send)
    broken, *results = await asyncio.gather(*(batcher.send(row) for row in range(4)), return_exceptions=True)

    assert isinstance(broken, ZeroDivisionError)
    assert results == ["60", "30", "20"]


async def test_rows_that_raise_errors_are_sent_once() -> None:
    table = Table(away=1)
    batcher = Batcher("rows", table.send, on_error=OnError.RAISE, in_flight=1)
    first = await asyncio.gather(batcher.send(1), batcher.send(2), return_exceptions=True)

    assert [type(answer) for answer in first] == [LedgerUnavailable, LedgerUnavailable]
    assert await batcher.send(4) == 40
    assert table.sends == [[1, 2], [4]]


def test_no_send_begins_while_the_loop_ends() -> None:
    batches: list[Sequence[int]] = []

    async def send(rows: Sequence[int]) -> None:
        batches.append(rows)
        await asyncio.Event().wait()

    async def scenario() -> None:
        batcher = Batcher("rows", send, in_flight=1)
        # Two full batches, so that the second waits for the end of the first, and not for a timer.
        callers.extend(asyncio.create_task(batcher.send(row)) for row in range(2 * BATCH_ROWS))
        await asyncio.sleep(0)

    callers: list[asyncio.Task[None]] = []
    asyncio.run(scenario())

    assert batches == [list(range(BATCH_ROWS))]
