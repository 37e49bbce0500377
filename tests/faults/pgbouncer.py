"""PgBouncer in transaction mode between the workers and PostgreSQL, where it is installed."""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.deadlines import until
from tests.faults.lab import Lab, Report
from tests.faults.registry import NotPossibleHere, experiment

JOBS = 100

_SETTINGS = """
[databases]
{name} = host={host} port={port} dbname={name} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
auth_type = any
pool_mode = transaction
default_pool_size = 10
{further}
"""


@contextmanager
def running_pgbouncer(database_url: str, further: str = "") -> Iterator[str]:
    """PgBouncer before a database; gives the URL through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        raise NotPossibleHere("pgbouncer is not installed")
    parts = urlsplit(database_url)
    name = parts.path[1:]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nightdesk-pgbouncer-") as folder:
        path = Path(folder, "pgbouncer.ini")
        path.write_text(
            _SETTINGS.format(
                name=name,
                host=parts.hostname,
                port=parts.port,
                user=parts.username,
                password=parts.password,
                listen_port=port,
                further=further,
            )
        )
        command = [program, "-q", str(path)]
        if os.geteuid() == 0:
            # It refuses to run as root.
            user = pwd.getpwnam("nobody")
            for owned in (folder, path):
                os.chown(owned, user.pw_uid, user.pw_gid)
            command[1:1] = ["-u", user.pw_name]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            assert until(lambda: _listens(port), within_s=30), "pgbouncer does not listen"
            yield f"postgresql://{parts.username}@127.0.0.1:{port}/{name}"
        finally:
            # Asked to end, it waits for its clients from 1.23 on.
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def through_pgbouncer(lab: Lab, further: str) -> Report:
    """Work through it with two workers, kill one, and ask the doctor."""
    with running_pgbouncer(lab.database_url, further) as url:
        first, _ = lab.work(database_url=url, lease_s=6), lab.work(database_url=url, lease_s=6)
        lab.until_answered(20)
        lab.kill(first)
        lab.start_recovery()
        report = lab.assert_settled(lab.report(JOBS, within_s=180))
        doctor = subprocess.run(
            [sys.executable, "-m", "worker.cli", "doctor", "--json"],
            env=lab.environment(database_url=url, provider="openai"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        severities = {finding["check"]: finding["severity"] for finding in json.loads(doctor.stdout)["findings"]}
        assert "unreachable" not in severities.values(), severities
        assert "defect of nightdesk" not in lab.log(0) + lab.log(1)
        assert "through a pooler" in lab.log(1)
    return report


@experiment("PgBouncer in transaction mode that drops options, a worker killed", jobs=JOBS)
def options_dropped(lab: Lab) -> Report:
    return through_pgbouncer(lab, "ignore_startup_parameters = options")


@experiment("PgBouncer in transaction mode that refuses options, a worker killed", jobs=JOBS)
def options_refused(lab: Lab) -> Report:
    return through_pgbouncer(lab, "")
