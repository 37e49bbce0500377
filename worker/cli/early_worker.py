"""Lets a worker load its modules while a command still reads its input and asks the provider."""

from collections.abc import Iterator
from contextlib import contextmanager

from worker.settings import Settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import (
    PreparedWorker,
    check_only_specs,
    local_model_processes,
    supervisor_of,
    worker_specs,
)


@contextmanager
def early_worker(settings: Settings, *, check_only: bool = False) -> Iterator[PreparedWorker | None]:
    """The first worker of a home, prepared; None where one runs already, or where no worker ever ran.

    Loading takes it more than a second. It touches nothing before it is started, and is ended with the block if it is not.
    """
    state = state_of(settings)
    supervisor = supervisor_of(settings, state)
    if not state.logs.is_dir() or supervisor.running():
        yield None
        return
    local = local_model_processes(settings)
    first, *_ = check_only_specs(local=local) if check_only else worker_specs(settings.slots, local=local)
    prepared = supervisor.prepare(first)
    try:
        yield prepared
    finally:
        if prepared is not None:
            prepared.drop()
