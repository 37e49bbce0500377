"""Chooses the operating system account of the servers, and tests its access to directories.

PostgreSQL refuses to run as root. Root therefore runs the servers under an account without rights; any other user runs
them under the own account. No account is ever created and no permission on an existing path is ever widened.
"""

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.local import HomeError

_UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """The account of the servers; ``switch`` is True if the caller must change to it."""

    uid: int
    gid: int
    switch: bool

    @property
    def name(self) -> str:
        """The account's name, or its number without a name."""
        return owner_name(self.uid)

    def run(
        self, command: Sequence[str | Path], *, timeout_s: float = 120.0, holding: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end as this account, with a clean environment, and returns its output.

        The command inherits the open file ``holding``, and with it the lock on the file, even if it outlives the caller.

        Raises: OSError if the account cannot execute it; subprocess.TimeoutExpired after ``timeout_s`` seconds.
        """
        return subprocess.run(  # noqa: S603 - callers pass our own programs and paths, no shell text
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=self.environment,
            umask=0o077,
            pass_fds=() if holding is None else (holding,),
            timeout=timeout_s,
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=() if self.switch else None,
        )

    def can_enter(self, directory: Path) -> bool:
        """Tells whether the account can enter a directory, by trial, because modes do not show ACLs or mounts."""
        return not self.switch or self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0

    def chown(self, path: Path) -> None:
        """Changes the owner of a new file or directory to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the servers, without any variable of the caller, which may contain API keys.

        A clean environment also keeps PGDATA, PGPORT and the like from changing their behaviour.
        """
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def choose_account(home: Path, existing_data: Path | None, run_as: str | None) -> Account:
    """Chooses the account for a home.

    The owner of existing data comes first, then ``run_as``, then the owner of home.

    Raises: HomeError if the data belongs to an account that the caller cannot use, or the account does not exist.
    """
    caller = os.geteuid()
    if existing_data is not None:
        owner = existing_data.stat()
        if caller not in (0, owner.st_uid):
            raise HomeError(
                f"{existing_data} belongs to {owner_name(owner.st_uid)}, and you are {owner_name(caller)}: run this as "
                f"{owner_name(owner.st_uid)} or root, or set NIGHTDESK_HOME to a directory of your own."
            )
        if owner.st_uid == 0:
            raise HomeError(
                f"{existing_data} belongs to root, and PostgreSQL refuses to run as root: give it to the account it "
                f"belonged to before (chown -R), or set NIGHTDESK_HOME to another directory."
            )
        return Account(owner.st_uid, owner.st_gid, switch=caller == 0)
    if caller != 0:
        return Account(caller, os.getegid(), switch=False)
    return _account_for_root(home, run_as)


def owner_name(uid: int) -> str:
    """Returns the name of a user id, or the number if the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _account_for_root(home: Path, run_as: str | None) -> Account:
    owner = home.stat()
    if run_as is None and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, switch=True)
    name = run_as or _UNPRIVILEGED
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise HomeError(
            f"There is no account '{name}' to run the embedded servers under, and PostgreSQL refuses to run as root: "
            f"name an existing unprivileged account, or run this as a normal user."
        ) from None
    if entry.pw_uid == 0:
        raise HomeError(f"The account '{name}' is root itself, and PostgreSQL refuses to run as root: name another.")
    return Account(entry.pw_uid, entry.pw_gid, switch=True)
