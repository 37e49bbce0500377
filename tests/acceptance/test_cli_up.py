"""Workers that stay: ``up``, what is done with them running, and ``down``."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema_rs
import psutil
import pytest

from tests.acceptance.cli_home import Home, new_home, question, read_lines, until, write_lines
from tests.servers import Servers
from worker.supervise.processes import is_alive


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """With its workers running; a test that stops them starts them again."""
    with new_home() as home:
        yield home


@pytest.fixture
def up(home: Home) -> Home:
    done = home.run("up")
    assert done.code == 0, done.err
    return home


def submitted(home: Home, path: Path) -> str:
    done = home.run("submit", "--again", path)
    assert done.code == 0, done.err
    return done.out.strip()


def test_up_again_changes_nothing_and_starts_what_has_ended(up: Home) -> None:
    before = up.workers()
    assert {"generate-1", "check-1"} <= before.keys()

    assert up.run("up").code == 0
    assert up.workers() == before

    up.kill("check-1")
    until(lambda: "check-1" not in up.workers(), "the end of a worker")
    done = up.run("up", "--json")
    assert {row["name"] for row in done.json()["workers"] if row["started"]} == {"check-1"}
    after = up.workers()
    assert after["generate-1"] == before["generate-1"]
    assert after["check-1"] != before["check-1"]


def test_workers_outlive_their_parent_and_down_ends_everything(up: Home) -> None:
    for pid in up.workers().values():
        assert os.getsid(pid) != os.getsid(0)

    done = up.run("down")

    assert done.code == 0
    assert "postgres" in done.err
    assert up.workers() == {}
    assert not up.servers_run()
    assert "nothing of" in up.run("down").err


def test_submit_status_results_and_show_speak_the_published_schemas(up: Home, tmp_path: Path) -> None:
    lines = [*(question(number) for number in range(3)), {"query": "No source?", "custom_id": "none"}]
    batch = submitted(up, write_lines(tmp_path / "questions.jsonl", lines))

    waited = up.run("results", batch, "--wait", "-o", tmp_path / "out")
    assert waited.code == 0, waited.err
    results = read_lines(tmp_path / "out")
    assert [result["custom_id"] for result in results] == ["q0", "q1", "q2", "none"]

    status = up.run("status", batch, "--json").json()
    assert (status["jobs"], status["states"]) == (4, {"completed": 4})
    assert batch in up.run("status").out
    assert "4 completed" in up.run("status", batch).out

    show = up.run("show", f"{batch}:q1")
    assert show.code == 0, show.err
    assert results[1]["job_id"] in show.out
    assert "supported" in show.out
    assert "proven: SHA-256" in show.out
    assert "lasts 3 years from the date of purchase" in show.out
    by_position = up.run("show", f"{batch}:1", "--json").json()
    by_id = up.run("show", results[1]["job_id"], "--json").json()
    assert by_position == by_id
    assert by_id["result"] == results[1]
    assert by_id["messages"]["proven_by_hash"] is True
    assert "lasts 3 years" in by_id["messages"]["messages"][-1]["text"]
    assert [attempt["outcome"] for attempt in by_id["attempts"]] == ["ok"]

    schemas = {name: jsonschema_rs.validator_for(schema) for name, schema in up.run("schema").json().items()}
    schemas["BatchStatus"].validate(status)
    for result in results:
        schemas["JobResult"].validate(result)
        audit = up.run("show", result["job_id"], "--json").json()
        schemas["JobRequest"].validate(audit["request"])
        for record in audit["records"]:
            schemas["GenerationRecord"].validate(record)


def test_a_run_uses_the_workers_that_are_up_leaves_them_and_warns_of_other_settings(up: Home, tmp_path: Path) -> None:
    before = up.workers()

    input_path = write_lines(tmp_path / "in", [question(0)])
    done = up.run("run", "--again", input_path, "-o", tmp_path / "out", extractive_latency_s="0.01")

    assert done.code == 0
    assert "started with other settings" in done.err
    assert up.workers() == before
    assert up.servers_run()


def test_workers_that_can_not_start_say_why(home: Home) -> None:
    home.run("down")
    done = home.run("up", calibration="/nowhere.json")
    assert done.code == 3
    assert "nowhere.json" in done.err
    assert "ended by itself. The end of" in done.err
    home.run("down")


def test_up_in_the_foreground_restarts_and_stops_everything(home: Home) -> None:
    home.run("down")
    command = home.execute("up", "--foreground")
    command.await_message("staying in the foreground")
    before = home.workers()
    for name, pid in before.items():
        assert os.getsid(pid) != os.getsid(0)
        assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)
        until(lambda name=name: "ready: takes jobs" in (home.place.logs / f"{name}.log").read_text(), "lines of a log")

    home.kill("check-1")
    until(lambda: home.workers().get("check-1", before["check-1"]) != before["check-1"], "a new worker")
    command.process.terminate()

    assert command.ended().code == 0
    assert programs_of(home.root) == []
    assert not home.servers_run()


def programs_of(home: Path) -> list[psutil.Process]:
    """The Python processes that were started for a home and still run."""
    programs = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("NIGHTDESK_HOME") == str(home) and is_alive(process):
                programs.append(process)
    return programs


def test_a_service_with_workers_starts_again_those_that_end(home: Home) -> None:
    assert home.run("down").code == 0
    command = home.start("serve", "--workers", "--port", "0")
    command.await_message("listening on")
    before = home.kill("generate-1")
    until(lambda: home.workers().get("generate-1", before) != before, "a new worker")
    command.process.terminate()

    assert command.ended().code == 0
    assert home.workers() == {}


def test_a_worker_in_the_foreground_serves_servers_named_in_the_environment(
    servers: Servers, database_url: str, tmp_path: Path
) -> None:
    with new_home(database_url=database_url, redis_url=servers.redis_url, key_prefix=f"cli-{os.getpid()}:") as home:
        command = home.start("worker")
        input_path = write_lines(tmp_path / "in", [question(0)])

        done = home.run("run", input_path, "-o", tmp_path / "out", "--no-workers")

        assert done.code == 0, done.err
        assert not home.place.has_servers
        command.process.terminate()
        assert command.ended().code == 0


def test_a_run_without_redis_only_warns(database_url: str, tmp_path: Path) -> None:
    with new_home(database_url=database_url, redis_url="redis://127.0.0.1:1/0") as home:
        done = home.run("run", write_lines(tmp_path / "in", [question(0)]), "-o", tmp_path / "out")
        assert done.code == 0, done.err
        assert "the jobs are accepted and start a few seconds later" in done.err


@pytest.mark.parametrize("arguments", [["status"], ["run", "in", "-o", "out"], ["worker"]])
def test_an_unreachable_database_is_reported_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "in", [question(0)])
    named = [
        str(input_path) if part == "in" else str(tmp_path / "out") if part == "out" else part for part in arguments
    ]
    with new_home(
        database_url="postgresql://someone:a-secret@127.0.0.1:1/nowhere", redis_url="redis://127.0.0.1:1/0"
    ) as home:
        done = home.run(*named)
        assert home.root.exists() is (arguments[0] == "run")
    assert done.code == 3
    assert "PostgreSQL at 127.0.0.1:1/nowhere can't be reached" in done.err
    assert "NIGHTDESK_DATABASE_URL" in done.err
    assert "Traceback" not in done.err
    assert "a-secret" not in done.err
