"""Runs a command line in this process, as ``nightdesk`` runs it in one of its own: a start costs a second of CPU."""

import logging
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

from tasks.prompting.own_templates import use_templates
from tests.forking import REPOSITORY, fork_workers
from worker import cli


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return orjson.loads(self.out)


def run_here(arguments: Sequence[str | Path], environment: Mapping[str, str]) -> Ended:
    """Run a command to its end, with nothing on its standard input."""
    with ExitStack() as stack:
        streams = {name: stack.enter_context(_file()) for name in ("stdin", "stdout", "stderr")}
        for name, stream in streams.items():
            stack.enter_context(mock.patch.object(sys, name, stream))
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(_process_state())
        stack.enter_context(fork_workers())
        try:
            code = cli.run([str(argument) for argument in arguments])
        except Exception:  # noqa: BLE001 - as the interpreter would end
            traceback.print_exc()
            code = 1
        return Ended(code, _text(streams["stdout"]), _text(streams["stderr"]))


def _file() -> TextIOWrapper:
    return TextIOWrapper(tempfile.TemporaryFile(), encoding="utf-8", write_through=True)


def _text(stream: TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextmanager
def _process_state() -> Iterator[None]:
    """Give back what a command sets because the process is its own."""
    root = logging.getLogger()
    handlers, level, directory = root.handlers[:], root.level, Path.cwd()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    os.chdir(REPOSITORY)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(directory)
        root.handlers[:] = handlers
        root.setLevel(level)
        use_templates(None)
        for number, handler in signals.items():
            signal.signal(number, handler)
