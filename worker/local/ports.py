"""Chooses a loopback port per server once, remembers it, and chooses again only when somebody else has taken it."""

import json
import secrets
import socket
from pathlib import Path

from worker.local.errors import HomeError
from worker.local.files import write_atomically

__all__ = ["LOOPBACK", "claim_port", "is_free", "remembered_port"]

LOOPBACK = "127.0.0.1"
# Below every usual range for outgoing connections (Linux 32768 and up, macOS and IANA 49152 and up): a port from
# that range can be taken by any client while the server is down, and polling it can even connect to itself.
_PORTS = range(20_000, 30_000)
_TRIES = 200


def remembered_port(file: Path, name: str) -> int | None:
    """Return the port last chosen for a server, or None when it never had one."""
    port = _read(file).get(name)
    return port if isinstance(port, int) else None


def claim_port(file: Path, name: str) -> int:
    """Return the remembered port when it is free, else choose another and remember that.

    Nothing holds the port until the server listens, so a server can still find it taken; then call this again.

    Raises: HomeError when no free port is found.
    """
    known = _read(file)
    port = known.get(name)
    if isinstance(port, int) and is_free(port):
        return port
    taken = set(known.values())
    for _ in range(_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        if port not in taken and is_free(port):
            write_atomically(file, json.dumps({**known, name: port}))
            return port
    raise HomeError(
        f"No free port between {_PORTS.start} and {_PORTS.stop - 1} on {LOOPBACK} after {_TRIES} tries: see what "
        f"listens there, or set NIGHTDESK_DATABASE_URL and NIGHTDESK_REDIS_URL to servers that run already."
    )


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do it: connections of an earlier run that still linger do not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _read(file: Path) -> dict[str, object]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a lost or damaged note costs a new port, nothing more
        return {}
    return known if isinstance(known, dict) else {}
