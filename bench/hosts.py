"""Measures one to several hosts against one PostgreSQL and one Redis, and cuts one of them off: python -m bench.hosts.

Each host is a network namespace with an address of its own and one worker; the servers, the stand-in provider and the
commands are another one. Nothing leaves the namespaces. It needs root and Linux's ``ip`` (Debian: iproute2). All hosts
share the machine's processors: with two of them the rate of three and four workers shows what more workers cost, and the
last column how many would fill one PostgreSQL, by the processor time that it takes for each job.

``--cut`` pulls the network of one host at a third of the jobs and puts it back at the end: the other hosts finish its
jobs, and only the calls that it had in flight are made again. Their first answers are recorded where they come before the
host learns that its leases are gone.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil
import psycopg
import redis

from bench.embedded import Servers, embedded_servers
from bench.side_by_side.contestants import COMMAND, READY_COMMAND, Load, await_final, provider, statistics
from bench.side_by_side.measuring import Program, Trees
from bench.side_by_side.workload import write_workload
from worker import local

REPOSITORY = Path(__file__).parents[1]
INSIDE = "NIGHTDESK_BENCH_NAMESPACE"
"""Set where this program runs in the namespace of the servers: the names of all namespaces begin with its value."""
SUBNET = "10.211.7"
SERVERS = f"{SUBNET}.1"
LEASE_S = 15
"""Shorter than the default, so that the jobs of a host that was cut off come back soon."""
LATE_S = 60
"""Time for the answers that a host which was cut off may find in its connections; TCP tries again ever more seldom."""


@dataclass(frozen=True)
class Row:
    """Figures of one run; CPU in milliseconds a job."""

    hosts: int
    jobs_per_s: float
    workers_ms: float
    postgres_ms: float
    valkey_ms: float

    def line(self) -> str:
        """The row of the table; one core of PostgreSQL, nine tenths busy, bounds the last column."""
        workers_a_core = self.workers_ms * 0.9 / self.postgres_ms
        return (
            f"{self.hosts:>5} {self.jobs_per_s:>8.0f} {self.workers_ms:>11.2f} {self.postgres_ms:>12.2f}"
            f" {self.valkey_ms:>9.2f} {workers_a_core:>30.1f}"
        )


HEAD = f"{'hosts':>5} {'jobs/s':>8} {'workers, ms':>11} {'PostgreSQL':>12} {'Valkey':>9} {'workers a core of PostgreSQL':>30}"


# ---- the namespaces ----------------------------------------------------------------------------------------------------


def host_name(prefix: str, number: int) -> str:
    """The namespace of a host; 0 is that of the servers."""
    return f"{prefix}-{number}"


def host_address(number: int) -> str:
    """The address of a host, from 1."""
    return f"{SUBNET}.{10 + number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def namespaces(prefix: str, hosts: int) -> Iterator[None]:
    """Makes the servers' namespace with a bridge, and one for each host on it; removes them."""
    with ExitStack() as stack:
        for number in range(hosts + 1):
            _ip("netns", "add", host_name(prefix, number))
            stack.callback(_ip, "netns", "del", host_name(prefix, number))
        servers = host_name(prefix, 0)
        _ip("-n", servers, "link", "set", "lo", "up")
        _ip("-n", servers, "link", "add", "bridge", "type", "bridge")
        _ip("-n", servers, "addr", "add", f"{SERVERS}/24", "dev", "bridge")
        _ip("-n", servers, "link", "set", "bridge", "up")
        for number in range(1, hosts + 1):
            host, port = host_name(prefix, number), f"port{number}"
            _ip("-n", servers, "link", "add", port, "type", "veth", "peer", "name", "wire", "netns", host)
            _ip("-n", servers, "link", "set", port, "master", "bridge", "up")
            _ip("-n", host, "addr", "add", f"{host_address(number)}/24", "dev", "wire")
            _ip("-n", host, "link", "set", "wire", "up")
            _ip("-n", host, "link", "set", "lo", "up")
        yield


def plug(number: int, state: str) -> None:
    """Pulls (``down``) or puts back (``up``) the cable of a host; called in the servers' namespace."""
    _ip("link", "set", f"port{number}", state)


