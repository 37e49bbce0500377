"""Group commit: what waits together is written together, and one bad row fails alone."""

import asyncio
from collections.abc import Sequence

import pytest

from tasks.errors import LedgerUnavailable, Unstorable
from worker.ledger import group_commit
from worker.ledger.group_commit import GROUP_ROWS, GroupCommit


class Table:
    """Keeps rows; negative ones are unstorable; the first ``away`` statements find it unreachable."""

    def __init__(self, away: int = 0) -> None:
        self.statements: list[list[int]] = []
        self.rows: list[int] = []
        self._away = away

    async def commit(self, rows: Sequence[int]) -> list[int]:
        self.statements.append(list(rows))
        await asyncio.sleep(0)
        if self._away:
            self._away -= 1
            raise LedgerUnavailable("away")
        if bad := [row for row in rows if row < 0]:
            raise Unstorable(f"can't keep {bad}")
        self.rows.extend(rows)
        return [row * 10 for row in rows]


def test_rows_that_wait_together_share_a_statement() -> None:
    async def story() -> Table:
        table = Table()
        group = GroupCommit("rows", table.commit)
        answers = await asyncio.gather(*(group.put(row) for row in range(120)))
        assert answers == [row * 10 for row in range(120)]
        return table

    table = asyncio.run(story())

    assert [len(rows) for rows in table.statements] == [GROUP_ROWS, GROUP_ROWS, 20]


def test_one_bad_row_fails_alone() -> None:
    async def story() -> tuple[Table, list[int | BaseException]]:
        table = Table()
        group = GroupCommit("rows", table.commit)
        rows = [row if row != 37 else -37 for row in range(50)]
        return table, await asyncio.gather(*(group.put(row) for row in rows), return_exceptions=True)

    table, answers = asyncio.run(story())

    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(answers[37], Unstorable)
    assert len(failed) == 1
    assert sorted(table.rows) == [row for row in range(50) if row != 37]
    assert len(table.statements) <= 2 * 6 + 1  # halving 50 rows


def test_rows_wait_while_the_ledger_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETRY_PAUSE", group_commit.GROUP_WAIT)

    async def story() -> Table:
        table = Table(away=3)
        assert await GroupCommit("rows", table.commit).put(1) == 10
        return table

    assert len(asyncio.run(story()).statements) == 4


def test_a_caller_that_gives_up_does_not_take_its_row_back() -> None:
    async def story() -> Table:
        table = Table()
        group = GroupCommit("rows", table.commit)
        caller = asyncio.create_task(group.put(7))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await group.close()
        return table

    assert asyncio.run(story()).rows == [7]


def test_a_broken_statement_reaches_all_its_callers_and_the_next_group_goes_on() -> None:
    async def story() -> tuple[list[int | BaseException], int]:
        broken = True

        async def commit(rows: Sequence[int]) -> list[int]:
            await asyncio.sleep(0)
            if broken:
                raise RuntimeError("oops")
            return list(rows)

        group = GroupCommit("rows", commit)
        first = await asyncio.gather(group.put(1), group.put(2), return_exceptions=True)
        broken = False
        return first, await group.put(3)

    first, later = asyncio.run(story())

    assert [type(answer) for answer in first] == [RuntimeError, RuntimeError]
    assert later == 3
