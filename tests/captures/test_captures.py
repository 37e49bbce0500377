"""The screens of commands when things go wrong, at terminals of 80 and of 120 columns: the reason and the remedy."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_home, question, write_lines
from tests.contract.test_preflight import REFUSED_KEY, running_vendor
from tests.stub.server import running_stub
from tests.terminal import Capture, capture
from worker import local

pytestmark = pytest.mark.captures

ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FIRSTS = count(100, 4)


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """A home whose workers run, with a provider that answers, one that is stopped and one that refuses the key."""
    with (
        pytest.MonkeyPatch.context() as patch,
        running_stub(latency_s=0.3) as stub,
        running_stub(error_rates={401: 1.0}) as refusing,
        running_vendor() as locked,
    ):
        locked.answer(401, REFUSED_KEY)
        patch.setenv("OPENAI_API_KEY", "sk-canary")
        patch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        providers: dict[str, Any] = {
            "vllm": {"preset": "vllm", "base_url": f"http://127.0.0.1:{closed_port()}/v1", "model": "own"},
            **{
                name: {"kind": "openai_chat", "base_url": f"http://127.0.0.1:{closed_port()}/v1", "model": "own"}
                for name in ("down80", "down120")
            },
            "locked": {
                "kind": "openai", "base_url": f"{locked.url}/v1", "model": "gpt-5-mini", "api_key_env": "OPENAI_API_KEY",
            },
            "refusing": {
                "kind": "openai", "base_url": f"{refusing.url}/v1", "model": "gpt-5-mini", "api_key_env": "OPENAI_API_KEY",
            },
        }  # fmt: skip
        settings = {
            "model": "gpt-5-mini",
            "default_judge_share": "0",
            "tick_s": "0.2",
            "unreachable_s": "6",
            "providers": json.dumps(providers),
        }
        with new_home(**settings) as home:
            home.run("up", "--workers", "2")
            try:
                yield home
            finally:
                home.run("down")


def see(home: Home, columns: int, *arguments: str | Path) -> Capture:
    """A capture in which no line is longer than the terminal, no id is broken and nothing is glued."""
    screen = capture(arguments, home.environment(), columns)
    assert screen.lines, arguments
    if directory := os.environ.get("CAPTURES"):
        with (Path(directory) / f"{columns}.txt").open("a") as file:
            file.write("\n".join([f"$ nightdesk {' '.join(map(str, arguments))}", *screen.lines, "", ""]))
    for line, after in pairwise([*screen.lines, ""]):
        # A cell or a message of ours may fill a row and goes on indented; where the terminal broke one, the rest is at the edge.
        # So may a command, which is copied whole, and a single word, like a long path, that only the terminal can break.
        whole = line.startswith("nightdesk ") or line.endswith(("─", "…")) or " " not in line
        assert len(line) < columns or whole or not after or after.startswith(" "), line
        assert not re.search(r"[0-9a-f]{8}-[0-9a-f-]{0,26}$", line) or re.search(f"{ID}$", line), line
    return screen


def test_a_run_tells_its_model_its_progress_and_its_end(home: Home, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [question(number) for number in range(4)])
    run = see(home, 80, "run", "--again", lines, "-o", home.root.parent / "o", "--name", "trial", "--max-cost-usd", "1")

    assert run.code == 0, run.text
    assert "openai:gpt-5-mini" in run.text
    assert any(re.search(r"\d of 4 final", line) for line in run.progress)
    assert re.search(r"4 jobs in .* s; cost 0\.\d+ USD of 1", run.text), run.text
    # All in one outcome: a bar over the whole width.
    assert any(re.fullmatch(r"  \w+ 4 100% █{50}", line.rstrip()) for line in run.lines), run.lines

    batch = re.search(ID, run.text)
    assert batch is not None
    assert "trial" in see(home, 80, "list").text
    assert re.search(rf"{batch[0]}\s+final\s.*\s+trial: 4 of 4 ", see(home, 120, "list", "--limit", "1").text)
    # The messages that were sent are shown as they are, and broken by the terminal alone.
    assert "Claims" in capture(["show", f"{batch[0]}:q1"], home.environment(), 80).text
    # No live line stands before what is written.
    results = capture(["results", batch[0]], home.environment(), 80)
    assert results.lines[0].startswith('{"job_id":')
    assert results.lines[-1] == f"to read them: nightdesk report {batch[0]}"


BOTH = pytest.mark.parametrize("columns", [80, 120])


def ask(home: Home, columns: int, source: Path, *options: str) -> Capture:
    """A run of a file of its own batch, with results beside the home."""
    return see(home, columns, "run", "--again", source, "-o", home.root.parent / f"out-{columns}", *options)


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """A file of four questions that no other test asks: a home keeps the answers of earlier batches."""
    first = next(FIRSTS)
    return write_lines(tmp_path / "in.jsonl", [question(number) for number in range(first, first + 4)])


@BOTH
def test_the_same_command_with_a_higher_ceiling_raises_it(home: Home, four: Path, columns: int) -> None:
    output = home.root.parent / f"raised-{columns}"
    order = ("run", four, "-o", output, "--name", f"r{columns}", "--temperature", f"0.{columns}")
    short = see(home, columns, *order, "--max-cost-usd", "0.000001")
    assert short.code == 1, short.text
    same = see(home, columns, *order, "--max-cost-usd", "0.000001")
    assert "nightdesk release" in same.text.replace("\n", " ")
    higher = see(home, columns, *order, "--max-cost-usd", "0.5")
    assert higher.code == 0, higher.text
    assert "its ceiling is 0.5 USD now" in higher.text


@BOTH
def test_an_estimate_begins_with_the_price_of_the_night(home: Home, four: Path, columns: int) -> None:
    # Another test may have the answers to the same questions already.
    four.write_text(four.read_text().replace("?", ", please?"))
    estimate = see(home, columns, "estimate", four)
    assert re.match(r"cost 0\.\d+ USD, from 0\.\d+ to 0\.\d+", estimate.lines[0]), estimate.lines


@BOTH
def test_an_endpoint_that_is_down_is_told_before_anything_is_submitted(home: Home, four: Path, columns: int) -> None:
    run = ask(home, columns, four, "--provider", "vllm", "--model", "own")
    assert run.code == 3, run.text
    assert re.search(r"vllm can't be reached: 127\.0\.0\.1:\d+ refuses connections\. Start it, or correct", run.text)


@pytest.mark.parametrize(("columns", "provider"), [(80, "down80"), (120, "down120")])
def test_an_endpoint_that_goes_down_is_told_with_the_next_try(
    home: Home, four: Path, columns: int, provider: str
) -> None:
    run = ask(home, columns, four, "--no-preflight", "--provider", provider)
    assert run.code == 1, run.text
    assert any(re.search(r"0 of 4 final, next job at \d\d:\d\d:\d\d", line) for line in run.progress), run.progress
    assert re.search(rf"{provider} can't be reached since .* refuses connections", run.text), run.text
    assert re.search(rf"4 held \(lane_paused\).*nightdesk release {ID}", run.text), run.text


@BOTH
def test_a_wrong_key_is_told_while_it_runs_and_by_status(home: Home, four: Path, columns: int) -> None:
    reason = "no calls are made to refusing .*: refusing answered 401"
    run = ask(home, columns, four, "--no-preflight", "--provider", "refusing")
    assert run.code == 1, run.text
    assert re.search(reason, run.text), run.text
    assert "To fix it: put a key that is accepted" in run.text
    assert "sk-canary" not in run.text
    status = see(home, columns, "status")
    assert re.search(reason, status.text), status.text
    assert "2 workers of this home run" in status.text


@BOTH
def test_a_wrong_key_of_model_or_judge_is_told_before_anything_is_submitted(
    home: Home, tmp_path: Path, four: Path, columns: int
) -> None:
    refused = "locked answered 401"
    run = ask(home, columns, four, "--provider", "locked")
    assert refused in run.text
    assert "Nothing was submitted" in run.text
    answer = {
        **question(0),
        "response": "At nine.",
        "config": {"checkers": ["structure", "judge"], "judge": "locked:gpt-5-mini"},
    }
    check = see(home, columns, "check", "--again", write_lines(tmp_path / "a.jsonl", [answer]), "-o", tmp_path / "o")
    assert check.code == 2, check.text
    assert refused in check.text
    assert "Nothing was submitted" in check.text


@BOTH
def test_the_same_command_again_takes_the_answers_that_are_there(home: Home, four: Path, columns: int) -> None:
    ask(home, columns, four)
    again = see(home, columns, "run", four, "-o", home.root.parent / f"out-{columns}")
    assert again.code == 0, again.text
    assert re.search(rf"same input as batch {ID}", again.text), again.text
    assert "4 of 4 jobs final: takes its answers; --again pays anew" in again.text


@BOTH
def test_workers_that_reach_the_ledger_by_its_url_are_counted(home: Home, tmp_path: Path, columns: int) -> None:
    where = local.start(home.root)
    elsewhere = Home(tmp_path / "home", {"database_url": where.database_url, "redis_url": where.redis_url})
    assert "no worker of this home runs; 2 elsewhere with the same ledger" in see(elsewhere, columns, "status").text


@pytest.fixture(scope="module")
def small_disk() -> Iterator[Path]:
    """A file system of 120 MB: a ledger fits, and a few thousand jobs do not."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    place = Path(tempfile.mkdtemp(prefix="nightdesk-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m,mode=755", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


@BOTH
def test_a_full_disk_is_told_by_its_name_and_soon(small_disk: Path, tmp_path: Path, columns: int) -> None:
    home = Home(small_disk / f"home-{columns}", {"provider": "extractive", "default_judge_share": "0"})
    source = write_lines(
        tmp_path / "in.jsonl", [{**question(number), "query": "When? " * 1_500} for number in range(6_000)]
    )
    try:
        run = see(home, columns, "run", source, "-o", tmp_path / "o")
        assert run.code == 3, run.text
        assert re.search(
            r"error: the disk of .* is full \(\d+ MB free\), so nothing can be stored: make room", run.text
        )
    finally:
        shutil.rmtree(home.root, ignore_errors=True)
