"""``nightdesk worker``: one worker process in the foreground, until SIGTERM."""

from pathlib import Path
from typing import Annotated, Any

import typer
from celery import signals

from worker.process.celery_app import QUEUES
from worker.process.main import LOCAL_QUEUE, run_worker
from worker.settings import Settings, load_settings
from worker.supervise.workers import mark_ready
from worker.wiring import endpoints


def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            help="Queues to serve, separated by commas: generate, check, local, submit; or urgent alone; default: all but "
            "urgent, and local only where NIGHTDESK_LOCAL_MODEL is set."
        ),
    ] = None,
    record: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run one worker process in the foreground.

    It ends on SIGTERM or Ctrl-C, after the calls in flight. `generate` makes the provider calls, `check` checks the
    answers, `local` those of jobs that want the local model, `submit` accepts jobs over Redis. With `urgent` it does all but
    `local` for urgent jobs, and nothing else, so that they wait for no others.
    """
    settings = load_settings()
    served = _named(queues) if queues is not None else _all(settings)
    if record is not None:
        _mark_when_ready(record)
    return run_worker(settings, endpoints(settings), served)


def _named(queues: str) -> list[str]:
    return [name for queue in queues.split(",") if (name := queue.strip())]


def _all(settings: Settings) -> list[str]:
    return [queue for queue in QUEUES if queue != LOCAL_QUEUE or settings.local_model is not None]


def _mark_when_ready(record: Path) -> None:
    """Marks the record once this process listens; it also makes the process recognisable by its command line."""

    def ready(**_: Any) -> None:
        mark_ready(record)

    signals.worker_ready.connect(ready, weak=False)
