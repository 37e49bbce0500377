"""Starts worker processes that outlive their starter, finds them again, and stops them.

A worker's record ``workers/NAME.pid`` has its process id, then its queues, slots and settings as JSON. Its command line names
the record, which identifies it (see ``processes``).
"""

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil

from tasks.errors import ServiceUnavailable
from worker.ledger.addresses import hosts_of
from worker.providers.vendors import provider_variables
from worker.settings import Settings
from worker.supervise.files import tail, write_atomically
from worker.supervise.processes import (
    Identity,
    find,
    find_or_wait,
    hold_guard,
    is_alive,
    poll,
    send_signal,
    spawn,
)
from worker.supervise.state_directory import StateDirectory

PACKAGES = Path(__file__).parents[2]
"""The directory of our packages: workers start there, whatever the directory of the command."""

HEAPS = "2"
"""Heaps of all threads together: Python runs one thread at a time, so that more of them only hold more free memory."""

GUARD_S = 10.0
"""Seconds to wait for the end of an earlier worker of the same name."""


class WorkerFailed(ServiceUnavailable):
    """A worker process keeps ending; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker's name, its queues, and its share of the calls at once; None: as many as the settings say."""

    name: str
    queues: tuple[str, ...]
    slots: int | None = None


URGENT_SHARE = 0.1
"""Slots of a worker of urgent jobs alone, as a share of those that the others have together."""


