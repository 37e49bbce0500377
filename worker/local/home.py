"""Lays out a home directory: the paths of data and logs, the ports, the passwords, and the lock around them.

Under ``home/local``: ``lock``, ``secrets.json``, ``ports.json``, ``logs/``, one ``*.guard`` per server, and ``data``,
which is a directory, or a symbolic link if the servers' account cannot reach home (a home under /root).
"""

import errno
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from worker.local import HomeError, LocalOptions
from worker.local.programs import Account, choose_account
from worker.supervise.files import make_directory, write_atomically
from worker.supervise.processes import ProcessError, exclusive_lock

LOOPBACK = "127.0.0.1"
# Below every usual range for outgoing connections (Linux 32768 and up, macOS and IANA 49152 and up): any client can
# occupy a port of that range while the server is down, and a poll of it can even connect to itself.
_PORTS = range(20_000, 30_000)
_PORT_TRIES = 200
_DATA_NAMES = ("postgres", "valkey")
# Others may pass through but not list: the servers' account must reach its own directory below.
_PASS_THROUGH = 0o711


@dataclass(frozen=True, slots=True)
class Passwords:
    """The generated passwords of one home; neither repr nor logs contain them."""

    postgres_superuser: str = field(repr=False)
    postgres: str = field(repr=False)
    valkey: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home; its construction changes nothing on disk."""

    root: Path
    local: Path
    data: Path
    logs: Path
    ports: Path

    @classmethod
    def at(cls, home: Path) -> "Home":
        """Returns the layout for a home in any spelling: relative, with ``~``, through symbolic links."""
        root = home.expanduser().resolve()
        local = root / "local"
        return cls(root=root, local=local, data=local / "data", logs=local / "logs", ports=local / "ports.json")

    def exists(self) -> bool:
        """Tells whether servers were ever started here.

        Raises: HomeError if the caller has no access.
        """
        try:
            present = self.local.is_dir()
        except PermissionError as error:
            raise self._not_ours(error) from error
        if present and not os.access(self.local, os.R_OK | os.W_OK | os.X_OK):
            raise self._not_ours(PermissionError(f"no access to {self.local}"))
        return present

    def create(self) -> None:
        """Creates the missing directories; a second call changes nothing.

        Raises: HomeError if home cannot be created or written to.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            make_directory(self.local, _PASS_THROUGH if os.geteuid() == 0 else 0o700)
            make_directory(self.logs, 0o700)
        except OSError as error:
            raise self._not_ours(error) from error

    @contextmanager
    def lock(self, seconds: float) -> Iterator[None]:
        """Locks the home across processes and threads; the system releases the lock when its process dies.

        Raises: HomeError if another process has the lock for ``seconds``; also in place of an OSError or ProcessError inside
        the context, so that callers get errors of this package only.
        """
        refusal = HomeError(
            f"Another process has been starting or stopping the servers of {self.root} for {seconds:g} s: wait for it to "
            f"finish, or end it, then try again."
        )
        try:
            with exclusive_lock(self.local / "lock", seconds, refusal):
                yield
        except ProcessError as error:
            raise HomeError(str(error)) from error
        except OSError as error:  # a full disk, a read-only mount, a file of another account
            raise self._not_ours(error) from error

    def passwords(self, *, create: bool = True) -> Passwords:
        """Returns the passwords of this home; by default generates and stores them (0600) on first use.

        Raises: HomeError if there are none, or if they are missing while their data exists.
        """
        path = self.local / "secrets.json"
        try:
            return Passwords(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            if not create or (self.data / "postgres").is_dir():
                raise HomeError(
                    f"{path} is missing, but its database is still there: restore that file from a copy, or stop the "
                    f"servers and delete {self.local} to begin again, without the data."
                ) from None
        except PermissionError as error:
            raise self._not_ours(error) from error
        except (ValueError, TypeError):
            raise HomeError(
                f"{path} is damaged: restore it from a copy, or stop the servers and delete {self.local} to begin "
                f"again, without the data."
            ) from None
        fresh = {name: secrets.token_urlsafe(24) for name in ("postgres_superuser", "postgres", "valkey")}
        write_atomically(path, json.dumps(fresh))
        return Passwords(**fresh)

    def port(self, name: str) -> int | None:
        """Returns the last port of a server, or None if it never had one."""
        port = self._stored_ports().get(name)
        return port if isinstance(port, int) else None

    def claim_port(self, name: str) -> int:
        """Returns the stored port if it is free, else chooses and stores another.

        Nothing reserves the port until the server listens, so the server may still lose it; the caller then calls again.

        Raises: HomeError without a free port.
        """
        ports = self._stored_ports()
        port = ports.get(name)
        if isinstance(port, int) and is_free(port):
            return port
        used = set(ports.values())
        for _ in range(_PORT_TRIES):
            port = _PORTS.start + secrets.randbelow(len(_PORTS))
            if port not in used and is_free(port):
                write_atomically(self.ports, json.dumps({**ports, name: port}))
                return port
        raise HomeError(
            f"No free port between {_PORTS.start} and {_PORTS.stop - 1} on {LOOPBACK} after {_PORT_TRIES} tries: see what "
            f"listens there, or set NIGHTDESK_DATABASE_URL and NIGHTDESK_REDIS_URL to servers that run already."
        )

    def _stored_ports(self) -> dict[str, object]:
        try:
            ports = json.loads(self.ports.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # a lost or damaged file costs a new port, nothing more
            return {}
        return ports if isinstance(ports, dict) else {}

    def prepare_data(self, options: LocalOptions) -> Account:
        """Finds or creates the data directory and returns the account of its content.

        Raises: HomeError if the data belongs to another home.
        """
        existing = next((self.data / name for name in _DATA_NAMES if (self.data / name).is_dir()), None)
        account = choose_account(self.root, existing)
        if not self.data.exists():
            self._place_data(account, options.shared_root)
        self._check_belongs_here()
        return account

    def check_reach(self, account: Account) -> None:
        """Tries whether the account can reach the data.

        Raises: HomeError if not.
        """
        if not account.can_enter(self.data.resolve()):
            raise HomeError(
                f"The account '{account.name}', which runs the servers, cannot reach {self.data.resolve()}: let it "
                f"pass through the directories above (chmod o+x), or move the home elsewhere."
            )

    def data_directory(self, name: str, account: Account) -> Path:
        """Creates one server's own directory (0700, owned by the account) if missing, and returns its real path."""
        path = self.data.resolve() / name
        if not path.is_dir():
            make_directory(path, 0o700)
            account.chown(path)
        return path

    def _place_data(self, account: Account, shared_root: Path) -> None:
        """Creates the data under home if the account can reach it, else under ``shared_root`` with a link to it."""
        if self.data.is_symlink():
            raise HomeError(
                f"{self.data} points to {self.data.readlink()}, which is missing: restore it (is a disk not "
                f"mounted?), or remove {self.local} to begin again."
            )
        make_directory(self.data, _PASS_THROUGH if account.switch else 0o700)
        if account.can_enter(self.data):
            return
        # A random part in the name: a home that is removed and created again must not get the data of the old one.
        target = shared_root / "homes" / f"{self.root.name or 'root'}-{secrets.token_hex(6)}"
        try:
            shared_root.parent.mkdir(parents=True, exist_ok=True)
            for directory in (shared_root, target.parent, target):
                make_directory(directory, _PASS_THROUGH)
        except OSError as error:
            raise HomeError(
                f"'{account.name}' cannot reach {self.root}, and {target} cannot be made ({error.strerror}): choose "
                f"a home that every account can pass through, for example below /srv or /var/tmp."
            ) from error
        write_atomically(target / "home", str(self.root))
        self.data.rmdir()
        self.data.symlink_to(target)

    def _check_belongs_here(self) -> None:
        """Refuses data that another existing home points to: a copied home must not share live files."""
        if not self.data.is_symlink():
            return
        note = self.data.resolve() / "home"
        other = Path(note.read_text(encoding="utf-8")) if note.exists() else self.root
        if other != self.root:
            link = other / "local" / "data"
            if link.is_symlink() and link.resolve() == self.data.resolve():
                raise HomeError(
                    f"{self.root} looks like a copy of {other}, and both point to {self.data.resolve()}: remove "
                    f"{self.local} to give the copy servers of its own."
                )
            write_atomically(note, str(self.root))  # the home was moved, not copied

    def _not_ours(self, error: OSError) -> HomeError:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return HomeError(f"the disk of {self.root} is full: make room there. Nothing that was stored is lost")
        return HomeError(
            f"{self.root} cannot be used ({error}): run this as its owner, or set NIGHTDESK_HOME to a directory of your own."
        )


def is_free(port: int) -> bool:
    """Tells whether a server can listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The servers set it too: lingering connections of an earlier run do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
