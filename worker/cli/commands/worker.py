"""``nightdesk worker``: one worker process in the foreground, until SIGTERM."""

from pathlib import Path
from typing import Annotated, Any

import typer
from celery import signals

from worker.cli.crew import note_ready
from worker.process import run_worker
from worker.settings import load_settings
from worker.wiring import endpoints


def command(
    queues: Annotated[
        str, typer.Option(help="What to work on, separated by commas: generate, check, submit.")
    ] = "generate,check,submit",
    record: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run one worker process in the foreground.

    It ends on SIGTERM or Ctrl-C, after the calls in flight. `generate` makes the provider calls, `check` checks the
    answers, `submit` accepts jobs over Redis.
    """
    settings = load_settings()
    if record is not None:
        listen_for_ready(record)
    names = [name for queue in queues.split(",") if (name := queue.strip())]
    return run_worker(settings, endpoints(settings), names)


def listen_for_ready(record: Path) -> None:
    """Tell whoever started us when we listen; the record also makes this process recognisable by its command line."""

    def ready(**_: Any) -> None:
        note_ready(record)

    signals.worker_ready.connect(ready, weak=False)