# ---- inside the servers' namespace -------------------------------------------------------------------------------------


def open_to_hosts(servers: Servers) -> local.Endpoints:
    """Lets both servers listen on the bridge, too; the endpoints as a host sees them."""
    endpoints = servers.endpoints
    assert endpoints.admin_database_url
    with psycopg.connect(endpoints.admin_database_url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET listen_addresses = '127.0.0.1,{SERVERS}'")
    # An address to listen on is read at the start alone, and each start writes who may connect anew.
    local.stop(servers.home)
    endpoints = local.start(servers.home)
    assert endpoints.admin_database_url
    with psycopg.connect(endpoints.admin_database_url, autocommit=True) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
        assert row
        with Path(row[0]).open("a") as rules:
            rules.write(f"host all all {SUBNET}.0/24 scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")
    with redis.Redis.from_url(endpoints.redis_url) as client:
        client.config_set("bind", f"127.0.0.1 {SERVERS}")
    database_url, redis_url = (
        url.replace(f"@{urlsplit(url).hostname}:", f"@{SERVERS}:")
        for url in (endpoints.database_url, endpoints.redis_url)
    )
    return local.Endpoints(database_url, redis_url)


@contextmanager
def workers(prefix: str, load: Load, environment: dict[str, str], home: Path) -> Iterator[dict[str, psutil.Process]]:
    """One worker on each host, each with a home of its own as on a machine of its own; ended afterwards."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for number in range(1, load.workers + 1):
            own_home = home / f"host{number}"
            own_home.mkdir()
            own = {**environment, "NIGHTDESK_HOME": str(own_home), "NIGHTDESK_SLOTS": str(load.calls // load.workers)}
            command = ["ip", "netns", "exec", host_name(prefix, number), *COMMAND]
            command += ["worker", "--queues", "generate,check,submit"]
            with (own_home / "worker.log").open("wb") as log:
                running[f"worker {number}"] = subprocess.Popen(command, cwd=REPOSITORY, env=own, stdout=log, stderr=log)
        yield {name: psutil.Process(process.pid) for name, process in running.items()}
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait(120)


@dataclass(frozen=True)
class Running:
    """A running system: its database as the commands see it, the stand-in's address, its processes, and its commands."""

    database_url: str
    provider_url: str
    trees: Trees
    environment: dict[str, str]

    def calls(self) -> int:
        """Calls that the provider counted so far."""
        return statistics(self.provider_url)["calls"]

    def value(self, query: str) -> int:
        """One number of the ledger."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
        assert row
        return int(row[0])

    def submission(self, questions: Path) -> Program:
        """The command that submits a file, with its modules loaded."""
        return Program([*READY_COMMAND, "submit", "--again", str(questions)], self.environment, REPOSITORY)

    def await_final(self, count: int) -> None:
        """Waits until so many jobs are final and published."""
        await_final(self.database_url, count)


@contextmanager
def system(prefix: str, load: Load) -> Iterator[Running]:
    """The servers, the stand-in and a worker on each host, warmed by a small batch."""
    with embedded_servers() as servers, provider(load, SERVERS) as url:
        hosts = open_to_hosts(servers)
        stand_in = {"preset": "vllm", "base_url": f"{url}/v1", "model": "stand-in"}
        environment = {
            **servers.environment,
            "NIGHTDESK_DATABASE_URL": hosts.database_url,
            "NIGHTDESK_REDIS_URL": hosts.redis_url,
            "NIGHTDESK_PROVIDERS": orjson.dumps({"stand_in": stand_in}).decode(),
            "NIGHTDESK_PROVIDER": "stand_in",
            "NIGHTDESK_LEASE_S": str(LEASE_S),
        }
        status = local.status(servers.home)
        assert status.postgres.pid
        assert status.valkey.pid
        with workers(prefix, load, environment, servers.home) as processes:
            roots = {
                **{name: [process] for name, process in processes.items()},
                "postgres": [psutil.Process(status.postgres.pid)],
                "valkey": [psutil.Process(status.valkey.pid)],
            }
            running = Running(hosts.database_url, url, Trees(roots), environment)
            first = load.workload.questions.with_suffix(".first.jsonl")
            with load.workload.questions.open("rb") as lines:
                first.write_bytes(b"".join(next(lines) for _ in range(20 * load.workers)))
            # Each host has imported what it needs when these are done.
            running.submission(first).finish()
            running.await_final(20 * load.workers)
            yield running


def measure(prefix: str, load: Load) -> Row:
    """One run over so many hosts."""
    with system(prefix, load) as running:
        count, before = load.workload.count, running.trees.cpu_s()
        submission = running.submission(load.workload.questions)
        started = time.perf_counter()
        submission.finish()
        running.await_final(20 * load.workers + count)
        seconds = time.perf_counter() - started
        used = {name: (after - before[name]) * 1000 / count for name, after in running.trees.cpu_s().items()}
    of_workers = sum(used[name] for name in used if name.startswith("worker"))
    return Row(load.workers, count / seconds, of_workers, used["postgres"], used["valkey"])


def isolate(prefix: str, load: Load) -> str:
    """Cuts the last host off at a third of the jobs, and tells what became of them."""
    with system(prefix, load) as running:
        extra, count = 20 * load.workers, load.workload.count
        calls = running.calls()
        running.submission(load.workload.questions).finish()
        running.await_final(extra + count // 3)
        plug(load.workers, "down")
        at = time.perf_counter()
        in_flight = running.value(
            "SELECT count(*) FROM attempt a JOIN job j ON j.id = a.job_id AND j.lease_token = a.lease_token"
            f" WHERE a.closed_at IS NULL AND j.worker LIKE '%:{running.trees.roots[f'worker {load.workers}'][0].pid}'"
        )
        running.await_final(extra + count)
        seconds = time.perf_counter() - at
        calls_of_jobs = running.calls() - calls
        unknown = running.value("SELECT count(*) FROM attempt WHERE outcome = 'unknown'")
        answers = running.value("SELECT count(*) FROM (SELECT job_id FROM generation_record GROUP BY 1) j") - extra
        plug(load.workers, "up")
        time.sleep(LATE_S)
        late = running.value("SELECT count(*) FROM attempt WHERE outcome = 'unknown'")
    return (
        f"{count} jobs on {load.workers} hosts, one cut off at a third: all final {seconds:.1f} s later, {answers} records,"
        f" {calls_of_jobs} calls, {calls_of_jobs - count} of them again; {unknown} calls with an unknown outcome"
        f" ({in_flight} of them seen open at the cut), {late} once the host was back."
    )


# ---- the command -------------------------------------------------------------------------------------------------------


def main() -> int:
    """Makes the namespaces, and goes on inside that of the servers."""
    parser = argparse.ArgumentParser(prog="python -m bench.hosts", description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--calls", type=int, default=1_000, help="in flight at once, over all hosts")
    parser.add_argument("--latency", type=float, default=1.0, help="of the provider, in seconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cut", action="store_true", help="cut one host off, in place of the measurement")
    options = parser.parse_args()
    prefix = os.environ.get(INSIDE)
    if prefix is None:
        return _enter(max(options.hosts))
    with tempfile.TemporaryDirectory(prefix="nightdesk-hosts-") as directory:
        workload = write_workload(Path(directory), options.jobs)

        def load_of(hosts: int) -> Load:
            return Load(workload, options.calls, options.latency, lognormal=False, workers=hosts)

        if options.cut:
            hosts = max(options.hosts)
            sys.stdout.write(isolate(prefix, load_of(hosts)) + "\n")
            return 0
        sys.stdout.write(f"CPU in milliseconds a job\n{HEAD}\n")
        for _ in range(options.rounds):
            for hosts in options.hosts:
                row = measure(prefix, load_of(hosts))
                sys.stdout.write(row.line() + "\n")
                sys.stdout.flush()
    return 0


def _enter(hosts: int) -> int:
    prefix = f"nightdesk-{os.getpid()}"
    command: Sequence[str] = [
        "ip",
        "netns",
        "exec",
        host_name(prefix, 0),
        sys.executable,
        "-m",
        "bench.hosts",
        *sys.argv[1:],
    ]
    with namespaces(prefix, hosts):
        return subprocess.run(command, cwd=REPOSITORY, env={**os.environ, INSIDE: prefix}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
