"""The network between a worker and its servers stops without saying so, and disks have no room."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from tests.faults.lab import SLOTS, Lab, Report, if_alive, process_tree
from tests.faults.proxy import running_proxy
from tests.faults.registry import JOBS, NotPossibleHere, experiment
from worker import local

NO_ROOM_BYTES = 10_000
"""No file grows beyond it: less than PostgreSQL's log and Redis's have written by then."""


@experiment("half-open connections to Redis, without data or end")
def redis_half_open(lab: Lab) -> Report:
    with running_proxy(lab.redis_url) as proxy:
        lab.work(redis_url=proxy.url)
        lab.until_answered(10)
        proxy.stall()
        lab.pause(15)
        proxy.heal()
        lab.start_recovery()
        return lab.report(JOBS)


@experiment("half-open connections to PostgreSQL, without data or end")
def postgres_half_open(lab: Lab) -> Report:
    with running_proxy(lab.database_url) as proxy:
        lab.work(database_url=proxy.url)
        lab.until_answered(10)
        proxy.stall()
        lab.pause(5)
        proxy.heal()
        lab.start_recovery()
        # The worker waits a minute for an answer before it hangs up.
        return lab.report(JOBS, within_s=240)


@experiment("the lease renewer's connections go silent, one after the other", jobs=SLOTS, latency_s=15)
def renewer_silent(lab: Lab) -> Report:
    with running_proxy(lab.database_url) as proxy:
        lab.work(database_url=proxy.url, lease_s=6)
        lab.until_calling(SLOTS // 2)
        silent: set[int] = set()
        for _ in range(2):
            silent.add(lab.until(lambda: next(iter(lab.renewal_ports() - silent), None), what="another renewal"))
            for port in silent:
                proxy.silence(port)
        lab.start_recovery()
        report = lab.report(SLOTS)
    assert lab.count("job_event WHERE kind = 'rescue'") == 0, "one silent connection costs no lease"
    assert report.unknown == 0
    return report


@contextmanager
def no_room(lab: Lab, name: str) -> Iterator[None]:
    """Let no file of a server grow."""
    server = getattr(local.status(lab.home), name)
    limited = limit_files(process_tree(server.pid), str(NO_ROOM_BYTES))
    try:
        yield
    finally:
        limit_files(limited, "unlimited")


def limit_files(processes: Iterable[psutil.Process], limit: str) -> list[psutil.Process]:
    """Set the soft limit of file sizes, as the user whose processes these are; returns those that had not ended."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise NotPossibleHere("there is no prlimit")
    return [process for process in processes if if_alive(partial(_limit, prlimit, process, limit))]


def _limit(prlimit: str, process: psutil.Process, limit: str) -> None:
    done = subprocess.run(
        [prlimit, "--pid", str(process.pid), f"--fsize={limit}:"],
        # Both must be the process's own where root may not do everything.
        user=process.uids().real if os.getuid() == 0 else None,
        group=process.gids().real if os.getuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
    )
    # An unreaped process is listed, and takes no limit.
    if done.returncode and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        raise NotPossibleHere(f"a limit can't be set: {done.stderr.strip()}")


@experiment("PostgreSQL's disk is full for 10 s")
def postgres_without_room(lab: Lab) -> Report:
    lab.work(lease_s=20)
    lab.until_answered(10)
    with no_room(lab, "postgres"):
        lab.until(lab.refuses_to_grow, what="a full disk")
        lab.pause(10)
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("Redis's disk is full for 10 s")
def redis_without_room(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(10)
    with no_room(lab, "valkey"):
        lab.until(lab.redis_refuses_to_write, what="a full disk")
        if local.status(lab.home).valkey.running:
            lab.cut_redis()
        lab.pause(10)
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)
