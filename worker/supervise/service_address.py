"""Notes the address of the running HTTP service in its home, for the commands that point to its pages."""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import orjson

from worker.supervise.files import write_atomically

log = logging.getLogger(__name__)

_FILE = "service.json"

_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True, slots=True)
class _Note:
    address: str
    pid: int
    born: float
    """Time of its birth in seconds: a process id is used again."""


def note_service(home: Path, address: str) -> None:
    """Writes the address of this process; that of a service which began before is replaced.

    A service with servers of its own may begin with no home at all, or with one that can't be written.
    """
    import psutil  # noqa: PLC0415 - as in service_address

    process, path = psutil.Process(), _path(home)
    note = _Note(_for_people(address), process.pid, process.create_time())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, orjson.dumps(asdict(note)).decode())
    except OSError as error:
        log.warning("commands will not name the address of this service, %s can't be written: %s", path, error.strerror)


def forget_service(home: Path) -> None:
    """Removes the note of this process; that of another one stays."""
    note = _read(home)
    if note is not None and note.pid == os.getpid():
        _path(home).unlink(missing_ok=True)


def service_address(home: Path) -> str | None:
    """The address of the service that runs with this home, such as ``http://127.0.0.1:8080``; None: none runs."""
    note = _read(home)
    if note is None:
        return None
    import psutil  # noqa: PLC0415 - where no service runs nothing is looked for

    try:
        alive = psutil.Process(note.pid).create_time() == note.born
    except psutil.Error:
        return None
    return note.address if alive else None


def batch_address(home: Path, batch_id: UUID) -> str | None:
    """The address of the page of a batch; None: no service runs with this home."""
    address = service_address(home)
    return None if address is None else f"{address}/view/batches/{batch_id}"


def job_address(home: Path, job_id: UUID) -> str | None:
    """The address of the page of a job; None: no service runs with this home."""
    address = service_address(home)
    return None if address is None else f"{address}/view/jobs/{job_id}"


def _path(home: Path) -> Path:
    return home.expanduser().absolute() / _FILE


def _read(home: Path) -> _Note | None:
    try:
        note = orjson.loads(_path(home).read_bytes())
        return _Note(str(note["address"]), int(note["pid"]), float(note["born"]))
    except (OSError, ValueError, TypeError, KeyError):
        # There is none, or another version wrote it: the service is found by people then.
        return None


def _for_people(address: str) -> str:
    """The address with a name for this machine in place of one that stands for all its addresses."""
    parts = urlsplit(address)
    if parts.hostname not in _ANY_ADDRESS:
        return address
    return urlunsplit(parts._replace(netloc=f"localhost:{parts.port}"))
