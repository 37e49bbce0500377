"""A worker process: Celery's consumer in the main thread, our loop beside it, and an orderly end."""

import logging
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any

import redis
from celery import Celery, signals
from celery.exceptions import SecurityWarning

from schemas.states import Step
from tasks.check import CheckDesk, use_desk, warm_up
from tasks.errors import ConfigurationError
from tasks.grounding import use_calibration, use_local_model
from tasks.grounding.judge.allowance import JudgeTerms
from tasks.grounding.local import identity_of
from tasks.grounding.model import Calibration
from tasks.grounding.own_checkers import use_own_checkers
from tasks.masking import hide
from tasks.policy.outcome import use_strictness
from tasks.ports import FinalJob, PackedFinal, process
from tasks.results import compact_final
from tasks.text.time_limit import TimeLimit
from worker.ledger.queue import final_columns
from worker.local import Endpoints
from worker.process.alive_file import prepare
from worker.process.celery_app import QUEUES, make_app
from worker.process.check_processes import ForkServer
from worker.process.garbage import spare_the_modules
from worker.process.intake import GuardedChannel, take_by, trust_nothing
from worker.process.logs import configure_logging, secrets_of
from worker.process.runtime import WorkerRuntime, judge_options
from worker.process.server_keeper import keep_servers
from worker.providers.registry import ConfiguredProviders
from worker.scheduling.feed import urgent_slots
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.scorers import scorer_of
from worker.settings import SUBMIT_QUEUE, Settings, worker_name

log = logging.getLogger(__name__)

LOCAL_QUEUE = Step.LOCAL.value

URGENT_QUEUE = "urgent"
"""Stands for the urgent jobs of ``URGENT_QUEUES`` and their submissions; no messages go by this name."""

URGENT_QUEUES = ("generate", "check", "submit")

SWITCH_S = 0.0005
"""Longest time that a thread of the process computes while another wants to go on; Python's own is 5 ms. The threads that take
messages and renew leases make many short steps, and so does the loop beside a provider that computes on a thread: each step after a
system call waited for the whole of that time."""

WATCH_EVERY_S = 30.0
SILENCES = 4
"""Looks in a row at a consumer that reads nothing, with a Redis that answers, after which it counts as deaf."""
BROKEN_EXIT = 70
"""Exit code of a worker with a deaf consumer or a dead loop (EX_SOFTWARE): the supervisor starts a new one."""


def run_worker(settings: Settings, where: Endpoints, queues: Sequence[str]) -> int:
    """Runs until SIGTERM or SIGINT, then drains; returns the exit code.

    Raises: ConfigurationError for an unknown queue or a calibration or local model that can't be used, LedgerUnavailable,
    SchemaMismatch. Redis may be away.
    """
    urgent_workers = UrgentWorkers(only=URGENT_QUEUE in queues)
    queues = _queues_of(queues)
    if settings.alive_file is not None:
        prepare(settings.alive_file)
    return _run(settings, where, queues, urgent_workers)


def _queues_of(names: Sequence[str]) -> Sequence[str]:
    """The queues of a worker by those that it is to serve; raises ``ConfigurationError``."""
    if list(names) == [URGENT_QUEUE]:
        return URGENT_QUEUES
    if URGENT_QUEUE in names:
        raise ConfigurationError(
            f"the queue {URGENT_QUEUE} is for workers that take nothing else: leave out the other queues"
        )
    unknown = [name for name in names if name not in QUEUES]
    if unknown or not names:
        choices = ", ".join((*QUEUES, URGENT_QUEUE))
        raise ConfigurationError(f"unknown queue {', '.join(unknown) or '(none)'}: choose from {choices}")
    return names


def _run(settings: Settings, where: Endpoints, queues: Sequence[str], urgent_workers: UrgentWorkers) -> int:
    checks = bool({Step.CHECK.value, LOCAL_QUEUE} & set(queues))
    providers = ConfiguredProviders(settings)
    providers.import_ahead(answers="generate" in queues, judges=checks)
    hide(secrets_of(settings, where))
    configure_logging(settings.log_level, log_format=settings.log_format, worker=worker_name())
    # A receiver keeps Celery from configuring the root logger anew, with a level of its own.
    signals.setup_logging.connect(_keep_logging, weak=False)
    service = _service(settings, queues, providers, only_urgent=urgent_workers.only)

    def ready(**_: Any) -> None:
        log.info("ready: %s", service)
        if settings.alive_file is not None:
            runtime.keep_fresh(settings.alive_file)

    signals.worker_ready.connect(ready, weak=False)
    # JSON only: running as root executes nothing that a message could bring.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app = make_app(settings, where.redis_url)
    trust_nothing(app)
    if LOCAL_QUEUE not in queues:
        # No worker of urgent jobs alone has a local model.
        take_by(urgent_workers)
    # Before anything begins a thread, which would be missing in the processes that compute.
    fork_servers = dict(_fork_servers(settings, queues, providers)) if checks else {}
    sys.setswitchinterval(SWITCH_S)
    runtime = WorkerRuntime(
        settings,
        app,
        database_url=where.database_url,
        redis_url=where.redis_url,
        steps=frozenset(Step(queue) for queue in queues if queue in set(Step)),
        urgent_workers=urgent_workers,
        fork_servers=fork_servers,
        dead=_loop_is_dead,
    )
    with ExitStack() as stack:
        for fork_server in fork_servers.values():
            stack.callback(fork_server.close)
        process.runtime = runtime.start(providers)
        stack.enter_context(keep_servers(settings, where))
        try:
            consumed = [*queues, *(settings.submit_queues if SUBMIT_QUEUE in queues else ())]
            code = _listen(app, runtime, where.redis_url, list(dict.fromkeys(consumed)), settings.threads)
        finally:
            interrupted = runtime.stop()
    if interrupted:
        log.warning("%d jobs were cut off; their calls count as unknown", interrupted)
    return code


