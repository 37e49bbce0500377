"""Takes large submissions in by processes beside the one that answers: validation in Python would keep every poll waiting."""

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import uvloop

from tasks.errors import ServiceUnavailable
from tasks.masking import hide
from worker.http.bulk_loop import OF_ONE
from worker.http.turns import Turns
from worker.ledger.outage import Outage
from worker.ledger.postgres import PostgresLedger
from worker.local import Endpoints
from worker.process.logs import configure_logging, secrets_of
from worker.settings import Settings, use_own_templates

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Work = Callable[..., Coroutine[Any, Any, Result]]
"""A function of a module, called with the ledger and the settings of the process and further arguments."""

LARGE_BYTES = 1_000_000
"""Body from which a submission has a process of its own; the first one waits a second or two for the server that forks them."""

AT_ONCE = 3
"""Submissions in processes of their own; further ones wait on disk."""

MOST_S = 1_800.0
"""Seconds after which a process counts as hung; the lines of 1 GB take a tenth of that."""

NICENESS = 5
"""Polls go first where no core is free for both."""

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["worker.operations.body_submission", "worker.operations.uploaded_batches", "worker.http.large_documents", __name__]
)


class NotStarted(Exception):
    """The process can't be started now; it was ordered nothing."""


class ProcessEnded(ServiceUnavailable):
    """The process ended amid its work, killed by the system perhaps; the work may have been committed."""


class SubmissionProcesses:
    """Runs each large submission in a process of its own; belongs to the loop that answers."""

    def __init__(self, settings: Settings, where: Endpoints, *, probe_s: float) -> None:
        self._surroundings = settings, where, probe_s
        self._turns = Turns(AT_ONCE, OF_ONE)

    async def run(self, tenant: str, work: Work[Result], *arguments: Any) -> Result:
        """The result of a tenant's work there, or its error; cancelled with its caller. Raises ``NotStarted``, ``ProcessEnded``."""
        async with self._turns.take(tenant):
            answers, orders = _FORKS.Pipe(duplex=False)
            process = _FORKS.Process(target=_take_in, args=(orders, self._surroundings, work, arguments))
            with answers:
                try:
                    with orders:
                        process.start()
                except OSError as error:
                    log.warning("no process for a large submission can be started, so a thread takes it in: %s", error)
                    raise NotStarted from error
                try:
                    await _await_answer(answers)
                    # The loop read it without waiting; of a long answer a part is there.
                    os.set_blocking(answers.fileno(), True)
                    result, failure = await asyncio.to_thread(answers.recv)
                except TimeoutError:
                    raise ProcessEnded(f"the process of a large submission took more than {MOST_S:.0f} s") from None
                except EOFError:
                    process.join()
                    raise ProcessEnded(f"the process of a large submission ended ({process.exitcode})") from None
                finally:
                    process.kill()
                    process.join()
        if failure is not None:
            raise failure
        return result  # type: ignore[no-any-return]


async def _await_answer(answers: "Connection[Any, Any]") -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(answers.fileno(), ready.set)
    try:
        async with asyncio.timeout(MOST_S):
            await ready.wait()
    finally:
        loop.remove_reader(answers.fileno())


def _take_in(
    orders: "Connection[Any, Any]",
    surroundings: tuple[Settings, Endpoints, float],
    work: Work[Any],
    arguments: tuple[Any, ...],
) -> None:
    """Does the work of the process."""
    # The service decides about the end, and lets its requests end first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    settings, where, _ = surroundings
    hide(secrets_of(settings, where))
    configure_logging(settings.log_level, log_format=settings.log_format)
    use_own_templates(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        orders.send(runner.run(_answer(surroundings, work, arguments)))


async def _answer(
    surroundings: tuple[Settings, Endpoints, float], work: Work[Any], arguments: tuple[Any, ...]
) -> tuple[Any, Exception | None]:
    settings, where, probe_s = surroundings
    service = parent_process()
    assert service is not None
    # Its end, however it came, ends this too: PostgreSQL rolls back what is not committed.
    asyncio.get_running_loop().add_reader(service.sentinel, os._exit, 1)
    try:
        async with (
            Outage(where.database_url, probe_s=probe_s) as outage,
            PostgresLedger(where.database_url, outage=outage) as ledger,
        ):
            return await work(ledger, settings, *arguments), None
    except Exception as error:  # noqa: BLE001 - it is raised where the work was ordered
        error.add_note("".join(traceback.format_exception(error)))
        return None, error
