"""Lets the modules of workers load from a command's first moment on, while it loads its own, reads its input and asks the provider."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from worker.cli.project import HOME

if TYPE_CHECKING:
    from worker.settings import Settings
    from worker.supervise.worker_template import WorkerTemplate

COMMANDS = frozenset({"run", "check", "up"})
WITHOUT_WORKERS = frozenset({"-h", "--help", "--dry-run", "--no-workers"})


def begin(arguments: Sequence[str]) -> "WorkerTemplate | None":
    """A template for a command line that will start workers, as far as its words and the home's files tell; the caller ends it.

    None where a worker seems to run, and where no worker ever ran.
    """
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command not in COMMANDS or WITHOUT_WORKERS & set(arguments):
        return None
    home = Path(os.environ.get("NIGHTDESK_HOME") or HOME).absolute()
    if any((home / "workers").glob("*.pid")):
        return None
    from worker.supervise.worker_template import template_of  # noqa: PLC0415 - only for a command that starts workers

    return template_of(home)


@contextmanager
def early_template(settings: "Settings", early: "WorkerTemplate | None") -> Iterator["WorkerTemplate | None"]:
    """The template of a command that starts workers: the early one, or another where that could not be.

    None where a worker runs. It touches nothing before a worker is forked, and is ended with the block.
    """
    from worker.supervise.state_directory import state_of  # noqa: PLC0415 - the beginning does without
    from worker.supervise.worker_template import template_of  # noqa: PLC0415
    from worker.supervise.workers import supervisor_of  # noqa: PLC0415

    state = state_of(settings)
    template = early
    if supervisor_of(settings, state).running():
        template = None
    elif early is None or early.home != state.root:
        template = template_of(state.root)
    try:
        yield template
    finally:
        for each in (early, template):
            if each is not None:
                each.end()
