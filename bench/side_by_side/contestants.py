"""Runs one contestant over the questions and measures it: the scripts, the chain, and this system."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil
import psycopg

from bench.embedded import Servers, embedded_servers
from bench.side_by_side.measuring import Program, Trees
from bench.side_by_side.workload import Workload
from worker import local
from worker.supervise.workers import worker_specs

REPOSITORY = Path(__file__).parents[2]
CHAIN_THREADS = 200
CURATOR = "BENCH_CURATOR"
"""Names the Python of an environment with bespokelabs-curator: it needs other versions of the clients."""


@dataclass(frozen=True)
class Load:
    """One setting of a comparison.

    Attributes:
        calls: most in flight at once.
        latency_s: of the stand-in provider.
        workers: of this system.
    """

    workload: Workload
    calls: int
    latency_s: float
    lognormal: bool
    workers: int


@dataclass(frozen=True)
class Measurement:
    """Time, CPU and memory of one contestant in one round.

    Attributes:
        seconds: from the moment at which the program has loaded its modules to the last result in hand.
        cpu_ms: milliseconds a job by part, start-up excluded.
        starting_s: CPU seconds of the start-up.
        most_in_flight: calls, as the provider counted them.
        notes: other figures, printed with the round.
    """

    jobs: int
    seconds: float
    cpu_ms: dict[str, float]
    starting_s: float
    peak_mb: dict[str, float]
    most_in_flight: int
    calls: int
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def jobs_per_s(self) -> float:
        """Results a second."""
        return self.jobs / self.seconds

    @property
    def cpu_ms_sum(self) -> float:
        """Milliseconds a job over all parts."""
        return sum(self.cpu_ms.values())


@contextmanager
def provider(load: Load, host: str = "127.0.0.1") -> Iterator[str]:
    """The stand-in in a process of its own; its address, on the address of a host."""
    command = [sys.executable, "-m", "bench.side_by_side.lean_stub", str(load.workload.answers), "--host", host]
    command += ["--latency", str(load.latency_s), *(["--lognormal"] if load.lognormal else [])]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def statistics(url: str) -> dict[str, int]:
    """Calls so far, and the most in flight since the last look, as the stand-in counted them."""
    with urllib.request.urlopen(f"{url}/statistics", timeout=30) as answer:
        counted: dict[str, int] = orjson.loads(answer.read())
    return counted


def _program(load: Load, url: str, command: list[str]) -> Measurement:
    """One process that calls for all questions and writes a line for each."""
    out = load.workload.questions.with_suffix(".program.jsonl")
    program = Program([*command, str(load.workload.questions), str(out), f"{url}/v1"], {**os.environ}, REPOSITORY)
    trees = Trees({"script": [program.process]})
    started = time.perf_counter()
    with trees.sampled():
        working_s = program.finish()
    seconds = time.perf_counter() - started
    _assert_lines(out, load.workload.count)
    return _measurement(load, url, seconds, Used({"script": working_s}, program.starting_s), trees)


def _script(load: Load, url: str, *options: str) -> Measurement:
    command = [sys.executable, "-m", "bench.side_by_side.script", "--calls", str(load.calls), *options]
    return _program(load, url, command)


def script(load: Load) -> Measurement:
    """The short script with the stock client."""
    with provider(load) as url:
        return _script(load, url)


def script_aiohttp(load: Load) -> Measurement:
    """The same by the SDK's aiohttp transport."""
    with provider(load) as url:
        return _script(load, url, "--aiohttp")


def curator(load: Load) -> Measurement:
    """bespokelabs-curator, from an environment of its own."""
    with provider(load) as url:
        module = REPOSITORY / "bench" / "side_by_side" / "curator_script.py"
        return _program(load, url, [os.environ[CURATOR], str(module), "--calls", str(load.calls)])


def celery_chain(load: Load) -> Measurement:
    """A textbook Celery chain in a pool of threads."""
    with provider(load) as url, embedded_servers() as servers:
        environment = {**os.environ, "CHAIN_REDIS_URL": servers.endpoints.redis_url, "CHAIN_BASE_URL": f"{url}/v1"}
        command = [sys.executable, "-m", "celery", "-A", "bench.side_by_side.celery_chain", "worker"]
        command += ["-P", "threads", "-c", str(min(CHAIN_THREADS, load.calls)), "--without-gossip", "--without-mingle"]
        with _worker(command, environment, servers.home / "chain.log", "exchange=celery(direct)") as worker:
            starting = Trees({"worker": [worker]}).cpu_s()["worker"]
            out = load.workload.questions.with_suffix(".chain.jsonl")
            sender = [sys.executable, "-m", "bench.side_by_side.celery_chain", str(load.workload.questions), str(out)]
            program = Program(sender, environment, REPOSITORY)
            trees = Trees({"worker": [worker], "valkey": [_valkey(servers)]})
            before, started = trees.cpu_s(), time.perf_counter()
            with trees.sampled():
                sending_s = program.finish()
            seconds = time.perf_counter() - started
            after = trees.cpu_s()
            _assert_lines(out, load.workload.count)
            cpu = {"sender": sending_s, **{name: after[name] - before[name] for name in after}}
            return _measurement(load, url, seconds, Used(cpu, starting + program.starting_s), trees)


