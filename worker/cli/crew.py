"""Starts worker processes that outlive us, finds them again, and stops them.

A worker's record ``workers/NAME.pid`` holds its process id and what it was started for. A process id alone may belong
to anybody by now, so a process is a worker of ours only when its command line names that record. As with the embedded
servers, a guard file that the worker inherits locked says that it lives even when its record was lost.
"""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil

import worker
from worker.cli.exits import WorkerFailed
from worker.cli.place import Place
from worker.ledger.database import hosts_of
from worker.local.files import open_append, tail, write_atomically
from worker.local.polling import poll
from worker.local.process import Identity, guard_is_free, hold_guard, is_alive, send_signal
from worker.settings import Settings
from worker.wiring import embedded

GUARD_S = 10.0
"""Seconds to wait for what an earlier worker of the same name left behind."""

# The shell ends at once: the worker is nobody's child, so none is left as a zombie to a command that does not wait.
_DETACH = '"$@" >&2 & echo $!'


@dataclass(frozen=True, slots=True)
class Post:
    """A worker's name and the queues it serves."""

    name: str
    queues: tuple[str, ...]


def posts(processes: int | None = None, *, local: int = 0) -> tuple[Post, ...]:
    """Who works: one process holds the calls, and one per further core checks; a single process does everything.

    Beyond those, ``local`` processes run the local model.
    """
    if processes is None:
        processes = max(2, os.cpu_count() or 1)
    if processes == 1:
        return (Post("all", ("generate", "check", "submit")), *local_posts(local))
    checking = (Post(f"check-{number}", ("check",)) for number in range(1, processes))
    return (Post("generate", ("generate", "submit")), *checking, *local_posts(local))


def checking_posts(*, local: int = 0) -> tuple[Post, ...]:
    """Who works when there is nothing to generate: a process per core that checks, and those with the local model."""
    processes = os.cpu_count() or 1
    return (*(Post(f"check-{number}", ("check",)) for number in range(1, processes + 1)), *local_posts(local))


def local_posts(processes: int) -> Iterator[Post]:
    """Who runs the local model: each process loads it for itself."""
    return (Post(f"local-{number}", ("local",)) for number in range(1, processes + 1))


def local_processes(settings: Settings) -> int:
    """How many processes are to run the local model; none without one."""
    return settings.local_model_processes if settings.local_model is not None else 0


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker process that runs."""

    post: Post
    process: psutil.Process = field(repr=False)
    passing: bool
    """Whether the last command that uses the home stops it."""
    settings: str
    """Fingerprint of the settings it was started with."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