def worker_specs(
    slots: int, processes: int | None = None, *, local: int = 0, urgent: int = 0
) -> tuple[WorkerSpec, ...]:
    """The workers of an installation: one that checks, with a process for each core, and one that calls for each two cores.

    Those that call share the ``slots`` evenly. Beyond them, ``local`` processes run the local model, and ``urgent`` ones take
    urgent jobs alone.
    """
    further = (*_local_specs(local), *_urgent_specs(slots, urgent))
    if processes is None:
        processes = 1 + max(1, (os.cpu_count() or 1) // 2)
    if processes == 1:
        return (WorkerSpec("all", ("generate", "check", "submit")), *further)
    calling = min(processes - 1, slots)
    shares = [slots // calling + (number < slots % calling) for number in range(calling)]
    generating = (
        WorkerSpec(f"generate-{number}", ("generate", "submit"), share) for number, share in enumerate(shares, start=1)
    )
    return (*generating, *check_only_specs(), *further)


def check_only_specs(*, local: int = 0) -> tuple[WorkerSpec, ...]:
    """The workers of an installation without generation: one that checks, and those with the local model."""
    return (WorkerSpec("check-1", ("check",)), *_local_specs(local))


def _local_specs(processes: int) -> Iterator[WorkerSpec]:
    """Workers of the local model; each loads it for itself."""
    return (WorkerSpec(f"local-{number}", ("local",)) for number in range(1, processes + 1))


def _urgent_specs(slots: int, processes: int) -> Iterator[WorkerSpec]:
    own = max(1, int(slots * URGENT_SHARE))
    return (WorkerSpec(f"urgent-{number}", ("urgent",), own) for number in range(1, processes + 1))


def local_model_processes(settings: Settings) -> int:
    """The number of processes that run the local model; 0 without one."""
    return settings.local_model_processes if settings.local_model is not None else 0


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that runs."""

    spec: WorkerSpec
    process: psutil.Process = field(repr=False)
    ephemeral: bool
    """True if the last command that uses the home stops it."""
    settings: str
    """Fingerprint of the settings it was started with, and of the keys and addresses of its providers."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


def worker_environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of all workers of a home, which start in another directory than their command."""
    # People read the logs of a home; a collector of logs reads those of containers.
    environment = {"NIGHTDESK_LOG_FORMAT": "text", "MALLOC_ARENA_MAX": HEAPS, **variables, "NIGHTDESK_HOME": str(home)}
    files = (name for name, path in variables.items() if name.endswith("_FILE") and Path(path).is_file())
    for name in ("NIGHTDESK_CONFIG", "NIGHTDESK_CALIBRATION", "NIGHTDESK_LOCAL_MODEL", *files):
        # A local model may also be named by an import path.
        if (path := environment.get(name)) and (name != "NIGHTDESK_LOCAL_MODEL" or Path(path).is_dir()):
            environment[name] = str(Path(path).absolute())
    return environment


class Supervisor:
    """The worker processes of a home that serve the same servers.

    Args:
        state: the state directory of the home.
        servers: distinguishes the servers of the workers of one home; empty for the embedded ones.
        fingerprint: of the settings that workers are started with, and of the keys and addresses of their providers.
    """

    def __init__(self, state: StateDirectory, servers: str = "", fingerprint: str = "") -> None:
        self._state = state
        self._suffix = f"@{servers}" if servers else ""
        self.fingerprint = fingerprint

    def _command(self, spec: WorkerSpec) -> list[str]:
        queues = ",".join(spec.queues)
        return ["worker", "--queues", queues, "--record", str(self._record(spec.name))]

    def log(self, name: str) -> Path:
        """The log file of a worker."""
        return self._state.logs / f"{name}{self._suffix}.log"

    def running(self) -> dict[str, WorkerProcess]:
        """The running workers of our servers, by name."""
        workers = (_worker_of(record) for record in self._records())
        return {worker.spec.name: worker for worker in workers if worker is not None}

    def difference(self) -> str:
        """The warning of workers that run with other settings, keys or addresses than ours; empty without one."""
        if all(worker.settings == self.fingerprint for worker in self.running().values()):
            return ""
        return (
            "the workers that run were started with other settings, or another key or address of a provider, and keep them; "
            "to apply the present ones: nightdesk down; nightdesk up"
        )

    def exited(self) -> set[str]:
        """Names of the workers that ended without a stop."""
        return {record.stem.removesuffix(self._suffix) for record in self._records()} - self.running().keys()

    def _record(self, name: str) -> Path:
        return self._state.workers / f"{name}{self._suffix}.pid"

    def _records(self) -> list[Path]:
        return [path for path in _all_records(self._state) if _servers_of(path) == self._suffix.removeprefix("@")]

    def start(self, spec: WorkerSpec, *, ephemeral: bool) -> bool:
        """Starts a worker unless it runs; True if this call did. Raises ``ProcessError``."""
        record = self._record(spec.name)
        with self._state.exclusive_start(GUARD_S):
            if find_or_wait(_identity(record), GUARD_S) is not None and _worker_of(record) is not None:
                return False
            self._start(spec, record, ephemeral=ephemeral)
        return True

    def _start(self, spec: WorkerSpec, record: Path, *, ephemeral: bool) -> None:
        _ready_mark(record).unlink(missing_ok=True)
        with hold_guard(_identity(record), GUARD_S) as guard:
            # Recorded before its birth: if we die in between, the guard leads from the record to the process.
            _write_record(record, 0, spec, ephemeral=ephemeral, settings=self.fingerprint)
            process = spawn(
                [sys.executable, "-m", "worker.cli", *self._command(spec)],
                self.log(spec.name),
                guard,
                directory=PACKAGES,
                environment=self._environment(spec),
            )
            if process is not None:
                _write_record(record, process.pid, spec, ephemeral=ephemeral, settings=self.fingerprint)

    def _environment(self, spec: WorkerSpec) -> dict[str, str]:
        environment = worker_environment(self._state.root, os.environ)
        if spec.slots is not None:
            environment["NIGHTDESK_SLOTS"] = str(spec.slots)
        return environment

    def make_permanent(self) -> None:
        """Lets the running workers outlive the commands that started them."""
        for record in self._records():
            worker = _worker_of(record)
            if worker is not None and worker.ephemeral:
                _write_record(record, worker.pid, worker.spec, ephemeral=False, settings=worker.settings)

    def await_ready(self, names: Iterable[str], seconds: float) -> list[str]:
        """Waits until workers listen; returns those that do not yet. Raises ``WorkerFailed`` for one that ended."""
        waiting = list(names)

        def look() -> bool:
            running = self.running()
            for name in list(waiting):
                if name not in running:
                    raise WorkerFailed(self.exit_report(name))
                if _ready_mark(self._record(name)).exists():
                    waiting.remove(name)
            return not waiting

        poll(look, seconds)
        return waiting

    def exit_report(self, name: str) -> str:
        """A message about a worker that ended by itself, with the end of its log."""
        return f"the worker {name} ended by itself. The end of {self.log(name)}:\n{tail(self.log(name), 15)}"

    def terminate(self, names: Iterable[str]) -> list[WorkerProcess]:
        """Asks workers to finish the calls in flight and end; returns those that run."""
        running = self.running()
        workers = [running[name] for name in names if name in running]
        for worker in workers:
            send_signal(worker.process, signal.SIGTERM)
        return workers

    def await_exit(self, workers: Iterable[WorkerProcess], seconds: float) -> list[WorkerProcess]:
        """Waits for workers to end and removes their records; returns those that still run."""
        remaining = list(workers)

        def look() -> bool:
            for worker in [worker for worker in remaining if not is_alive(worker.process)]:
                self._remove_record(worker.spec.name)
                remaining.remove(worker)
            return not remaining

        poll(look, seconds)
        return remaining

    def clear(self) -> None:
        """Removes the records of the workers that ended by themselves."""
        for name in self.exited():
            self._remove_record(name)

    def _remove_record(self, name: str) -> None:
        record = self._record(name)
        record.unlink(missing_ok=True)
        _ready_mark(record).unlink(missing_ok=True)


LOOK_EVERY_S = 1.0
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
"""Pause before a worker that ended is started again; doubles each time, and is short again once the worker has run as long."""


class Keeper:
    """Starts workers again that end by themselves.

    Args:
        supervisor: of the workers.
        specs: the workers that are to run.
        tell: says what was done.
        most: how often in a row one is started before its end counts as a failure; None: without end.
    """

    def __init__(
        self, supervisor: Supervisor, specs: Iterable[WorkerSpec], tell: Callable[[str], None], most: int | None = None
    ) -> None:
        self._supervisor = supervisor
        self._specs = tuple(specs)
        self._tell = tell
        self._most = most
        self._starts: dict[str, int] = {}
        self._due: dict[str, float] = {}

    def keep(self, stop: threading.Event) -> None:
        """Looks each second, until told to stop."""
        while not stop.wait(LOOK_EVERY_S):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Starts what has ended and is due; raises ``WorkerFailed`` for one that keeps ending."""
        running = self._supervisor.running()
        for spec in self._specs:
            due = self._due.get(spec.name, now)
            if spec.name not in running and now >= due:
                self._start_again(spec, now)
            elif now > due + LONGEST_BACKOFF_S:
                self._starts.pop(spec.name, None)

    def _start_again(self, spec: WorkerSpec, now: float) -> None:
        count = self._starts[spec.name] = self._starts.get(spec.name, 0) + 1
        if self._most is not None and count > self._most:
            raise WorkerFailed(self._supervisor.exit_report(spec.name))
        pause = min(FIRST_BACKOFF_S * 2 ** (count - 1), LONGEST_BACKOFF_S)
        self._due[spec.name] = now + pause
        self._tell(
            f"the worker {spec.name} ended by itself and is started again; its log: {self._supervisor.log(spec.name)}"
        )
        try:
            self._supervisor.start(spec, ephemeral=True)
        except ServiceUnavailable as error:
            self._tell(f"{error}; trying again in {pause:.0f} s")


@contextmanager
def keeping(keeper: Keeper) -> Iterator[None]:
    """Lets a keeper look in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=keeper.keep, args=(stop,), name="worker keeper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def mark_ready(record: Path) -> None:
    """Marks a worker as listening; called in the worker."""
    write_atomically(_ready_mark(record), "")


def _write_record(record: Path, pid: int, spec: WorkerSpec, *, ephemeral: bool, settings: str) -> None:
    description = {"queues": spec.queues, "slots": spec.slots, "ephemeral": ephemeral, "settings": settings}
    write_atomically(record, f"{pid}\n{orjson.dumps(description).decode()}\n")


def _ready_mark(record: Path) -> Path:
    return record.with_suffix(".ready")


def _identity(record: Path) -> Identity:
    return Identity("nightdesk worker", str(record), record, record.with_suffix(".guard"))


def _worker_of(record: Path) -> WorkerProcess | None:
    """The worker of a record, if it runs."""
    try:
        pid, _, description = record.read_text(encoding="utf-8").partition("\n")
        int(pid)
        fields = orjson.loads(description)
        spec = WorkerSpec(record.stem.partition("@")[0], tuple(fields["queues"]), fields.get("slots"))
        ephemeral, settings = bool(fields["ephemeral"]), str(fields["settings"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    process = find(_identity(record))
    return None if process is None else WorkerProcess(spec, process, ephemeral, settings)


def supervisor_of(settings: Settings, state: StateDirectory) -> Supervisor:
    """The supervisor of a home's workers for the servers of the settings."""
    return Supervisor(state, "" if settings.embedded() else _server_key(settings), _fingerprint(settings))


def _fingerprint(settings: Settings) -> str:
    """Tells whether two processes have the same settings, and the same keys and addresses of providers; no more.

    Secrets of the settings go in masked, and all of it as 32 bits of a hash: too little to find a key again.
    """
    own = settings.model_dump_json(exclude={"home"})
    # A key in a file is read anew when the file is replaced, so its name is enough.
    names = [each for name in provider_variables(settings) for each in (name, f"{name}_FILE")]
    values = [(name, os.environ.get(name) or "") for name in names]
    return hashlib.sha256(repr((own, values)).encode()).hexdigest()[:8]


def supervisors_in(state: StateDirectory) -> list[Supervisor]:
    """The supervisors of all workers of a home, whatever their servers."""
    return [Supervisor(state, servers) for servers in sorted({_servers_of(path) for path in _all_records(state)})]


def _all_records(state: StateDirectory) -> list[Path]:
    return sorted(state.workers.glob("*.pid"))


def _servers_of(record: Path) -> str:
    return record.stem.partition("@")[2]


def _server_key(settings: Settings) -> str:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    urls = [url.get_secret_value() for url in (settings.database_url, settings.redis_url)]
    return hashlib.sha256(repr([(hosts_of(url), urlsplit(url).path) for url in urls]).encode()).hexdigest()[:8]
