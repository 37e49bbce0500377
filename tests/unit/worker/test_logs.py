"""The lines of a worker's log: for people or as JSON, and without secrets."""

import json
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from celery import signals

from tasks.masking import MASK, hide
from worker.process.logs import OncePerMinute, configure_logging
from worker.process.main import _keep_logging
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

SECRET = 'pa"ss-word'


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield root
    root.handlers[:] = handlers


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip()


def test_json_has_a_field_for_each_part_and_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", log_format="auto", worker="desk:7")
    logging.getLogger("tasks.check").info("batch %s has ended", "b1", extra={"batch_id": "b1"})

    line = json.loads(last_line(capsys))

    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "INFO",
        "logger": "tasks.check",
        "message": "batch b1 has ended",
        "worker": "desk:7",
        "batch_id": "b1",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_secret_is_in_no_part_of_a_line(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    hide({SECRET, ""})
    configure_logging("INFO", log_format=log_format)
    log = logging.getLogger("worker")
    error = ConnectionError(f"postgresql://desk:{SECRET}@db/desk")
    log.error("no connection with %s", SECRET, extra={"url": SECRET}, exc_info=error)

    line = last_line(capsys)

    assert "ConnectionError" in line
    assert MASK in line
    assert "ss-word" not in line


def test_a_key_whose_file_is_replaced_is_hidden_before_and_after(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-first")
    providers = ConfiguredProviders(Settings(provider="openai"), {"OPENAI_API_KEY_FILE": str(file)})
    configure_logging("INFO")
    providers.get("openai")
    os.utime(file.rename(tmp_path / "before"), (0, 0))
    file.write_text("sk-second")
    providers.get("openai")

    logging.getLogger("worker").info("refused: %s, %s", "sk-first", "sk-second")

    assert last_line(capsys).endswith("refused: [masked], [masked]")


def test_celery_leaves_the_level_as_it_is_set(root_logger: logging.Logger) -> None:
    configure_logging("INFO")
    signals.setup_logging.connect(_keep_logging)
    try:
        receivers = signals.setup_logging.send(sender=None, loglevel=logging.WARNING)
    finally:
        signals.setup_logging.disconnect(_keep_logging)

    assert [answer for _, answer in receivers] == [None], "without a receiver Celery sets its own level"
    assert root_logger.level == logging.INFO


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_from_outside_makes_no_line_and_steers_no_terminal(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("INFO", log_format=log_format)
    hostile = "m\n2026-11-27 00:00:00+0000 ERROR worker: all is lost\x1b[2J\r\u2028\u202e\x9b1m"
    logging.getLogger("worker").warning("the model %s is refused", hostile, exc_info=ValueError(hostile))

    output = capsys.readouterr().err

    assert not any(line.startswith("2026-11-27 00:00") for line in output.splitlines())
    assert not {"\x1b", "\r", "\u2028", "\u202e", "\x9b"} & {*output} or log_format == "json"
    assert "\x1b" not in output
    assert "all is lost" in output


def test_trouble_is_told_once_a_minute_but_of_each_name(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    caplog.handler.addFilter(once := OncePerMinute(lambda: now))
    log = logging.getLogger("worker")
    for tries in range(3):
        log.warning("no connection, try %d: %s", tries, OSError(f"timeout after {tries}.5 s"))
        log.warning("refused a request from %s", "10.0.0.1")
        log.warning("refused a request from %s", "10.0.0.2")
        log.warning("the lane of %s is paused", "gpt-4")
        log.warning("the lane of %s is paused", "gpt-5")
        log.info("a job is done")
    first = caplog.messages
    now = 61.0
    log.warning("no connection, try %d: %s", 9, OSError("timeout after 7.5 s"))
    caplog.handler.removeFilter(once)

    assert [first.count(f"refused a request from 10.0.0.{last}") for last in (1, 2)] == [1, 1]
    assert [first.count(f"the lane of gpt-{number} is paused") for number in (4, 5)] == [1, 1]
    assert sum(line.startswith("no connection") for line in first) == 1
    assert caplog.messages[-1] == "no connection, try 9: timeout after 7.5 s (2 times more since the last such line)"
