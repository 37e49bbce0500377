"""The command says who answers as the workers that will do it say, whatever keys its own shell has; it never claims what it can't know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines
from tests.servers import Servers

KEYED = {"OPENAI_API_KEY": "sk-of-the-workers", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


@pytest.fixture
def homes(servers: Servers, database_url: str) -> Iterator[tuple[Home, Home]]:
    """Two machines with the same PostgreSQL and Redis: one has workers, the other is a laptop."""
    prefix = f"answerers-{database_url.rpartition('_')[2]}:"
    urls = {"database_url": database_url, "redis_url": servers.redis_url, "key_prefix": prefix}
    with new_home(**urls) as home, new_home(**urls) as laptop:
        assert home.run("migrate").code == 0
        yield home, laptop


def up(home: Home, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], **settings: str) -> None:
    with monkeypatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        done = home.run("up", "--workers", "1", **settings)
        assert done.code == 0, done.err


def test_a_shell_without_the_key_says_that_the_workers_pay_if_there_are_any(
    homes: tuple[Home, Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, laptop = homes
    lines = write_lines(tmp_path / "in.jsonl", [question(1)])
    alone = laptop.run("submit", lines)
    assert alone.code == 0, alone.err
    assert "by the settings here; no worker runs, and the settings of those that start decide" in alone.err

    up(home, monkeypatch, KEYED)

    estimated = laptop.run("estimate", lines)
    submitted = laptop.run("submit", lines, "--again")
    for done in (estimated, submitted):
        assert done.code == 0, done.err
        assert "offline and free" not in done.err
    assert "jobs that name no provider go to openai, as the workers that run say" in estimated.out
    assert "openai:gpt" in estimated.out
    assert "extractive" not in estimated.out
    assert "answers by openai:gpt" in submitted.err
    assert "as the workers that run say" in submitted.err
    assert "sk-of-the-workers" not in estimated.err + submitted.err

    assert home.run("down").code == 0
    alone = laptop.run("submit", lines, "--again")
    assert "answers by extractive" in alone.err
    assert "openai" not in alone.err, "the workers that are gone say no more"


def test_a_shell_with_a_key_says_that_the_workers_have_none(
    homes: tuple[Home, Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, laptop = homes
    up(home, monkeypatch, {})
    lines = write_lines(tmp_path / "in.jsonl", [question(1)])
    with monkeypatch.context() as patched:
        for name, value in KEYED.items():
            patched.setenv(name, value)
        done = laptop.run("run", lines, "-o", tmp_path / "out.jsonl")
        named = laptop.run(
            "run",
            write_lines(tmp_path / "named.jsonl", [question(2, config={"provider": "openai"})]),
            "-o",
            tmp_path / "no",
        )
    assert done.code == 0, done.err
    assert laptop.workers() == {}
    assert len(home.workers()) == 1, "another machine's workers are none of its business"
    assert (
        "answers by extractive: quotes of the sources, offline and free (as no key is set), as the workers that run say"
        in done.err
    )
    assert "openai" not in done.err
    assert read_lines(tmp_path / "out.jsonl")[0]["outcome"] == "answered"
    assert named.code == 2
    assert "the provider 'openai' needs a key: set OPENAI_API_KEY" in named.err