class Crew:
    """The worker processes of a home that serve the same servers.

    Args:
        place: the home.
        servers: tells the servers apart that workers of one home may be for; empty for the embedded ones.
        fingerprint: of the settings that workers are started with.
    """

    def __init__(self, place: Place, servers: str = "", fingerprint: str = "") -> None:
        self._place = place
        self._suffix = f"@{servers}" if servers else ""
        self.fingerprint = fingerprint

    def log(self, name: str) -> Path:
        """Where a worker writes."""
        return self._place.logs / f"{name}{self._suffix}.log"

    def running(self) -> dict[str, Hand]:
        """The workers that run for our servers, by name."""
        return {hand.post.name: hand for hand in self._hands() if hand is not None}

    def ended(self) -> set[str]:
        """The workers that were started and not stopped, yet run no more."""
        return {record.name.removesuffix(self._ending) for record in self._records()} - self.running().keys()

    @property
    def _ending(self) -> str:
        return f"{self._suffix}.pid"

    def _records(self) -> list[Path]:
        return [
            path for path in _all_records(self._place) if path.stem.partition("@")[2] == self._suffix.removeprefix("@")
        ]

    def _hands(self) -> Iterable[Hand | None]:
        return (_hand(record) for record in self._records())

    def start(self, post: Post, *, passing: bool) -> bool:
        """Start a worker unless it runs; tell whether this call did. Raises ``WorkerFailed``."""
        record = self._place.workers / f"{post.name}{self._ending}"
        with self._place.starting(GUARD_S):
            # With the guard held and no worker to be seen, its process is on its way, or has not quite gone.
            found = poll(lambda: _hand(record) or guard_is_free(_identity(record)), GUARD_S)
            if isinstance(found, Hand):
                return False
            self._start(post, record, passing=passing)
        return True

    def _start(self, post: Post, record: Path, *, passing: bool) -> None:
        _ready(record).unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "worker.cli", "worker", "--queues", ",".join(post.queues), "--record", str(record),
        ]  # fmt: skip
        with hold_guard(_identity(record), GUARD_S) as guard:
            # Known before it is born: if we die in between, the guard leads from the record to the process.
            _note(record, 0, post.queues, passing=passing, settings=self.fingerprint)
            pid = self._spawn(command, self.log(post.name), guard)
            _note(record, pid, post.queues, passing=passing, settings=self.fingerprint)

    def _spawn(self, command: list[str], log: Path, guard: int) -> int:
        descriptor = open_append(log)
        try:
            done = subprocess.run(  # noqa: S603 - the shell text is constant, the command goes in as arguments
                ["/bin/sh", "-c", _DETACH, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=descriptor,
                check=True,
                # From where our packages are found, whatever directory the command was given in.
                cwd=Path(worker.__file__).parents[1],
                env=self._environment(),
                pass_fds=(guard,),
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"a worker process can't be started: {error}") from error
        except subprocess.CalledProcessError as error:
            raise WorkerFailed(f"a worker process can't be started: its shell ended with {error.returncode}") from error
        finally:
            os.close(descriptor)
        return int(done.stdout)

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "NIGHTDESK_HOME": str(self._place.root)}
        for name in ("NIGHTDESK_CONFIG", "NIGHTDESK_CALIBRATION", "NIGHTDESK_LOCAL_MODEL"):
            # A local model may also be named by an import path.
            if (path := environment.get(name)) and (name != "NIGHTDESK_LOCAL_MODEL" or Path(path).is_dir()):
                environment[name] = str(Path(path).absolute())
        return environment

    def keep(self) -> None:
        """Let the workers that run stay when the commands that started them end."""
        for record in self._records():
            hand = _hand(record)
            if hand is not None and hand.passing:
                _note(record, hand.pid, hand.post.queues, passing=False, settings=hand.settings)

    def await_ready(self, names: Iterable[str], seconds: float) -> list[str]:
        """Wait until workers listen; returns those that don't yet. Raises ``WorkerFailed`` for one that ended."""
        waiting = list(names)

        def look() -> bool:
            running = self.running()
            for name in list(waiting):
                record = self._place.workers / f"{name}{self._ending}"
                if name not in running:
                    raise WorkerFailed(self.last_words(name))
                if _ready(record).exists():
                    waiting.remove(name)
            return not waiting

        poll(look, seconds)
        return waiting

    def last_words(self, name: str) -> str:
        """What to say of a worker that ended by itself."""
        return f"the worker {name} ended by itself. The end of {self.log(name)}:\n{tail(self.log(name), 15)}"

    def ask_to_end(self, names: Iterable[str]) -> list[Hand]:
        """Ask workers to finish the calls in flight and end; returns those that run."""
        running = self.running()
        asked = [running[name] for name in names if name in running]
        for hand in asked:
            send_signal(hand.process, signal.SIGTERM)
        return asked

    def await_end(self, hands: Iterable[Hand], seconds: float) -> list[Hand]:
        """Wait for workers to end and forget those that did; returns those that still run."""
        left = list(hands)

        def look() -> bool:
            for hand in [hand for hand in left if not is_alive(hand.process)]:
                self._forget(hand.post.name)
                left.remove(hand)
            return not left

        poll(look, seconds)
        return left

    def clear(self) -> None:
        """Forget the workers that ended by themselves."""
        for name in self.ended():
            self._forget(name)

    def _forget(self, name: str) -> None:
        record = self._place.workers / f"{name}{self._ending}"
        record.unlink(missing_ok=True)
        _ready(record).unlink(missing_ok=True)


def note_ready(record: Path) -> None:
    """Called in a worker: say that it listens."""
    write_atomically(_ready(record), "")


def _note(record: Path, pid: int, queues: tuple[str, ...], *, passing: bool, settings: str) -> None:
    about = {"queues": queues, "passing": passing, "settings": settings}
    write_atomically(record, f"{pid}\n{orjson.dumps(about).decode()}\n")


def _ready(record: Path) -> Path:
    return record.with_suffix(".ready")


def _identity(record: Path) -> Identity:
    return Identity("nightdesk worker", str(record), record, record.with_suffix(".guard"))


def _hand(record: Path) -> Hand | None:
    """The worker of a record, if it runs."""
    try:
        first, _, rest = record.read_text(encoding="utf-8").partition("\n")
        pid = int(first)
        about = orjson.loads(rest)
        post = Post(record.stem.partition("@")[0], tuple(about["queues"]))
        passing, settings = bool(about["passing"]), str(about["settings"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    process = _process(record, pid)
    if process is None and not guard_is_free(_identity(record)):
        # The guard is held, but the process id is wrong: look for whoever holds it.
        process = next((found for pid in psutil.pids() if (found := _process(record, pid))), None)
    return None if process is None else Hand(post, process, passing, settings)


def _process(record: Path, pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        arguments = process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return process if str(record) in arguments and is_alive(process) else None


def crew_of(settings: Settings, place: Place) -> Crew:
    """The workers of a home for the servers that the settings name."""
    # Secrets go in masked: it tells whether two processes have the same settings, no more.
    fingerprint = hashlib.sha256(settings.model_dump_json(exclude={"home"}).encode()).hexdigest()[:16]
    return Crew(place, "" if embedded(settings) else _server_key(settings), fingerprint)


def crews_in(place: Place) -> list[Crew]:
    """The workers of a home, whatever servers they are for."""
    return [Crew(place, servers) for servers in sorted({path.stem.partition("@")[2] for path in _all_records(place)})]


def _all_records(place: Place) -> list[Path]:
    return sorted(place.workers.glob("*.pid"))


def _server_key(settings: Settings) -> str:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    urls = [url.get_secret_value() for url in (settings.database_url, settings.redis_url)]
    return hashlib.sha256(repr([(hosts_of(url), urlsplit(url).path) for url in urls]).encode()).hexdigest()[:8]
