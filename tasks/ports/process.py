"""Services of the process around the steps: wake other workers, publish results, stream text, run the event loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

from schemas.generation import Lane
from schemas.job import GenerationConfig
from schemas.states import Step
from tasks.errors import ConfigurationError
from tasks.ports.attempt_rows import NewAttempt
from tasks.ports.provider import CheapJudge, Provider, Turn
from tasks.ports.remote_batches import RemoteCalls, RemoteResponses
from tasks.ports.rows import FinalFacts, Leased

STALL_S = 1.0
"""Seconds late at which a timer shows that the process stood still: it was frozen, or its machine was."""

READ_FIRST_S = 2.0
"""Seconds that a call has after the process stood still: its answer may lie in the socket, and it is paid for."""


Result = TypeVar("Result")


class Rendered(NamedTuple):
    """A compact result (JSON) on its way to its tenant."""

    job_id: UUID
    run: int
    result: bytes
    tenant: str


class CheckExecutor(Protocol):
    """Does the CPU work of checks, each piece within a time limit."""

    async def do(self, work: Callable[[], Result], *, tenant: str, urgent: bool = False) -> Result:
        """Do a piece of work, whose errors are raised here; raises ``CheckEnded`` for one that was ended from outside."""
        ...


class Doorbell(Protocol):
    """Short-lived signals. Every one may be lost without effect on correctness; all raise ``BrokerUnavailable``."""

    async def hint(self, step: Step, *, urgent: bool = False) -> None:
        """Wake a worker: jobs are available for a step."""

    async def unread_submissions(self) -> int:
        """Count the submissions that no worker took yet, without those that their producers gave a lower priority."""

    async def publish(self, results: Sequence[Rendered]) -> Mapping[UUID, Exception]:
        """Put results with their run under their job ids into the result backend.

        The result of a later run stays. Returns the errors of those that it refuses.
        """

    async def withdraw(self, results: Sequence[tuple[UUID, int]]) -> None:
        """Remove published results of these runs; the result of another run stays."""

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        """Remove published results (a new run starts)."""

    async def lost_its_data(self) -> bool:
        """True if Redis was emptied, replaced or restarted since any process last called ``remember``."""

    async def remember(self) -> None:
        """Note that what is published from now on can be found."""


class TokenSink(Protocol):
    """Passes the text of streamed answers to readers that follow a job. All methods return at once and never raise.

    Text may be lost (Redis away); the answer and its record never depend on it.
    """

    def start(self, job: Leased, attempt: NewAttempt) -> None:
        """A streamed call begins: readers forget the text of an earlier attempt."""

    def text(self, attempt_id: UUID, piece: str) -> None:
        """A piece of its answer."""

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        """The call ended; not ``whole``: it broke, and another attempt may follow."""

    def final(self, job: FinalFacts) -> None:
        """The streamed job is final: nothing follows in this run."""


class Runtime(Protocol):
    """Takes the messages of the Celery tasks to the process's one event loop and all that is wired to it."""

    def wake(self, step: Step, *, urgent: bool) -> None:
        """Have the process look for jobs of a step in the ledger; returns at once."""

    def submit(self, raw_jobs: Sequence[Any], batch: dict[str, Any], queue: str) -> dict[str, Any]:
        """Write jobs and return the JSON answer of ``nightdesk.submit``; the queue tells their tenant."""

    def poll(self, raw_ids: Sequence[Any], queue: str) -> list[dict[str, Any] | None]:
        """Results as JSON, as they stand now; None for what the queue's tenant has not."""


class _NoRuntime:
    def __getattr__(self, name: str) -> Any:
        raise ConfigurationError("this process has no runtime: start it with 'nightdesk worker'")


runtime: Runtime = cast("Runtime", _NoRuntime())
"""The runtime of this process, which its worker sets; any use in another process raises ``ConfigurationError``."""


class Providers(Protocol):
    """The providers configured in this process, by name."""

    def get(self, name: str | None) -> Provider:
        """The named provider, or the default for None; raises ``ConfigurationError`` naming those that exist."""

    def gives_probabilities(self, name: str) -> bool:
        """True for a provider that writes no text and gives a probability for each of a prompt's ``questions``: only a judge.

        Known without building it; False for one that there is not. The text of its completions is JSON,
        ``{"answers": [{"question": int, "probability": number}]}`` with the questions counted from 1; instead of the
        probability of a declined one is ``"refused": true``. What it left out is not there.
        """

    def cheap_judge(self, provider: str, model: str | None) -> CheapJudge | None:
        """The cheap model that judges by default what this model of a provider wrote.

        None where there is none that can be called here at a known price: no key, a server of one's own, a provider
        without such a model.
        """

    def remote_calls(self, name: str) -> RemoteCalls | None:
        """The batches of a provider; None: it has none. Raises ``ConfigurationError`` for an unknown name."""

    def remote_responses(self, name: str) -> RemoteResponses | None:
        """The background of a provider; None: it has none. Raises ``ConfigurationError`` for an unknown name."""

    def cheaper_lanes(self, name: str) -> tuple[Lane, ...]:
        """The lanes in which a provider is known to cost less than at once, the cheapest first."""

    def turns(self, config: GenerationConfig, level: int = 0) -> tuple[Turn, ...]:
        """The models of a level, in order; the next one is for a call that fails.

        Level 0 is the fallback chain of a job: its provider, then its fallbacks or, without any, those of the settings.
        Each further level is one model of ``escalate``, for an answer that the check does not support.
        """

    async def close(self) -> None:
        """Close those that were used."""
