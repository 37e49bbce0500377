"""The command line takes content back from everywhere it put it, and says so wherever the job is still asked for."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
import redis

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines
from tests.postgres import advance_clock, everything_in
from tests.servers import Servers
from worker.token_streams import key_of

CANARY = "canary-3b8e"


@pytest.fixture
def home(servers: Servers, database_url: str) -> Iterator[Home]:
    prefix = f"erase-{database_url.rpartition('_')[2]}:"
    with new_home(database_url=database_url, redis_url=servers.redis_url, key_prefix=prefix) as home:
        yield home


def keys_in(servers: Servers, home: Home) -> list[str]:
    with redis.Redis.from_url(servers.redis_url, decode_responses=True) as client:
        return [key for key in client.keys(f"{home.settings['key_prefix']}*") if "nightdesk:" in key or "meta" in key]


def canary_question(number: int) -> dict[str, object]:
    return question(number, query=f"How long is the warranty of {CANARY} {number}?", config={"role": CANARY})


def test_an_answered_batch_is_erased_everywhere(
    home: Home, servers: Servers, database_url: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    # The third is refused, and what is wrong with it is kept with the batch.
    input_path = write_lines(
        tmp_path / "in.jsonl", [canary_question(0), canary_question(1), {"query": CANARY, "config": {"mode": CANARY}}]
    )
    assert home.run("run", input_path, "-o", out, "--name", CANARY).code == 1
    first = read_lines(out)[0]
    batch, job = first["batch_id"], first["job_id"]
    assert CANARY in everything_in(database_url)
    with redis.Redis.from_url(servers.redis_url) as client:
        client.xadd(key_of(home.settings["key_prefix"], UUID(job), 1), {"kind": "text", "text": CANARY})
    assert sum(job in key for key in keys_in(servers, home)) == 2

    unsaid = home.run("erase", "--batch", batch)
    assert (unsaid.code, "say --yes" in unsaid.err) == (2, True)
    done = home.run("erase", "--batch", batch, "--yes", "--json")

    assert done.code == 0, done.err
    assert done.json() == {"erased": 2, "not_final": 0, "batches": 1, "unheard_calls": 0}
    assert CANARY not in everything_in(database_url)
    assert not any(job in key for key in keys_in(servers, home))
    again = home.run("results", batch)
    lines = [json.loads(line) for line in again.out.splitlines()]
    assert [(line["state"], line["response"], line["warnings"][0][:9]) for line in lines] == [
        ("completed", "", "erased on")
    ] * 2
    assert "the custom ids of erased jobs are gone" in home.run("show", f"{batch}:nobody").err
    show = home.run("show", job)
    assert (show.code, "erased on" in show.out) == (0, True), show.err
    retried = home.run("retry", job)
    assert (retried.code, "was erased on" in retried.err, "submit its question again" in retried.err) == (2, True, True)
    assert "0 jobs start" in home.run("retry", batch).err


def test_erase_refuses_unfinished_jobs_unless_it_may_cancel_them(home: Home, database_url: str, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "in.jsonl", [canary_question(0), canary_question(1)])
    assert home.run("submit", input_path).code == 0

    refused = home.run("erase", "--tenant", "default", "--yes")

    assert refused.code == 2
    assert "2 of 2 jobs not final" in refused.err
    assert "(available)" in refused.err
    assert CANARY in everything_in(database_url)
    assert home.run("erase", "--tenant", "nobody", "--yes").code == 2
    done = home.run("erase", "--tenant", "default", "--cancel", "--yes", "--json")
    assert done.json() == {"erased": 2, "not_final": 0, "batches": 1, "unheard_calls": 0}
    assert CANARY not in everything_in(database_url)


def test_erase_warns_of_answers_in_the_spool_of_another_worker(home: Home, database_url: str, tmp_path: Path) -> None:
    batch = home.run("submit", write_lines(tmp_path / "in.jsonl", [canary_question(0)])).out.strip()
    assert home.run("cancel", batch).code == 0
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO attempt (id, job_id, run, round, purpose, number, lane, provider, request_hash, lease_token, "
            "closed_at, outcome, cost_usd) SELECT gen_random_uuid(), id, 1, 0, 'generate', 1, 'standard', 'openai', '', "
            "gen_random_uuid(), now(), 'unknown', 0 FROM job"
        )

    done = home.run("erase", "--batch", batch, "--yes")

    assert done.code == 0
    assert "what became of 1 call of these jobs is not known" in done.err
    assert "until a worker starts in that home" in done.err


def test_prune_removes_the_content_of_old_jobs_and_then_their_rows(
    home: Home, database_url: str, tmp_path: Path
) -> None:
    batch = home.run("submit", write_lines(tmp_path / "in.jsonl", [canary_question(0), canary_question(1)])).out.strip()
    assert home.run("cancel", batch).code == 0
    advance_clock(database_url, timedelta(days=1))

    assert home.run("prune", "--older-than", "1d", "--dry-run", "--json").json()["jobs"] == 2
    assert CANARY in everything_in(database_url)
    assert home.run("prune", "--older-than", "1d", "--json").json()["jobs"] == 2
    assert CANARY not in everything_in(database_url)

    deleted = home.run("prune", "--older-than", "1d", "--rows", "--json")
    assert deleted.json() == {
        "jobs": 2, "batches": 1, "attempts": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": "0",
    }  # fmt: skip
    assert home.run("results", batch).out == ""


def test_clean_tells_what_takes_disk_and_gives_back_what_was_pruned(home: Home, tmp_path: Path) -> None:
    batch = home.run("submit", write_lines(tmp_path / "in.jsonl", [canary_question(0), canary_question(1)])).out.strip()
    assert home.run("cancel", batch).code == 0
    assert "nightdesk prune --rows --older-than 90d" in home.run("clean").err
    assert home.run("prune", "--rows", "--older-than", "0s", "--batch", batch).code == 0

    done = home.run("clean", "--shrink", "--json").json()

    assert done["given_back_bytes"] > 0
    assert done["ledger"]["tables"]["job_request"] < done["ledger"]["database"]
