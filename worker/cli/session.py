"""Opens what a command works with: servers, schema, workers; closes what it opened, unless others still use it."""

import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tasks.errors import NotFound
from worker import local
from worker.cli.exits import run_interruptible
from worker.cli.terminal import tell, warn
from worker.ledger.database import STATEMENT_S
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import migrate
from worker.local import Endpoints
from worker.operations.free_disk import full_disk_line
from worker.settings import Settings, load_settings
from worker.supervise.processes import send_signal
from worker.supervise.state_directory import StateDirectory, state_of
from worker.supervise.workers import (
    Supervisor,
    WorkerFailed,
    WorkerProcess,
    WorkerSpec,
    check_only_specs,
    local_model_processes,
    supervisor_of,
    supervisors_in,
    worker_specs,
)
from worker.wiring import endpoints

STOP_MARGIN_S = 10.0
"""Seconds a worker may take to end beyond what its calls in flight may."""

QUIET_STOP_S = 3.0
"""Seconds of waiting for workers to end that need no word."""

Result = TypeVar("Result")


@dataclass(slots=True)
class Session:
    """The servers and workers of a command."""

    settings: Settings
    state: StateDirectory
    where: Endpoints
    supervisor: Supervisor
    migrated: tuple[str | None, str] | None = None
    """The schema's revision before and after, when this session brought it up to date."""

    def ledger(self, *, statement_s: float = STATEMENT_S) -> PostgresLedger:
        """A ledger to be opened on the loop that uses it."""
        return PostgresLedger(self.where.database_url, statement_s=statement_s)

    def on_ledger(
        self, operation: Callable[[PostgresLedger], Coroutine[Any, Any, Result]], *, statement_s: float = STATEMENT_S
    ) -> Result:
        """The result of an operation on the open ledger; see ``run_interruptible`` for signals."""

        async def run() -> Result:
            async with self.ledger(statement_s=statement_s) as ledger:
                return await operation(ledger)

        return run_interruptible(run())

    def staff(self, specs: Iterable[WorkerSpec], *, ephemeral: bool) -> list[WorkerSpec]:
        """Starts the workers that are missing; returns those started."""
        return [spec for spec in specs if self.supervisor.start(spec, ephemeral=ephemeral)]

    def staff_if_missing(self, *, check_only: bool = False) -> list[WorkerSpec]:
        """Starts workers for as long as this command lasts, unless each step has one already."""
        if difference := self.supervisor.difference():
            warn(difference)
        local = local_model_processes(self.settings)
        needed = {"check"} | (set() if check_only else {"generate"}) | ({"local"} if local else set())
        if needed <= queues_of(self.supervisor.running()):
            return []
        specs = check_only_specs(local=local) if check_only else worker_specs(self.settings.slots, local=local)
        return self.staff(specs, ephemeral=True)


def on_ledger(
    operation: Callable[[PostgresLedger], Coroutine[Any, Any, Result]],
    settings: Settings | None = None,
    *,
    makes: bool = False,
) -> Result:
    """The result of an operation on the ledger of the settings, in a session of its own.

    ``makes`` brings an embedded ledger up to date first, and makes one that isn't there.
    """
    settings = settings or load_settings()
    with session(settings, writes=makes and settings.embedded()) as opened:
        return opened.on_ledger(operation)


def queues_of(workers: Mapping[str, WorkerProcess]) -> set[str]:
    """The queues of worker processes, whether they take jobs or not."""
    return {queue for process in workers.values() for queue in process.spec.queues}


def has_ledger(settings: Settings) -> bool:
    """Tells whether the home of these settings has embedded servers."""
    return state_of(settings).has_servers


@contextmanager
def session(
    settings: Settings | None = None, *, writes: bool = True, staffs: bool = False, stays: bool = False
) -> Iterator[Session]:
    """Holds a home's servers open.

    Args:
        settings: name the servers, or let them be the embedded ones; None: those of this process.
        writes: bring the schema up to date, and make a home that isn't there. A command that only reads leaves both.
        staffs: the command may start workers; the last such command stops those that are not to stay.
        stays: what is started stays when the command ends; else the last command that uses the servers stops them, unless
            one that was killed left them: then the next that staffs does.

    Raises: ConfigurationError, LedgerUnavailable, SchemaMismatch, LocalServerError, NotFound.
    """
    settings = settings or load_settings()
    state = state_of(settings)
    local_servers = settings.embedded()
    if local_servers and not writes and not state.has_servers:
        raise NotFound(
            f"there is no ledger in {state.root} yet: 'nightdesk run' or 'up' makes one (see NIGHTDESK_HOME)"
        )
    answers_for_servers = staffs
    with ExitStack() as stack:
        # With servers of somebody else's, a command that starts nothing needs no home: it may have nowhere to write.
        if local_servers or staffs:
            state.create()
            use = stack.enter_context(state.use())

            def leave() -> None:
                """Ends with the last user what a command started; one that looks ends nothing of others."""
                if answers_for_servers:
                    state.release_servers()
                if use.is_last() and state.servers_are_released and not Supervisor(state).running():
                    local.stop(state.root)
                    state.mark_servers(ephemeral=False)

            stack.callback(leave)
        if staffs:
            stack.enter_context(_staffing(settings, state))
        where = endpoints(settings)
        if local_servers and stays:
            state.mark_servers(ephemeral=False)
        elif where.started == {"postgres", "valkey"}:
            # A server that was started again alone belongs to the command that runs the other.
            state.mark_servers(ephemeral=True)
            answers_for_servers = True
        migrated = migrate(where.database_url) if writes else None
        opened = Session(settings, state, where, supervisor_of(settings, state), migrated)
        if stays:
            opened.supervisor.make_permanent()
        yield opened


@contextmanager
def _staffing(settings: Settings, state: StateDirectory) -> Iterator[None]:
    """Uses the workers of a home; the last who does stops those that are not to stay."""
    with state.use_workers() as use:
        try:
            yield
        finally:
            if use.is_last():
                for supervisor in supervisors_in(state):
                    running = supervisor.running().values()
                    stop_workers(supervisor, [each.spec.name for each in running if each.ephemeral], settings)


def stop_workers(supervisor: Supervisor, names: list[str], settings: Settings) -> None:
    """Stops workers once their calls in flight have ended; Ctrl-C, or too long a wait, cuts those off."""
    terminating = supervisor.terminate(names)
    try:
        remaining = supervisor.await_exit(terminating, QUIET_STOP_S)
        if remaining:
            remaining = supervisor.await_exit(remaining, _patience(remaining, settings))
    except KeyboardInterrupt:
        tell("cutting off the calls in flight")
        remaining = supervisor.await_exit(terminating, 0)
    for process in remaining:
        send_signal(process.process, signal.SIGKILL)
    killed, remaining = remaining, supervisor.await_exit(remaining, STOP_MARGIN_S)
    if killed:
        warn(f"{_named(killed)} had to be killed: calls in flight count as unknown, their jobs go on in a minute")
    if remaining:
        raise WorkerFailed(f"{_named(remaining)} can't be killed")


def _patience(remaining: list[WorkerProcess], settings: Settings) -> float:
    """Seconds for the calls in flight to end, which the person is told of."""
    if full_disk_line(settings):
        tell(f"cutting off the calls in flight of {_named(remaining)}: the disk is full, their answers can't be stored")
        return 0
    tell(f"waiting for the calls in flight of {_named(remaining)}; Ctrl-C cuts them off")
    return settings.drain_s + STOP_MARGIN_S


def _named(processes: list[WorkerProcess]) -> str:
    return ", ".join(f"{process.spec.name} (process {process.pid})" for process in processes)
