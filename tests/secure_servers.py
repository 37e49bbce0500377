"""Redis and PostgreSQL that speak TLS alone, with an ACL user and roles without rights beyond need.

The embedded servers are built without TLS, so these are the machine's own; where it has none, the tests are skipped.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

STARTS_WITHIN_S = 30.0
ACCOUNT = "nobody"


def programs() -> tuple[str, Path] | None:
    """``redis-server`` and the directory of PostgreSQL's programs, both built with TLS; None where one is missing."""
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if server is None or not versions or shutil.which("openssl") is None:
        return None
    linked = subprocess.run(["ldd", server], capture_output=True, text=True, check=False)
    return (server, versions[0]) if "libssl" in linked.stdout else None


@dataclass(frozen=True)
class SecureServers:
    """Endpoints of the servers, and the certificate authority that a client must trust."""

    ca: Path
    redis_port: int
    postgres_port: int
    password: str

    def redis_url(self, user: str, query: str = "ssl_cert_reqs=required") -> str:
        return f"rediss://{user}:{self.password}@127.0.0.1:{self.redis_port}/0?{query}&ssl_ca_certs={self.ca}"

    def database_url(self, role: str, query: str = "sslmode=verify-full") -> str:
        where = f"127.0.0.1:{self.postgres_port}/nightdesk"
        return f"postgresql://{role}:{self.password}@{where}?{query}&sslrootcert={self.ca}"


@contextmanager
def secure_servers(acl: str, sql: str) -> Iterator[SecureServers]:
    """Run both servers.

    Args:
        acl: rules of the user ``nightdesk``, as in an ACL file, without its password.
        sql: run as superuser in the database ``nightdesk`` that the role ``nightdesk_owner`` owns; ``:password`` stands
            for the password.
    """
    paths = programs()
    assert paths is not None
    server, binaries = paths
    with tempfile.TemporaryDirectory(prefix="nightdesk-tls-") as directory, ExitStack() as stack:
        base = Path(directory)
        base.chmod(0o755)
        where = SecureServers(_certificates(base), _free_port(), _free_port(), secrets.token_hex(12))
        if os.geteuid() == 0:
            for path in (base, *base.iterdir()):
                shutil.chown(path, ACCOUNT)
        stack.enter_context(_redis(server, base, where, acl))
        stack.enter_context(_postgres(binaries, base, where))
        _prepare(where, sql)
        yield where


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _certificates(base: Path) -> Path:
    """An authority of our own, and a certificate of it for the loopback address."""
    commands = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-authority -keyout ca.key -out ca.pem",
        "openssl req -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -keyout server.key -out server.csr",
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile san -out server.pem",
    )
    (base / "san").write_text("subjectAltName=IP:127.0.0.1")
    for command in commands:
        subprocess.run(command.split(), cwd=base, capture_output=True, check=True)
    (base / "server.key").chmod(0o600)
    return base / "ca.pem"


@contextmanager
def _running(command: list[str], base: Path, log: str) -> Iterator[None]:
    with (base / log).open("wb") as out:
        process = subprocess.Popen(
            command, cwd=base, stdout=out, stderr=subprocess.STDOUT, user=ACCOUNT if os.geteuid() == 0 else None
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STARTS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _redis(server: str, base: Path, where: SecureServers, acl: str) -> Iterator[None]:
    password = f">{where.password}"
    (base / "users.acl").write_text(
        f"user default off\nuser admin on {password} ~* &* +@all\nuser nightdesk on {password} {acl}\n"
    )
    options = {
        "bind": "127.0.0.1", "port": "0", "tls-port": str(where.redis_port), "tls-cert-file": "server.pem",
        "tls-key-file": "server.key", "tls-ca-cert-file": "ca.pem", "tls-auth-clients": "no", "save": "",
        "appendonly": "yes", "dir": str(base), "aclfile": str(base / "users.acl"),
    }  # fmt: skip
    (base / "redis.conf").write_text("".join(f'{name} "{value}"\n' for name, value in options.items()))

    def answers() -> bool:
        try:
            with redis.Redis.from_url(where.redis_url("admin")) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    with _running([server, "redis.conf"], base, "redis.log"):
        _until(answers, base / "redis.log")
        yield


@contextmanager
def _postgres(binaries: Path, base: Path, where: SecureServers) -> Iterator[None]:
    (base / "pw").write_text(where.password)
    data = base / "data"
    as_account = {"user": ACCOUNT} if os.geteuid() == 0 else {}
    initdb = [
        str(binaries / "initdb"),
        "-D",
        str(data),
        "-U",
        "admin",
        "-A",
        "scram-sha-256",
        "--pwfile",
        str(base / "pw"),
    ]
    (base / "pw").chmod(0o644)
    subprocess.run(initdb, cwd=base, capture_output=True, check=True, **as_account)  # type: ignore[call-overload]
    # No rule for a connection without TLS: it is refused.
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    options = {
        "listen_addresses": "127.0.0.1", "port": str(where.postgres_port), "unix_socket_directories": "", "ssl": "on",
        "ssl_cert_file": str(base / "server.pem"), "ssl_key_file": str(base / "server.key"),
    }  # fmt: skip
    command = [str(binaries / "postgres"), "-D", str(data)]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]

    def answers() -> bool:
        try:
            psycopg.connect(_admin_url(where, "postgres"), connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    with _running(command, base, "postgres.log"):
        _until(answers, base / "postgres.log")
        yield


def _admin_url(where: SecureServers, database: str) -> str:
    return where.database_url("admin").replace("/nightdesk?", f"/{database}?")


def _prepare(where: SecureServers, sql: str) -> None:
    password = f"'{where.password}'"
    with psycopg.connect(_admin_url(where, "postgres"), autocommit=True) as connection:
        for statement in sql.replace(":password", password).split(";\n"):
            if statement.strip():
                connection.execute(statement)  # type: ignore[call-overload]


def _until(answers: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not answers():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
