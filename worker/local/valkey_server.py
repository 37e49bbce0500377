"""Runs Valkey durably: configuration, command line and health check."""

import hashlib
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path

from worker.local import StartError
from worker.local.home import LOOPBACK
from worker.local.programs import Account, Binaries
from worker.settings import CANARY
from worker.supervise.files import write_atomically
from worker.supervise.processes import Identity

_PATIENCE_S = 1.0  # for one PING; repeated until the caller's deadline

_REPLY_BYTES = 1_000

_LOGIN_REFUSED = (b"WRONGPASS", b"AUTH", b"invalid password")
"""Marks of an error reply to a login that another password, or none, would satisfy."""

_CONFIGURATION = """\
# Rewritten at each start.
bind {host}
port {port}
protected-mode yes
# Only the password's hash: the password itself is in one file, in the home.
user default reset on #{password_hash} ~* &* +@all

# A crash loses the last second or two at most. PostgreSQL holds the truth, so an fsync per command would buy nothing.
appendonly yes
appendfsync everysec
# A crash cuts the log in the middle of a command: drop that command and start.
aof-load-truncated yes
# The log alone restores everything; snapshots beside it would cost a fork each.
save ""

# A queue must never lose a message to make room. At the limit writes fail, visibly, before the machine runs out.
maxmemory 1gb
maxmemory-policy noeviction

dir {directory}
pidfile {pid_file}
# Output goes to the log file it was started with; a session of its own is made by the caller.
logfile ""
daemonize no
supervised no
# Keep the command line as given: it is how this server is recognised.
set-proc-title no
"""


_KEEP_CANARY = (
    "EVAL",
    "redis.call('SET', KEYS[1], redis.call('INFO', 'server'):match('run_id:(%w+)'), 'XX')",
    "1",
    CANARY,
)
"""After a clean stop, which writes everything to disk: the canary, if there is one, holds for this run."""
_DROP_CANARY = ("DEL", CANARY)
"""After a crash: a later clean stop must not say that nothing was lost."""


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """The Valkey of one home."""

    directory: Path
    guard: Path
    log: Path
    password: str = field(repr=False)

    name = "valkey"
    stop_signal = signal.SIGTERM  # saves everything and ends without waiting for clients

    @property
    def configuration(self) -> Path:
        """The configuration file."""
        return self.directory / "valkey.conf"

    @property
    def identity(self) -> Identity:
        """The identity of its process."""
        return Identity(
            name=self.name,
            program="valkey-server",
            argument=str(self.configuration),
            pid_file=self.directory / "valkey.pid",
            guard=self.guard,
        )

    @property
    def _first_command(self) -> Path:
        """The file of a command that waits for a started server to answer; where the server's account can't write."""
        return self.guard.with_name("valkey.first")

    def prepare(self, port: int, account: Account, guard: int, programs: Binaries) -> None:  # noqa: ARG002 - none runs here
        """Writes the configuration; called only while the server is down."""
        # The server itself removes its pid file when it is stopped; a crash leaves it.
        command = _DROP_CANARY if self.identity.pid_file.exists() else _KEEP_CANARY
        write_atomically(self._first_command, "\n".join(command))
        text = _CONFIGURATION.format(
            host=LOOPBACK,
            port=port,
            password_hash=hashlib.sha256(self.password.encode()).hexdigest(),
            directory=_quote(self.directory),
            pid_file=_quote(self.identity.pid_file),
        )
        write_atomically(self.configuration, text)

    def command(self, programs: Binaries) -> list[str]:
        """Returns the command line that runs it in the foreground."""
        return [str(programs.valkey), str(self.configuration)]

    def answers(self, port: int) -> bool:
        """Tells whether it answers PING; False while it starts or replays its log.

        Raises: StartError if it refuses the password.
        """
        try:
            login, ping = self._ask(port, "PING")
        except OSError:
            return False
        if any(word in login for word in _LOGIN_REFUSED):
            raise StartError(
                f"The server on {LOOPBACK}:{port} refuses the password of this home, so it is another server: "
                f"end it, or stop the servers of this home and start them again to get another port."
            )
        return login == b"+OK\r\n" and ping == b"+PONG\r\n"

    def settle(self, port: int) -> None:
        """Tells workers whether results may be lost: after a clean stop they need publish none again."""
        if self._first_command.exists():
            self._ask(port, *self._first_command.read_text().split("\n"))
            self._first_command.unlink()

    def _ask(self, port: int, *command: str) -> list[bytes]:
        """Logs in and gives one command; returns the first line of both replies."""
        # By hand: every command asks this, and few of them need the Redis library, which takes long to load.
        with socket.create_connection((LOOPBACK, port), _PATIENCE_S) as connection:
            connection.sendall(_encoded("AUTH", self.password) + _encoded(*command))
            with connection.makefile("rb") as replies:
                return [replies.readline(_REPLY_BYTES) for _ in range(2)]


def _encoded(*words: str) -> bytes:
    """A command in Redis's protocol: no word, such as a password with a space, can end it."""
    lines = (b"$%d\r\n%b\r\n" % (len(word), word) for word in map(str.encode, words))
    return b"*%d\r\n" % len(words) + b"".join(lines)


def _quote(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
