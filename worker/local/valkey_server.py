"""Runs Valkey durably: configuration, command line and health check."""

import hashlib
import signal
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.exceptions import AuthenticationError, RedisError

from worker.local import StartError
from worker.local.home import LOOPBACK
from worker.local.programs import Account, Binaries
from worker.settings import CANARY
from worker.supervise.files import write_atomically
from worker.supervise.processes import Identity

_PATIENCE_S = 1.0  # for one PING; repeated until the caller's deadline

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
            with self._connect(port) as client:
                return bool(client.ping())
        except (RedisError, OSError) as error:
            # A server without a password has no error of its own for one.
            if not isinstance(error, AuthenticationError) and "AUTH" not in str(error):
                return False
            raise StartError(
                f"The server on {LOOPBACK}:{port} refuses the password of this home, so it is another server: "
                f"end it, or stop the servers of this home and start them again to get another port."
            ) from error

    def settle(self, port: int) -> None:
        """Tells workers whether results may be lost: after a clean stop they need publish none again."""
        if self._first_command.exists():
            with self._connect(port) as client:
                client.execute_command(*self._first_command.read_text().split("\n"))
            self._first_command.unlink()

    def _connect(self, port: int) -> redis.Redis:
        return redis.Redis(
            LOOPBACK, port, password=self.password, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S
        )


def _quote(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
