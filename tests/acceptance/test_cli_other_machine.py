"""A batch is read whole from another machine than the one that handed it in: refused and repeated lines are in the ledger."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import Home, new_home, question, write_lines
from tests.servers import Servers


@pytest.fixture
def homes(servers: Servers, database_url: str) -> Iterator[tuple[Home, Home]]:
    """Two homes with the same PostgreSQL and Redis, as two machines have them."""
    prefix = f"elsewhere-{database_url.rpartition('_')[2]}:"
    urls = {"database_url": database_url, "redis_url": servers.redis_url, "key_prefix": prefix}
    with new_home(**urls) as home, new_home(**urls) as other:
        yield home, other


def test_another_machine_has_the_refused_and_the_repeated_lines_too(homes: tuple[Home, Home], tmp_path: Path) -> None:
    home, other = homes
    assert home.run("migrate").code == 0
    first = write_lines(tmp_path / "first.jsonl", [question(9, idempotency_key="nine")])
    holder = home.run("submit", first).out.strip()
    lines = [question(0), "{", question(9, idempotency_key="nine"), question(1, config={"moode": "x"})]
    file = write_lines(tmp_path / "in.jsonl", lines)
    batch = home.run("submit", file, "--key", "night").out.strip()

    results = [json.loads(line) for line in other.run("results", batch).out.splitlines()]

    assert [(result["position"], result["state"]) for result in results] == [
        (0, "available"), (1, "failed"), (2, "available"), (3, "failed")
    ]  # fmt: skip
    assert f"{file}, line 2: not valid JSON" in results[1]["failure"]["message"]
    assert "handed in before, as number 0" in results[2]["warnings"][0]
    assert (results[3]["custom_id"], results[3]["job_id"]) == ("q1", None)
    assert results == [json.loads(line) for line in home.run("results", batch).out.splitlines()]

    again = other.run("submit", file, "--key", "night")
    assert (again.code, again.out.strip()) == (1, batch)
    assert len(other.run("results", batch).out.splitlines()) == len(lines)

    # What repeats a job of another batch is waited for, too.
    assert [other.run("cancel", each).code for each in (batch, holder)] == [0, 0]
    watched = other.run("watch", batch)
    assert (watched.code, "2 lines of the input were not valid" in watched.err) == (1, True)
    assert home.run("erase", "--batch", batch, "--yes").code == 0
    assert [json.loads(line)["position"] for line in other.run("results", batch).out.splitlines()] == [0]
