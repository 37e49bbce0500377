"""The screens of commands when things go wrong, at terminals of 80 and of 120 columns: the reason and the remedy."""

import json
import re
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_home, question, write_lines
from tests.stub.server import running_stub
from tests.terminal import Capture, capture

pytestmark = pytest.mark.captures

ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


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
    ):
        patch.setenv("OPENAI_API_KEY", "sk-canary")
        patch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        providers: dict[str, Any] = {
            "vllm": {"preset": "vllm", "base_url": f"http://127.0.0.1:{closed_port()}/v1", "model": "own"},
            "refusing": {
                "kind": "openai", "base_url": f"{refusing.url}/v1", "model": "gpt-5-mini", "api_key_env": "OPENAI_API_KEY",
            },
        }  # fmt: skip
        settings = {
            "model": "gpt-5-mini",
            "default_judge_share": "0",
            "tick_s": "0.2",
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
    for line, after in pairwise([*screen.lines, ""]):
        # A cell or a message of ours may fill a row and goes on indented; where the terminal broke one, the rest is at the edge.
        assert len(line) < columns or line.endswith(("─", "…")) or not after or after.startswith(" "), line
        assert not re.search(r"[0-9a-f]{8}-[0-9a-f-]{0,26}$", line) or re.search(f"{ID}$", line), line
    return screen


def test_a_run_tells_its_model_its_progress_and_its_end(home: Home, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [question(number) for number in range(4)])
    run = see(home, 80, "run", "--again", lines, "-o", home.root.parent / "o", "--name", "trial", "--max-cost-usd", "1")

    assert run.code == 0, run.text
    assert "openai:gpt-5-mini" in run.text
    assert any(re.search(r"\d of 4 final", line) for line in run.progress)
    assert re.search(r"4 jobs in .* s: 4 \w+; cost 0\.\d+ USD of 1", run.text), run.text

    batch = re.search(ID, run.text)
    assert batch is not None
    assert "trial" in see(home, 80, "list").text
    assert re.search(rf"{batch[0]}\s+final\s+4 of 4 final", see(home, 120, "list", "--limit", "1").text)
    # The messages that were sent are shown as they are, and broken by the terminal alone.
    assert "Claims" in capture(["show", f"{batch[0]}:q1"], home.environment(), 80).text
    assert "no service of this home runs" in see(home, 80, "open", batch[0]).text


def test_a_reached_ceiling_is_told_with_the_command_that_raises_it(home: Home, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [question(number) for number in range(4)])
    run = see(home, 120, "run", "--again", lines, "-o", home.root.parent / "o", "--max-cost-usd", "0.000001")
    assert run.code == 1, run.text
    assert "4 held (budget)" in run.text
    assert re.search(rf"nightdesk release {ID} --max-cost-usd", run.text), run.text


def test_an_endpoint_that_is_down_is_told_before_anything_is_submitted(home: Home, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [question(0)])
    run = see(home, 80, "run", "--again", lines, "-o", home.root.parent / "o", "--provider", "vllm", "--model", "own")
    assert run.code == 3, run.text
    assert re.search(r"vllm can't be reached: 127\.0\.0\.1:\d+ refuses connections\. Start it, or correct", run.text)


def test_a_wrong_key_is_told_while_it_runs_and_by_status(home: Home, tmp_path: Path) -> None:
    reason = "no calls are made to refusing .*: refusing answered 401"
    lines = write_lines(tmp_path / "in.jsonl", [question(number) for number in range(4)])
    run = see(home, 120, "run", "--again", lines, "-o", home.root.parent / "o", "--provider", "refusing")
    assert run.code == 1, run.text
    assert re.search(reason, run.text), run.text
    assert "To fix it: put a key that is accepted" in run.text
    assert "sk-canary" not in run.text
    status = see(home, 80, "status")
    assert re.search(reason, status.text), status.text
    assert "2 workers of this home run" in status.text
