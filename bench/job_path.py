"""Prints the path of one job: each project file that executes a function for it, from submit to result, in order.

    python -m bench.job_path [--package tasks] [--most 40] [--functions]

Starts the embedded servers and a real worker in this process, submits over Redis a first job that fills the caches, then a
second one whose path is recorded with the interpreter's profile hook. Both are extractive, and no judge is asked. Functions of
the process's periodic duties do not belong to the job; their files are listed apart. Code that an import runs is not counted.
Exits with 1 where the path has more than ``--most`` files of the package, or of all.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg
from celery import Celery
from celery.result import AsyncResult

from tests.left_homes import remove
from worker import local
from worker.ledger.schema_version import migrate
from worker.local import Endpoints
from worker.process.celery_app import make_app
from worker.process.main import run_worker
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[1]
PACKAGES = tuple(f"{REPOSITORY / name}{os.sep}" for name in ("schemas", "tasks", "worker"))
QUEUES = ("generate", "check", "submit")
PATIENCE_S = 60.0

DUTY_TASKS = frozenset(
    {"dispatch", "outbox", "pruning", "heartbeat", "spool", "renew slots", "provider batches", "metering"}
)
"""Tasks of the event loop that run whether there are jobs or not."""
DUTY_TIMERS = frozenset({"LeaseRenewer._beat"})
"""Its callbacks that run every second."""
DUTY_THREADS = frozenset({"lease renewer", "watchdog"})

HOURS = (
    "The service desk opens at {} on working days and closes at six in the evening. It is closed on public holidays."
)
FEES = "A replacement card costs {} euros. The fee is waived after a theft that was reported to the police."


@dataclass
class JobPath:
    """The files of the path in order of their first function, each with its functions.

    Attributes:
        files: those of the job.
        duties: those of the process's duties meanwhile.
        recording: whether calls are recorded now.
    """

    files: dict[str, list[str]] = field(default_factory=dict)
    duties: dict[str, list[str]] = field(default_factory=dict)
    recording: bool = False
    _codes: set[tuple[CodeType, bool]] = field(default_factory=set)

    def install(self) -> None:
        """Watches this thread and all that start after it."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not self.recording or event != "call" or not code.co_filename.startswith(PACKAGES):
            return
        duty = _of_a_duty(code)
        if (code, duty) in self._codes or _importing(frame):
            return
        self._codes.add((code, duty))
        files = self.duties if duty else self.files
        files.setdefault(str(Path(code.co_filename).relative_to(REPOSITORY)), []).append(code.co_qualname)


def _of_a_duty(code: CodeType) -> bool:
    """Tells whether the present thread, task or timer serves a periodic duty."""
    if threading.current_thread().name in DUTY_THREADS or code.co_qualname in DUTY_TIMERS:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.get_name() in DUTY_TASKS


def _importing(frame: FrameType) -> bool:
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(PACKAGES):
            return True
        above = above.f_back
    return False


def _job(opening: str, fee: str) -> dict[str, Any]:
    return {
        "query": "When does the service desk open, and what does a replacement card cost?",
        "context": [{"content": HOURS.format(opening)}, {"content": FEES.format(fee)}],
    }


def _result(app: Celery, job: dict[str, Any]) -> dict[str, Any]:
    """Submits a job over Redis and waits for its published result."""
    # The worker's tasks run in this process, where Celery takes every wait for one inside a task.
    wait = partial(AsyncResult.get, timeout=PATIENCE_S, disable_sync_subtasks=False)
    receipt = wait(app.send_task("nightdesk.submit", args=[job], queue="submit"))
    if receipt["errors"]:
        raise ValueError(f"the job was refused: {receipt['errors']}")
    result: dict[str, Any] = wait(AsyncResult(receipt["job_ids"][0], app=app))
    return result


def _await_publication(database_url: str) -> None:
    """Returns when the ledger notes the publication of every job: its path ends there."""
    until = time.monotonic() + PATIENCE_S
    with psycopg.connect(database_url, autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM job WHERE result_published_at IS NULL").fetchone():
            if time.monotonic() > until:
                raise TimeoutError(f"a job's publication is not noted within {PATIENCE_S:.0f} s")
            time.sleep(0.05)


def _drive(settings: Settings, where: Endpoints, path: JobPath, results: list[dict[str, Any]]) -> None:
    sys.setprofile(None)
    try:
        app = make_app(settings, where.redis_url)
        results.append(_result(app, _job("eight", "ten")))
        _await_publication(where.database_url)
        path.recording = True
        results.append(_result(app, _job("nine", "twelve")))
        _await_publication(where.database_url)
    finally:
        path.recording = False
        os.kill(os.getpid(), signal.SIGTERM)


def traced_job() -> tuple[JobPath, dict[str, Any]]:
    """The path of one job through a worker in this process, and its result."""
    path, results = JobPath(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="nightdesk-path-") as directory:
        home = Path(directory) / "home"
        running = local.start(home)
        where = Endpoints(running.database_url, running.redis_url)
        try:
            migrate(where.database_url)
            settings = Settings(home=home, provider="extractive", drain_s=1)
            path.install()
            driver = threading.Thread(target=_drive, args=(settings, where, path, results), name="producer")
            driver.start()
            run_worker(settings, where, QUEUES)
            driver.join()
        finally:
            local.stop(home)
            remove(home)
    if len(results) != 2:
        raise RuntimeError("the worker ended before the second job had its result")
    return path, results[-1]


def main() -> int:
    """Prints the path and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=("schemas", "tasks", "worker"), help="count the files of one package")
    parser.add_argument("--most", type=int, help="exit with 1 where the path has more files")
    parser.add_argument("--functions", action="store_true", help="print the functions of each file, too")
    options = parser.parse_args()
    path, result = traced_job()
    for title, files in (("the job", path.files), ("duties meanwhile", path.duties)):
        _write(f"{title}:")
        for number, (file, functions) in enumerate(files.items(), start=1):
            _write(f"{number:4} {file}" + (f"  {', '.join(functions)}" if options.functions else ""))
    packages = Counter(file.split("/", 1)[0] for file in path.files)
    counts = ", ".join(f"{count} in {package}" for package, count in sorted(packages.items()))
    functions_count = sum(map(len, path.files.values()))
    _write(f"{result['state']}, {result['outcome']}: {len(path.files)} files ({counts}), {functions_count} functions")
    count = packages[options.package] if options.package else len(path.files)
    return int(options.most is not None and count > options.most)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