def _listen(app: Celery, runtime: WorkerRuntime, redis_url: str, queues: Sequence[str], threads: int) -> int:
    """Takes messages until a stop signal; returns Celery's exit code."""

    def stopping(**_: Any) -> None:
        runtime.stop_admitting()

    signals.worker_shutting_down.connect(stopping, weak=False)
    watchdog = Watchdog(redis_url)
    try:
        worker: Any = app.Worker(
            hostname=f"nightdesk@{worker_name()}",
            queues=list(queues),
            pool="threads",
            concurrency=threads,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        watchdog.start()
        spare_the_modules()
        worker.start()
    finally:
        watchdog.stop()
    return int(worker.exitcode or 0)


def _keep_logging(**_: Any) -> None:
    """Leaves logging as it is."""


def _service(settings: Settings, queues: Sequence[str], providers: ConfiguredProviders, *, only_urgent: bool) -> str:
    """The work that this process takes, for its log."""
    work = f"takes {'urgent ' if only_urgent else ''}jobs of the queues {', '.join(queues)}"
    if Step.GENERATE.value not in queues:
        return work
    model = providers.model_of(providers.default, None)
    answers = f"{providers.default}:{model}" if model else providers.default
    calls = f"{settings.slots:,} calls at once at most, and {urgent_slots(settings.slots):,} of urgent jobs"
    if only_urgent:
        calls = f"{settings.slots + urgent_slots(settings.slots):,} calls at once at most"
    return f"{work}; {calls}; {answers} answers jobs that name no provider"


def _fork_servers(
    settings: Settings, queues: Sequence[str], providers: ConfiguredProviders
) -> Iterator[tuple[Step, ForkServer]]:
    """Starts the fork servers of the processes that compute checks, by step; raises ``ConfigurationError``."""
    _prepare_check(settings, queues)
    options = judge_options(settings)
    terms = JudgeTerms(providers, options.judge, options.default_share)
    use_desk(CheckDesk(TimeLimit(settings.check_timeout_s), terms, pack_final))
    if Step.CHECK.value in queues:
        # With two, one is always free of what takes long.
        count = settings.check_processes or max(2, os.cpu_count() or 1)
        yield Step.CHECK, ForkServer(warm_up, spare_the_modules, count)
    if LOCAL_QUEUE in queues:
        yield Step.LOCAL, ForkServer(warm_up, partial(_begin_local_checks, settings), 1)


def _prepare_check(settings: Settings, queues: Sequence[str]) -> None:
    """Takes over the operator's calibration, strictness and checkers; raises ``ConfigurationError`` for one that can't be used."""
    if LOCAL_QUEUE in queues and settings.local_model is None:
        raise ConfigurationError(
            f"the queue {LOCAL_QUEUE} is for workers with a local model: set NIGHTDESK_LOCAL_MODEL to one, or leave"
            f" {LOCAL_QUEUE} out of --queues"
        )
    calibration = _calibration(settings)
    use_calibration(calibration)
    use_local_model(None, calibration)
    use_strictness(settings.strictness)
    use_own_checkers(
        import_module("worker.plugins.claim_checkers").load_checkers(settings) if settings.checkers else ()
    )


def _calibration(settings: Settings) -> Calibration | None:
    return Calibration.load(settings.calibration) if settings.calibration else None


def _begin_local_checks(settings: Settings) -> None:
    """Begins in a process that computes checks with a local model, which it loads; raises ``ConfigurationError``."""
    spare_the_modules()
    if message := _load_model(settings):
        log.info(message)


def _load_model(settings: Settings) -> str:
    """Loads the local model of the settings, and returns a message about it."""
    scorer = scorer_of(settings)
    use_local_model(scorer, _calibration(settings))
    return "" if scorer is None else f"the local model {identity_of(scorer)} is loaded"


def pack_final(final: FinalJob) -> PackedFinal:
    """Makes a final write what the event loop passes on to the ledger and to the result backend."""
    return PackedFinal(final_columns(final), final.facts, compact_final(final))


def _loop_is_dead() -> None:
    log.critical("the event loop is dead: exiting for a restart by the supervisor")
    os._exit(BROKEN_EXIT)


class Watchdog:
    """Ends the process when Redis answers but Celery's consumer no longer listens.

    A consumer with a half-broken connection can wait without end on a dead socket; its feed goes on to look for jobs, but
    submissions over Redis would not.
    """

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stops."""
        self._stop.set()

    def _watch(self) -> None:
        silences = 0
        while not self._stop.wait(WATCH_EVERY_S):
            replied_at = GuardedChannel.replied_at
            if monotonic() - replied_at < WATCH_EVERY_S:
                silences = 0
            elif replied_at > -math.inf and self._redis_answers():
                silences += 1
                log.warning("the consumer reads nothing (%d of %d)", silences, SILENCES)
            if silences >= SILENCES:
                log.critical("no messages arrive although Redis answers: exiting for a restart by the supervisor")
                os._exit(BROKEN_EXIT)

    def _redis_answers(self) -> bool:
        try:
            with redis.Redis.from_url(self._redis_url, socket_timeout=5, socket_connect_timeout=5) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