@dataclass(frozen=True)
class System:
    """This system as it runs: the stand-in's address, its servers, the environment of its commands, and its processes."""

    url: str
    servers: Servers
    environment: dict[str, str]
    trees: Trees


COMMAND = (sys.executable, "-m", "worker.cli")
READY_COMMAND = (sys.executable, "-m", "bench.side_by_side.command")


@contextmanager
def system(load: Load) -> Iterator[System]:
    """Servers and workers as ``nightdesk up`` starts them, beside the stand-in; ended afterwards."""
    with provider(load) as url, embedded_servers() as servers:
        environment = {
            **servers.environment,
            "NIGHTDESK_PROVIDERS": orjson.dumps(
                {"stand_in": {"preset": "vllm", "base_url": f"{url}/v1", "model": "stand-in"}}
            ).decode(),
            "NIGHTDESK_PROVIDER": "stand_in",
        }
        specs = worker_specs(load.calls, load.workers)
        with _workers(
            {spec.name: [*COMMAND, "worker", "--queues", ",".join(spec.queues)] for spec in specs},
            {**environment, "NIGHTDESK_SLOTS": str(specs[0].slots or load.calls)},
            servers.home,
        ) as workers:
            status = local.status(servers.home)
            assert status.postgres.pid
            roots = {
                **{name: [process] for name, process in workers.items()},
                "postgres": [psutil.Process(status.postgres.pid)],
                "valkey": [_valkey(servers)],
            }
            yield System(url, servers, environment, Trees(roots))


def nightdesk(load: Load) -> Measurement:
    """This system: submitted by the command, called, checked, recorded, published, exported by the command."""
    with system(load) as running:
        return _nightdesk(load, running)


def _nightdesk(load: Load, running: System) -> Measurement:
    url, servers, environment, trees = running.url, running.servers, running.environment, running.trees
    first = load.workload.questions.with_suffix(".first.jsonl")
    with load.workload.questions.open("rb") as lines:
        first.write_bytes(b"".join(next(lines) for _ in range(_SMALL)))
    small_s, answered = _warm_up(running, first)
    starting = sum(trees.cpu_s().values())
    statistics(url)
    before, wal = trees.cpu_s(), _wal(servers)
    submission = Program([*READY_COMMAND, "submit", "--again", str(load.workload.questions)], environment, REPOSITORY)
    started = time.perf_counter()
    with trees.sampled():
        submit_s = submission.finish()
        submitted = time.perf_counter()
        await_final(servers.endpoints.database_url, answered + load.workload.count)
        final = time.perf_counter()
        after = trees.cpu_s()
    batch = _last_batch(servers.endpoints.database_url)
    out = load.workload.questions.with_suffix(".nightdesk.jsonl")
    export = Program([*READY_COMMAND, "results", batch, "-o", str(out)], environment, REPOSITORY)
    exporting = time.perf_counter()
    export_s = export.finish()
    exported = time.perf_counter()
    _assert_lines(out, load.workload.count)
    cpu = {name: after[name] - before[name] for name in after}
    # What a command takes to connect, to read the settings and to look at the schema is start-up, too.
    cpu["submit"], cpu["results"] = max(submit_s - small_s, 0.0), max(export_s - small_s, 0.0)
    starting += submission.starting_s + export.starting_s + 2 * small_s
    notes = {
        "calling_s": _calling_s(servers.endpoints.database_url, batch),
        "submit_s": submitted - started,
        "results_s": exported - exporting,
        "wal_kb_a_job": (_wal(servers) - wal) / 1e3 / load.workload.count,
        "answered": _answered(out),
    }
    return _measurement(load, url, final - started, Used(cpu, starting), trees, **notes)


_SMALL = 60
"""Jobs of a batch that warms up: more than are hinted, for a hint loads Celery, which a large submission never does."""
_MOST_SMALL = 20
"""Such batches, of which each worker has to answer a part."""


