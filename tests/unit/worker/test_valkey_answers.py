"""The embedded Valkey is asked for an answer over a plain socket: each reply means what the Redis library made of it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.local import StartError
from worker.local.valkey_server import ValkeyServer

SERVER = ValkeyServer(Path(), Path("guard"), Path("log"), password="se cret\r\n")


@contextmanager
def replying(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port of a server that reads one command, gives one reply and hangs up; what it read is in the list."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                requests.append(connection.recv(1_000))
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], requests
        thread.join()


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        (b"+OK\r\n+PONG\r\n", True),
        (b"+OK\r\n-LOADING Valkey is loading the dataset in memory\r\n", False),
        (b"-ERR max number of clients reached\r\n", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
    ],
)
def test_only_a_login_and_a_pong_are_an_answer(reply: bytes, *, answers: bool) -> None:
    with replying(reply) as (port, requests):
        assert SERVER.answers(port) is answers
    assert requests == [b"*2\r\n$4\r\nAUTH\r\n$9\r\nse cret\r\n\r\n*1\r\n$4\r\nPING\r\n"]


@pytest.mark.parametrize(
    "reply",
    [
        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n-NOAUTH Authentication required.\r\n",
        b"-ERR AUTH <password> called without any password configured for the default user.\r\n+PONG\r\n",
    ],
)
def test_a_server_that_refuses_the_password_is_another_one(reply: bytes) -> None:
    with replying(reply) as (port, _), pytest.raises(StartError, match="refuses the password of this home"):
        SERVER.answers(port)


def test_a_port_where_nothing_listens_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert SERVER.answers(port) is False
