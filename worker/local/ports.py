"""Chooses a loopback port per server once, stores it, and chooses again only if another program has it."""

import json
import secrets
import socket
from pathlib import Path

from worker.local.errors import HomeError
from worker.supervise.files import write_atomically

__all__ = ["LOOPBACK", "claim_port", "is_free", "stored_port"]

LOOPBACK = "127.0.0.1"
# Below every usual range for outgoing connections (Linux 32768 and up, macOS and IANA 49152 and up): any client can
# occupy a port of that range while the server is down, and a poll of it can even connect to itself.
_PORTS = range(20_000, 30_000)
_TRIES = 200


def stored_port(file: Path, name: str) -> int | None:
    """Returns the last port of a server, or None if it never had one."""
    port = _read(file).get(name)
    return port if isinstance(port, int) else None


def claim_port(file: Path, name: str) -> int:
    """Returns the stored port if it is free, else chooses and stores another.

    Nothing reserves the port until the server listens, so the server may still lose it; the caller then calls again.

    Raises: HomeError without a free port.
    """
    ports = _read(file)
    port = ports.get(name)
    if isinstance(port, int) and is_free(port):
        return port
    used = set(ports.values())
    for _ in range(_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        if port not in used and is_free(port):
            write_atomically(file, json.dumps({**ports, name: port}))
            return port
    raise HomeError(
        f"No free port between {_PORTS.start} and {_PORTS.stop - 1} on {LOOPBACK} after {_TRIES} tries: see what "
        f"listens there, or set NIGHTDESK_DATABASE_URL and NIGHTDESK_REDIS_URL to servers that run already."
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


def _read(file: Path) -> dict[str, object]:
    try:
        ports = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a lost or damaged file costs a new port, nothing more
        return {}
    return ports if isinstance(ports, dict) else {}
