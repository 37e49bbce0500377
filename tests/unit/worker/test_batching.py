"""Batches: what waits together is sent together, and each policy says what becomes of a send that failed."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tasks.errors import BrokerUnavailable, LedgerError, LedgerUnavailable, SchemaMismatch, Unstorable
from worker import batching
from worker.batching import BATCH_ROWS, Batcher, OnError

LONG = timedelta(seconds=60)


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


async def turns() -> None:
    """Let everything run that waits for nothing but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "RETRY_PAUSE", timedelta(milliseconds=10))


def test_rows_that_wait_together_share_a_send() -> None:
    async def scenario() -> Table:
        table = Table()
        batcher = Batcher("rows", table.send)
        answers = await asyncio.gather(*(batcher.send(row) for row in range(120)))
        assert answers == [row * 10 for row in range(120)]
        return table

    table = asyncio.run(scenario())

    assert [len(rows) for rows in table.sends] == [BATCH_ROWS, BATCH_ROWS, 20]


async def test_an_urgent_row_waits_for_no_send_of_others() -> None:
    batches: list[list[int]] = []
    gate = asyncio.Event()

    async def send(rows: Sequence[int]) -> list[int]:
        batches.append(list(rows))
        if 100 not in rows:
            await gate.wait()
        return [row * 10 for row in rows]

    batcher = Batcher("rows", send, rows=2)
    bulk = [asyncio.ensure_future(batcher.send(row)) for row in range(6)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(batcher.send(100, urgent=True), 10) == 1000
    # Both sends for all rows are busy, a third one would be full.
    assert batches == [[0, 1], [2, 3], [100]]
    gate.set()
    assert await asyncio.gather(*bulk) == [0, 10, 20, 30, 40, 50]


async def test_urgent_rows_go_together_and_before_what_waits_longer() -> None:
    batches: list[list[int]] = []
    gates = [asyncio.Event() for _ in range(4)]

    async def send(rows: Sequence[int]) -> list[int]:
        batches.append(list(rows))
        await gates[len(batches) - 1].wait()
        return list(rows)

    batcher = Batcher("rows", send, rows=3, in_flight=1)
    rows = [asyncio.ensure_future(batcher.send(row)) for row in range(6)]
    rows += [asyncio.ensure_future(batcher.send(row, urgent=True)) for row in (100, 101)]
    await turns()
    rows += [asyncio.ensure_future(batcher.send(row, urgent=True)) for row in (102, 103)]
    await turns()
    # The send of bulk rows and the one for urgent rows are busy.
    assert batches == [[0, 1, 2], [100, 101]]
    gates[0].set()
    await turns()
    assert batches[2:] == [[102, 103]]
    for gate in gates:
        gate.set()
    assert await asyncio.gather(*rows) == [0, 1, 2, 3, 4, 5, 100, 101, 102, 103]
    assert batches[3:] == [[3, 4, 5]]


def test_one_bad_row_fails_alone() -> None:
    async def scenario() -> tuple[Table, list[int | BaseException]]:
        table = Table()
        batcher = Batcher("rows", table.send)
        rows = [row if row != 37 else -37 for row in range(50)]
        return table, await asyncio.gather(*(batcher.send(row) for row in rows), return_exceptions=True)

    table, answers = asyncio.run(scenario())

    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(answers[37], Unstorable)
    assert len(failed) == 1
    assert sorted(table.rows) == [row for row in range(50) if row != 37]
    assert len(table.sends) <= 2 * 6 + 1  # halving 50 rows


@pytest.mark.parametrize("error", [LedgerUnavailable("away"), LedgerError("no rights"), SchemaMismatch("no table")])
def test_rows_are_sent_again_after_any_error_of_the_ledger(error: Exception) -> None:
    async def scenario() -> Table:
        table = Table(away=3, error=error)
        batcher = Batcher("rows", table.send)
        assert await asyncio.gather(*(batcher.send(row) for row in range(50))) == [row * 10 for row in range(50)]
        await batcher.close()
        return table

    table = asyncio.run(scenario())

    assert sorted(table.rows) == list(range(50)), "each once"


def test_a_row_that_is_refused_for_ever_holds_up_no_other() -> None:
    async def scenario() -> Table:
        table = Table()
        batcher = Batcher("rows", table.send)
        refused = asyncio.create_task(batcher.send(1001))
        answers = await asyncio.wait_for(asyncio.gather(*(batcher.send(row) for row in range(500))), 10)
        assert answers == [row * 10 for row in range(500)]
        assert not refused.done()
        refused.cancel()
        return table

    table = asyncio.run(scenario())

    assert sorted(table.rows) == list(range(500))


def test_a_caller_that_gives_up_does_not_take_its_row_back() -> None:
    async def scenario() -> Table:
        table = Table(away=1)
        batcher = Batcher("rows", table.send)
        caller = asyncio.create_task(batcher.send(7))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await batcher.close()
        return table

    assert asyncio.run(scenario()).rows == [7]


def test_a_defect_in_one_row_reaches_its_caller_alone() -> None:
    async def scenario() -> list[str | BaseException]:
        async def send(rows: Sequence[int]) -> list[str]:
            return [str(60 // row) for row in rows]

        batcher = Batcher("rows", send)
        return await asyncio.gather(*(batcher.send(row) for row in range(4)), return_exceptions=True)

    broken, *results = asyncio.run(scenario())

    assert isinstance(broken, ZeroDivisionError)
    assert results == ["60", "30", "20"]


def test_rows_that_raise_errors_are_sent_once_and_not_for_a_cancelled_caller() -> None:
    async def scenario() -> tuple[Table, list[int | BaseException]]:
        table = Table(away=1)
        batcher = Batcher("rows", table.send, on_error=OnError.RAISE, in_flight=1)
        first = await asyncio.gather(batcher.send(1), batcher.send(2), return_exceptions=True)
        cancelled_caller = asyncio.create_task(batcher.send(3))
        await asyncio.sleep(0)
        cancelled_caller.cancel()
        assert await batcher.send(4) == 40
        return table, first

    table, first = asyncio.run(scenario())

    assert [type(answer) for answer in first] == [LedgerUnavailable, LedgerUnavailable]
    assert table.sends == [[1, 2], [4]]


def test_no_send_begins_while_the_loop_ends() -> None:
    batches: list[Sequence[int]] = []

    async def send(rows: Sequence[int]) -> None:
        batches.append(rows)
        await asyncio.Event().wait()

    async def scenario() -> None:
        batcher = Batcher("rows", send, rows=1, in_flight=1)
        batcher.add(1)
        batcher.add(2)
        await asyncio.sleep(0)

    asyncio.run(scenario())

    assert batches == [[1]]


# ---- what is left to the sweep -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BrokerUnavailable("away"), ZeroDivisionError("oops")])
def test_rows_left_to_the_sweep_are_forgotten_and_the_next_still_arrive(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> list[int]:
        arrived: list[int] = []

        async def send(rows: Sequence[int]) -> None:
            if 1 in rows:
                raise error
            arrived.extend(rows)

        batcher = Batcher[int, None]("numbers", send, on_error=OnError.LEAVE, rows=2, wait=LONG)
        for number in range(5):
            batcher.add(number)
        await batcher.close()
        return arrived

    assert asyncio.run(scenario()) == [2, 3, 4]
    assert "2 numbers" in caplog.text


def test_the_queue_of_a_hanging_receiver_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[int]:
        arrived: list[int] = []
        gate = asyncio.Event()

        async def send(rows: Sequence[int]) -> None:
            await gate.wait()
            arrived.extend(rows)

        batcher = Batcher[int, None]("numbers", send, on_error=OnError.LEAVE, rows=10, in_flight=2, room=50, wait=LONG)
        for number in range(1000):
            batcher.add(number)
        await asyncio.sleep(0)
        gate.set()
        await batcher.close()
        for number in range(2000, 2010):
            batcher.add(number)
        await batcher.close()
        return arrived

    assert asyncio.run(scenario()) == [*range(50), *range(2000, 2010)]
    assert "950 numbers were left to the sweep" in caplog.text


def test_a_stop_does_not_wait_longer_than_it_may_for_a_receiver_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def send(rows: Sequence[int]) -> None:
            await asyncio.Event().wait()

        batcher = Batcher[int, None]("numbers", send, on_error=OnError.LEAVE, rows=1)
        for number in range(5):
            batcher.add(number)
        await asyncio.wait_for(batcher.close(timedelta(milliseconds=20)), 10)

    asyncio.run(scenario())
    assert "5 numbers are left to the sweep" in caplog.text
