"""Asks the fork server for a process; as a program, is a Python of which a fork of that server does the work.

The program is run without site packages and knows of Python's arguments only ``-c``: all that a parallel test run gives it.
"""

import array
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence


def request_process(
    server: socket.socket,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    *,
    session: bool = False,
    code: str | None = None,
) -> int:
    """Let the server fork and return the id of the process; descriptors: the three standard ones, and as in ``Request``."""
    with tempfile.TemporaryFile() as request:
        request.write(json.dumps([list(arguments), dict(environment), session, code]).encode())
        request.flush()
        passed = array.array("i", [request.fileno(), *descriptors])
        server.sendmsg([b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    answer = server.recv(16)
    if not answer:
        raise RuntimeError("the fork server ended")
    return int(answer)


def main() -> int:
    """Do as ``python -c``: arguments are the server's socket, what Python takes, and the code last."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(sys.argv[1])
        exit_code, exit_code_end = os.pipe()
        request_process(server, ["-c"], os.environ, [0, 1, 2, exit_code_end], code=sys.argv[-1])
        for closed in (0, 1, exit_code_end):  # the caller sees by them that the process ended
            os.close(closed)
        return int(os.read(exit_code, 16) or 1)  # while connected: the server kills the process of one that is gone


if __name__ == "__main__":
    os._exit(main() & 0xFF)
