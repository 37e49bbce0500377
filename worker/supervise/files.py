"""Creates the files and directories of a home, each with the owner of the parent directory.

This rule keeps a home usable for its owner after root has worked in it, and gives the servers' directories to their
account. Writing never follows symbolic links, because root writes into directories of a less trusted account.
"""

import fcntl
import os
import secrets
import stat
from pathlib import Path

_LOG_LIMIT_BYTES = 16 * 1024 * 1024  # enough for weeks of an embedded server; one older file is kept beside it


def make_directory(path: Path, mode: int) -> None:
    """Creates a directory with exactly this mode, for any umask; an existing directory stays unchanged."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    path.chmod(mode)
    _give_to_owner_of(path.parent, path)


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file's content in one step, readable (0600) by its owner only.

    The content is on disk before the name points to it, so after a crash the file is either the old or the new one.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            _give_to_owner_of(path.parent, descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Writes the creations and renames in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_append(path: Path) -> int:
    """Opens a log for appending and returns its descriptor; a large log is renamed first."""
    if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return _open_owned(path, os.O_WRONLY | os.O_APPEND)


def open_lock(path: Path) -> int:
    """Opens a lock file, which has no content, and returns its descriptor."""
    return _open_owned(path, os.O_RDWR)


def try_lock(descriptor: int) -> bool:
    """Takes an exclusive lock on an open file; returns False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def tail(path: Path, lines: int = 20) -> str:
    """Returns the last lines of a text file, or an empty string without a file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16_384))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def _open_owned(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _give_to_owner_of(path.parent, descriptor)
    return descriptor


def _give_to_owner_of(directory: Path, target: Path | int) -> None:
    if os.geteuid() != 0:  # only root can give a file away
        return
    owner = directory.stat()
    current = os.fstat(target) if isinstance(target, int) else target.lstat()
    if (current.st_uid, current.st_gid) == (owner.st_uid, owner.st_gid):
        return
    if isinstance(target, int):
        os.fchown(target, owner.st_uid, owner.st_gid)
    elif not stat.S_ISLNK(current.st_mode):
        os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
