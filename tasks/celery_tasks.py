"""The Celery tasks: each passes its message to the event loop of the worker process.

Apart from the steps: whoever submits or reads results without a message does not load Celery.
"""

import json
from typing import Any

import orjson
from celery import Task, shared_task
from celery.exceptions import InvalidTaskError, Reject

from schemas.states import Step
from tasks.errors import InputError, LedgerError, ServiceUnavailable, Unstorable
from tasks.ports import process

MAX_MESSAGE_BYTES = 1_000_000
"""Most that one ``nightdesk.submit`` message may hold; more goes through the command line or HTTP."""

MAX_MESSAGE_JOBS = 10_000
"""Most jobs that one may hold: each bad one is answered by name."""


FOLLOW_UPS = {"callbacks": "link", "errbacks": "link_error", "chain": "chain", "chord": "chord"}
"""The parts of a message from which Celery would send further messages, and their names in a program."""


class OwnTask(Task[Any, Any]):
    """A task that anybody may send; a message with follow-ups is refused with an error, and does nothing."""

    abstract = True
    throws = (InvalidTaskError,)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Refuses what can't be done: a worker sends no message on behalf of a producer."""
        del task_id
        if parts := self.request.get("follow_ups"):
            names = ", ".join(FOLLOW_UPS.get(part, part) for part in parts)
            raise InvalidTaskError(
                f"{self.name} runs no {names}: nothing of this message was done. Send it alone, then wait for each job with"
                " AsyncResult(job_id).get(), or ask nightdesk.poll, and go on in your own program"
            )
        own: Any = self
        try:
            own.__header__(*args, **kwargs)
        except TypeError as error:
            raise InvalidTaskError(f"{self.name} does not take these arguments: {error}") from None


class HintTask(OwnTask):
    """A task that workers send each other without a result; a message that wants one is a stranger's, and is refused."""

    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Refuses what a producer sent."""
        super().before_start(task_id, args, kwargs)
        if not self.request.get("ignore_result"):
            raise InvalidTaskError(
                f"{self.name} is a message between workers, and does nothing for others: hand jobs in by nightdesk.submit, which"
                " also checks answers that a job brings as its response, and read results by AsyncResult(job_id).get()"
            )


@shared_task(
    base=OwnTask, name="nightdesk.submit", bind=True, acks_late=True, reject_on_worker_lost=True, ignore_result=False
)
def submit_task(self: "Task[Any, Any]", jobs: Any = None, batch: Any = None) -> dict[str, Any]:
    """Accepts one job or a list from a producer that reaches only Redis; acknowledged after the commit.

    A fault of the message as a whole is an error without a position. While the ledger is away the message goes
    back to its queue.
    """
    try:
        return process.runtime.submit(*read_message(jobs, batch, f"message:{self.request.id}"), queue_of(self))
    except (InputError, Unstorable) as error:
        return _refusal(error, jobs)
    except (ServiceUnavailable, LedgerError) as error:
        raise Reject(str(error), requeue=True) from error


def _make_hint_task(step: Step) -> None:
    @shared_task(base=HintTask, name=f"nightdesk.{step.value}", ignore_result=False, acks_late=False)
    def wake(urgent: bool = False) -> None:  # noqa: FBT001, FBT002 - a JSON argument
        """Wakes the process: jobs of the step are in the ledger."""
        process.runtime.wake(step, urgent=urgent)


for _step in Step:
    _make_hint_task(_step)


@shared_task(base=OwnTask, name="nightdesk.poll", bind=True, ignore_result=False)
def poll_task(self: "Task[Any, Any]", job_ids: Any) -> list[dict[str, Any] | None]:
    """Answers a producer that reaches only Redis, about the jobs of its tenant."""
    return process.runtime.poll(job_ids if isinstance(job_ids, list) else [job_ids], queue_of(self))


def queue_of(task: "Task[Any, Any]") -> str:
    """The queue that the message was taken from."""
    delivery: Any = task.request.delivery_info
    return str(delivery["routing_key"])


def read_message(jobs: Any, batch: Any, key: str) -> tuple[list[Any], dict[str, Any]]:
    """The jobs of a message, and what it says of their batch.

    Args:
        jobs: one job or a list of them.
        batch: an object or None.
        key: the batch's, unless it brings its own; so that a redelivery finds what it already wrote.

    Raises: InputError for the message as a whole.
    """
    raw_jobs = jobs if isinstance(jobs, list) else [jobs]
    if len(raw_jobs) > MAX_MESSAGE_JOBS:
        raise InputError(
            f"the message holds {len(raw_jobs):,} jobs, at most {MAX_MESSAGE_JOBS:,} are taken; send several messages",
            field="jobs",
        )
    if not raw_jobs:
        raise InputError("there is none; send one job or a list of jobs", field="jobs")
    if batch is not None and not isinstance(batch, dict):
        raise InputError(
            "must be an object (key, name, not_before, window, deadline, max_cost_usd, callback_url, defaults)",
            field="batch",
        )
    size = sum(map(_size, raw_jobs)) + len(raw_jobs) + _size(batch)
    if size > MAX_MESSAGE_BYTES:
        raise InputError(
            f"the message holds {size:,} bytes of JSON, at most {MAX_MESSAGE_BYTES:,} are taken; "
            "send several messages, or use 'nightdesk submit'",
            field="jobs",
        )
    raw_batch = batch or {}
    return raw_jobs, raw_batch if raw_batch.get("key") is not None else {**raw_batch, "key": key}


def _size(value: Any) -> int:
    """Bytes as JSON; what can't be written counts nothing here, and is refused as the job that it is."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # Huge integers and half surrogate pairs: the standard library writes them.
        try:
            return len(json.dumps(value, default=str))
        except (ValueError, RecursionError):
            return 0


def _refusal(error: InputError | Unstorable, jobs: Any) -> dict[str, Any]:
    """The answer to a message that was refused as a whole: nothing of it is in the ledger."""
    count = len(jobs) if isinstance(jobs, list) else 1
    return {
        "batch_id": None,
        "created": False,
        "job_ids": [None] * count,
        "errors": [{"position": None, "field": getattr(error, "field", None) or "jobs", "message": str(error)}],
        "warnings": [],
    }