def _warm_up(running: System, questions: Path) -> tuple[float, int]:
    """Has small batches answered until each worker that calls has called the stand-in, and so imported what a call needs.

    Returns: the CPU seconds of the least command that submitted one, and the number of jobs of all.
    """
    port = urlsplit(running.url).port
    workers = [root for name, roots in running.trees.roots.items() if name.startswith("generate") for root in roots]
    submit_s = []
    warm: set[int] = set()
    while len(submit_s) < _MOST_SMALL:
        command = [*READY_COMMAND, "submit", "--again", str(questions)]
        submit_s.append(Program(command, running.environment, REPOSITORY).finish())
        answered = _SMALL * len(submit_s)
        await_final(running.servers.endpoints.database_url, answered)
        # A worker keeps the connections of its calls open for some seconds: on a busy machine one batch may take longer.
        warm |= {
            worker.pid
            for worker in workers
            if any(to.raddr and to.raddr.port == port for to in worker.net_connections())
        }
        if len(warm) == len(workers):
            return min(submit_s), answered
    raise TimeoutError(f"a worker has answered none of {answered} jobs")


@dataclass(frozen=True)
class Used:
    """CPU seconds: by part while working, and of the start-up."""

    working_s: dict[str, float]
    starting_s: float


def _measurement(load: Load, url: str, seconds: float, used: Used, trees: Trees, **notes: float) -> Measurement:
    jobs, counted = load.workload.count, statistics(url)
    return Measurement(
        jobs,
        seconds,
        {name: part_s * 1000 / jobs for name, part_s in used.working_s.items()},
        used.starting_s,
        dict(trees.peak_mb),
        counted["most_in_flight"],
        counted["calls"],
        notes,
    )


@contextmanager
def _workers(
    commands: dict[str, list[str]], environment: dict[str, str], home: Path
) -> Iterator[dict[str, psutil.Process]]:
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (home / f"{name}.log").open("wb") as log:
                running[name] = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
        yield {name: psutil.Process(process.pid) for name, process in running.items()}
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait(60)


@contextmanager
def _worker(command: list[str], environment: dict[str, str], log: Path, ready: str) -> Iterator[psutil.Process]:
    """A worker whose log has the banner of its queues."""
    with _workers({"worker": command}, environment, log.parent) as workers:
        worker_log = log.parent / "worker.log"
        until = time.monotonic() + 60
        while ready not in worker_log.read_text():
            if time.monotonic() > until:
                raise TimeoutError(f"the worker is not ready after 60 s: {worker_log.read_text()[-500:]}")
            time.sleep(0.1)
        yield workers["worker"]


def _valkey(servers: Servers) -> psutil.Process:
    pid = local.status(servers.home).valkey.pid
    assert pid
    return psutil.Process(pid)


_PUBLISHED = """
SELECT coalesce(sum(jobs), 0) FROM job_count
WHERE NOT unpublished AND state IN ('cancelled', 'completed', 'expired', 'failed')
"""


def await_final(database_url: str, count: int) -> None:
    """Waits until so many jobs are final and published; raises ``TimeoutError`` after half an hour."""
    until = time.monotonic() + 1800
    with psycopg.connect(database_url, autocommit=True) as connection:
        while True:
            # By the counts that ``nightdesk status`` reads: to count the jobs themselves took a tenth of the server's CPU.
            row = connection.execute(_PUBLISHED).fetchone()
            if row and row[0] >= count:
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{row and row[0]} of {count} jobs are final and published after half an hour")
            time.sleep(0.2)


def _last_batch(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("SELECT id FROM batch ORDER BY id DESC LIMIT 1").fetchone()
    assert row
    return str(row[0])


def _calling_s(database_url: str, batch: str) -> float:
    """Seconds from the first call to the last final state."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM max(job.finished_at) - min(attempt.opened_at))"
            " FROM job JOIN attempt ON attempt.job_id = job.id WHERE job.batch_id = %s",
            [batch],
        ).fetchone()
    assert row
    return float(row[0])


def _wal(servers: Servers) -> float:
    with psycopg.connect(servers.endpoints.database_url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    assert row
    return float(row[0])


def _answered(out: Path) -> float:
    """The share of jobs that were answered."""
    outcomes = [orjson.loads(line).get("outcome") for line in out.read_bytes().splitlines()]
    return outcomes.count("answered") / len(outcomes)


def _assert_lines(out: Path, count: int) -> None:
    lines = out.read_bytes().count(b"\n")
    if lines != count:
        raise ValueError(f"{out.name} has {lines} lines in place of {count}")


CONTESTANTS: dict[str, Callable[[Load], Measurement]] = {
    "script": script,
    "script, aiohttp": script_aiohttp,
    "celery chain": celery_chain,
    **({"curator": curator} if CURATOR in os.environ else {}),
    "nightdesk": nightdesk,
}
