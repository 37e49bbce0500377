"""Facts of another clause, row, time or unit than a claim says, limits, roles and conditions that it turns round, and denials that it lacks."""

import pytest

from tasks.grounding.tables import read_tables
from tests.unit.tasks.clause_facts import CLAUSES, DENIED, KAYAKS, LIMITS, RATES, ROWS
from tests.unit.tasks.condition_facts import CONDITIONS
from tests.unit.tasks.differences import Change
from tests.unit.tasks.role_facts import ROLES
from tests.unit.tasks.test_conflicts import compare

CHANGES = [*CLAUSES, *ROWS, *RATES, *LIMITS, *DENIED, *ROLES, *CONDITIONS]
WRONG = [change for change in CHANGES if change.kind]
RIGHT = [change for change in CHANGES if not change.kind]


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.claim)
def test_a_fact_of_another_place_is_found(change: Change) -> None:
    different, _ = compare(change.source, change.claim, change.language)
    assert change.kind in {difference.kind.value for difference in different}


@pytest.mark.parametrize("change", RIGHT, ids=lambda change: change.claim)
def test_a_fact_of_the_same_place_is_right(change: Change) -> None:
    assert compare(change.source, change.claim, change.language)[0] == []


def test_a_wrong_row_shows_the_cell_of_the_right_one() -> None:
    (difference, *_), _ = compare(KAYAKS, "The weight of the Heron is 19 kg.", "en")
    assert (difference.claim_words, difference.source_words) == ("19 kg", "27")
    assert KAYAKS[difference.start : difference.end] == "27"


def test_a_table_without_heads_is_none() -> None:
    assert read_tables("| Otter | 19 |\n| Heron | 27 |") == ()
    (table,) = read_tables(KAYAKS)
    assert [head.text for head in table.heads] == ["Boat", "Length (m)", "Weight (kg)", "Hire per day", "Places"]
    assert [cell.text for cell in table.rows[2]] == ["Heron", "5.1", "27", "39", "1"]


def test_a_table_without_borders_and_rule_is_one() -> None:
    text = "Before.\n\n | Load | Time\nCotton | 7 kg | 2 h\nWool | 1.5 kg | 45 min\n\nA | B is no table."
    (table,) = read_tables(text)
    assert [cell.text for cell in table.heads] == ["", "Load", "Time"]
    assert [[text[cell.start : cell.end] for cell in row] for row in table.rows] == [
        ["Cotton", "7 kg", "2 h"],
        ["Wool", "1.5 kg", "45 min"],
    ]


def test_the_place_of_a_cell_is_that_of_its_text() -> None:
    (table,) = read_tables(KAYAKS)
    assert all(KAYAKS[cell.start : cell.end] == cell.text for row in (table.heads, *table.rows) for cell in row)
