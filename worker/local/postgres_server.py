"""Runs PostgreSQL durably on a small machine: data directory, configuration, command line, role and database."""

import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from worker.local import StartError
from worker.local.home import LOOPBACK
from worker.local.programs import Account, Binaries
from worker.supervise.files import make_directory, sync_directory, write_atomically
from worker.supervise.processes import Identity, is_alive

DATABASE = "nightdesk"
ROLE = "nightdesk"
SUPERUSER = "postgres"

_CONFIGURATION = """\
# Rewritten at each start; ALTER SYSTEM still overrides it.
listen_addresses = '{host}'
port = {port}
# A socket's path may have 107 bytes, and a home may lie deeper than that.
unix_socket_directories = ''
password_encryption = 'scram-sha-256'
# Workers, the HTTP side and a person with psql, with room; one connection costs a few MB when it is used.
max_connections = 200

# A commit is on disk before it is acknowledged: the ledger's promises rest on this.
fsync = on
synchronous_commit = on
full_page_writes = on
# The build at hand has no lz4, and pglz costs more processor time than the disk space is worth.
wal_compression = off
# A burst of submissions must not force checkpoints; by time they still come, which keeps crash recovery short.
max_wal_size = '4GB'
checkpoint_timeout = '10min'

# A small machine: the hot part of the ledger fits, and the file cache holds the rest.
shared_buffers = '256MB'
effective_cache_size = '1GB'
work_mem = '8MB'
maintenance_work_mem = '64MB'
# Short statements by key: compiling them, or spreading them over processes, takes longer than running them.
# Parallel queries also need more /dev/shm than a container has by default (64 MB).
jit = off
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
# Local disks read at random about as fast as in order.
random_page_cost = 1.1
# Job rows change state several times each: clear dead versions early, before scans feel them.
autovacuum_naptime = '15s'
autovacuum_vacuum_scale_factor = 0.05
autovacuum_analyze_scale_factor = 0.05

# To the log file the server was started with, in English, in UTC.
log_destination = 'stderr'
logging_collector = off
log_line_prefix = '%m [%p] %q%u@%d '
log_min_duration_statement = '1s'
log_lock_waits = on
lc_messages = 'C'
log_timezone = 'UTC'
timezone = 'UTC'
"""
_HBA = f"# Rewritten at each start. Loopback only, always with a password.\nhost all all {LOOPBACK}/32 scram-sha-256\n"


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """The PostgreSQL of one home."""

    directory: Path
    guard: Path
    log: Path
    superuser_password: str = field(repr=False)
    password: str = field(repr=False)

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": sessions are rolled back, a checkpoint is written

    @property
    def identity(self) -> Identity:
        """The identity of its process."""
        return Identity(
            name=self.name,
            program="postgres",
            argument=str(self.directory),
            pid_file=self.directory / "postmaster.pid",
            guard=self.guard,
        )

    @property
    def _password_file(self) -> Path:
        return self.directory.with_name("postgres.password")

    def prepare(self, port: int, account: Account, guard: int, programs: Binaries) -> None:
        """Creates the data directory if it is missing and writes the configuration; called only while the server is down.

        An initdb that outlives a killed start continues to write; it holds the guard, so the next start waits.

        Raises: StartError if initdb fails.
        """
        self._password_file.unlink(missing_ok=True)  # from a killed start
        if not (self.directory / "PG_VERSION").exists():
            self._initialise(account, guard, programs.initdb)
        self._drop_misleading_pid_file()
        write_atomically(self.directory / "postgresql.conf", _CONFIGURATION.format(host=LOOPBACK, port=port))
        write_atomically(self.directory / "pg_hba.conf", _HBA)

    def command(self, programs: Binaries) -> list[str]:
        """Returns the command line that runs it in the foreground."""
        return [str(programs.postgres), "-D", str(self.directory)]

    def answers(self, port: int) -> bool:
        """Tells whether it accepts connections; False while it starts or recovers.

        Raises: StartError if it refuses the password.
        """
        try:
            self._connect(port).close()
        except psycopg.OperationalError as error:
            # libpq gives no error code for a failed connection; the server's messages are in English.
            if "password authentication failed" in str(error):
                raise StartError(
                    f"The server on {LOOPBACK}:{port} refuses the password of this home: either it is another "
                    f"server, or secrets.json does not belong to this data. Stop and start the servers of this home; "
                    f"if that does not help, restore secrets.json."
                ) from error
            return False
        return True

    def settle(self, port: int) -> None:
        """Creates the role and the database if they are missing.

        Raises: StartError if the server refuses.
        """
        try:
            with self._connect(port) as connection:
                if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone() is None:
                    # Only the hash goes into the statement, because the log contains failed and slow statements.
                    password_hash = connection.pgconn.encrypt_password(
                        self.password.encode(), ROLE.encode(), b"scram-sha-256"
                    ).decode()
                    connection.execute(
                        sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                            sql.Identifier(ROLE), sql.Literal(password_hash)
                        )
                    )
                if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                    connection.execute(
                        sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(ROLE))
                    )
        except psycopg.Error as error:
            raise StartError(
                f"The database '{DATABASE}' cannot be made: {str(error).rstrip('.')}. See {self.log}."
            ) from error

    def _connect(self, port: int) -> psycopg.Connection[tuple[Any, ...]]:
        # Explicit values for every PG* variable that could change a plain loopback connection.
        return psycopg.connect(
            host=LOOPBACK,
            hostaddr=LOOPBACK,
            port=port,
            user=SUPERUSER,
            password=self.superuser_password,
            dbname="postgres",
            connect_timeout=2,  # the least for libpq; a foreign program on the port may accept and never answer
            sslmode="disable",
            gssencmode="disable",
            options="",
            autocommit=True,
        )

    def _initialise(self, account: Account, guard: int, initdb: Path) -> None:
        """Creates the data directory under another name and renames it when it is complete and on disk."""
        draft = self.directory.with_name("postgres.new")
        password_file = self._password_file
        shutil.rmtree(draft, ignore_errors=True)  # from a killed start
        make_directory(draft, 0o700)
        account.chown(draft)
        try:
            # A file, not a pipe: the account cannot open the caller's pipe by the name /dev/stdin.
            write_atomically(password_file, self.superuser_password)
            account.chown(password_file)
            result = account.run([initdb, "-D", draft, *_initdb_options(password_file)], holding=guard)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartError(f"{initdb} cannot be run as '{account.name}': {error}.") from error
        finally:
            password_file.unlink(missing_ok=True)
        if result.returncode != 0:
            raise StartError(
                f"initdb failed: {result.stderr.strip() or result.stdout.strip()}\nFree some disk space or choose another "
                f"NIGHTDESK_HOME. An account without a name in the system's user list cannot run it at all: use "
                f"NIGHTDESK_DATABASE_URL there."
            )
        draft.rename(self.directory)
        sync_directory(self.directory.parent)

    def _drop_misleading_pid_file(self) -> None:
        """Removes a pid file that makes PostgreSQL refuse to start because of an unrelated process.

        PostgreSQL refuses for any process of its own account with that number: after a container's restart the low
        numbers are in use again. It also refuses for a zombie: in a container whose first process collects none, a
        killed server stays one. The caller holds the guard, so no child of the old server lives. PostgreSQL itself
        handles a number without a process.
        """
        file = self.identity.pid_file
        try:
            process = psutil.Process(int(file.read_text(encoding="ascii").split("\n", 1)[0]))
            misleading = not is_alive(process) or _serves_something_else(process.cmdline(), self.directory)
        except psutil.ZombieProcess:
            misleading = True
        except (FileNotFoundError, ValueError, psutil.Error):
            return
        if misleading:
            file.unlink(missing_ok=True)


def _initdb_options(password_file: Path) -> list[str]:
    return [
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        # Sorts by code point and has the case of every letter, the same on every machine and after every upgrade of
        # the system, so an index stays correct.
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--no-instructions",
        # The default sync stays: without it a power cut after the first start can destroy the database.
    ]


def _serves_something_else(command: list[str], directory: Path) -> bool:
    """Tells whether a command line certainly belongs to something else than a PostgreSQL on this data."""
    if not command or Path(command[0]).name != "postgres":
        return True
    named = Path(command[command.index("-D") + 1]) if "-D" in command[:-1] else Path()
    return named.is_absolute() and named.resolve() != directory
