"""The network between a worker and its servers stops without saying so, and disks have no room."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from tests.faults.ground import SLOTS, Account, Ground, family, unless_ended
from tests.faults.listing import JOBS, NotPossibleHere, experiment
from tests.faults.proxy import running_proxy
from worker import local

NO_ROOM_BYTES = 10_000
"""No file grows beyond it: less than PostgreSQL's log and Redis's have written by then."""


@experiment("half-open connections to Redis: nothing comes, nothing ends")
def redis_half_open(here: Ground) -> Account:
    with running_proxy(here.redis_url) as proxy:
        here.work(redis_url=proxy.url)
        here.until_answered(10)
        proxy.stall()
        here.pause(15)
        proxy.heal()
        here.mended()
        return here.account(JOBS)


@experiment("half-open connections to PostgreSQL: nothing comes, nothing ends")
def postgres_half_open(here: Ground) -> Account:
    with running_proxy(here.database_url) as proxy:
        here.work(database_url=proxy.url)
        here.until_answered(10)
        proxy.stall()
        here.pause(5)
        proxy.heal()
        here.mended()
        # The worker waits a minute for an answer before it hangs up.
        return here.account(JOBS, within_s=240)


@experiment("the lease renewer's connections go silent, one after the other", jobs=SLOTS, latency_s=15)
def renewer_silent(here: Ground) -> Account:
    with running_proxy(here.database_url) as proxy:
        here.work(database_url=proxy.url, lease_s=6)
        here.until_calling(SLOTS // 2)
        silent: set[int] = set()
        for _ in range(2):
            silent.add(here.until(lambda: next(iter(here.renewing() - silent), None), what="another renewal"))
            for port in silent:
                proxy.silence(port)
        here.mended()
        account = here.account(SLOTS)
    assert here.count("job_event WHERE kind = 'rescue'") == 0, "one silent connection costs no lease"
    assert account.unknown == 0
    return account


@contextmanager
def no_room(here: Ground, name: str) -> Iterator[None]:
    """Let no file of a server grow."""
    server = getattr(local.status(here.home), name)
    limited = limit_files(family(server.pid), str(NO_ROOM_BYTES))
    try:
        yield
    finally:
        limit_files(limited, "unlimited")


def limit_files(processes: Iterable[psutil.Process], limit: str) -> list[psutil.Process]:
    """Set the soft limit of file sizes, as the user whose processes these are; returns those that had not ended."""
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise NotPossibleHere("there is no prlimit")
    return [process for process in processes if unless_ended(partial(_limit, prlimit, process, limit))]


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
def postgres_without_room(here: Ground) -> Account:
    here.work(lease_s=20)
    here.until_answered(10)
    with no_room(here, "postgres"):
        here.until(here.refuses_to_grow, what="a full disk")
        here.pause(10)
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("Redis's disk is full for 10 s")
def redis_without_room(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    with no_room(here, "valkey"):
        here.until(here.redis_refuses_to_write, what="a full disk")
        here.pause(10)
    here.restart()
    here.mended()
    return here.account(JOBS)
