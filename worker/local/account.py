"""Decides which operating system account the servers run under, and tells what that account can reach.

PostgreSQL refuses to run as root. So root hands the servers to an account without rights, and anybody else runs them
as himself. No account is ever created and no permission on an existing path is ever widened.
"""

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.local.errors import HomeError

__all__ = ["Account", "choose_account", "owner_name"]

_UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """The account the servers run under; ``switch`` says whether the caller has to change to it."""

    uid: int
    gid: int
    switch: bool

    @property
    def name(self) -> str:
        """The account's name, or its number when it has none."""
        return owner_name(self.uid)

    def run(
        self, command: Sequence[str | Path], *, timeout_s: float = 120.0, holding: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end as this account, with a clean environment, and return its output.

        The command keeps the open file ``holding``, and with it the lock on it, even when it outlives us.

        Raises: OSError when the account cannot execute it; subprocess.TimeoutExpired after ``timeout_s`` seconds.
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
        """Tell whether the account can reach a directory, by trying: modes alone do not know of ACLs or mounts."""
        return not self.switch or self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0

    def own(self, path: Path) -> None:
        """Hand a file or directory that the caller has just made to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    @property
    def environment(self) -> dict[str, str]:
        """What the servers see of the environment: nothing of ours, since they outlive us and we may hold API keys.

        It also keeps PGDATA, PGPORT and the like from steering them.
        """
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def choose_account(home: Path, existing_data: Path | None, run_as: str | None) -> Account:
    """Choose the account for a home.

    Data that exists decides: whoever owns it runs the servers. Then ``run_as``, then the owner of home.

    Raises: HomeError when the data belongs to somebody the caller cannot become, or the account does not exist.
    """
    me = os.geteuid()
    if existing_data is not None:
        owner = existing_data.stat()
        if me not in (0, owner.st_uid):
            raise HomeError(
                f"{existing_data} belongs to {owner_name(owner.st_uid)}, and you are {owner_name(me)}: run this as "
                f"{owner_name(owner.st_uid)} or root, or set NIGHTDESK_HOME to a directory of your own."
            )
        if owner.st_uid == 0:
            raise HomeError(
                f"{existing_data} belongs to root, and PostgreSQL refuses to run as root: give it to the account it "
                f"belonged to before (chown -R), or set NIGHTDESK_HOME to another directory."
            )
        return Account(owner.st_uid, owner.st_gid, switch=me == 0)
    if me != 0:
        return Account(me, os.getegid(), switch=False)
    return _account_for_root(home, run_as)


def owner_name(uid: int) -> str:
    """Return the name of a user id, or the number when the system knows no name for it."""
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
