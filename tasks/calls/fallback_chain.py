"""Plans the calls of a job to its providers, one after the other, each with the prompt version that the job draws."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from tasks.calls.paid_call import PlannedCall, plan_call
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered, Leased, Providers, Turn
from tasks.prompting.messages import render, with_correction

Variants = Mapping[str, Mapping[str, float]]
"""The versions of each prompt with their weights (any unit; above 0)."""


def draw_version(job_id: UUID, versions: Mapping[str, float]) -> str:
    """The version for a job: the same in every call and round, and in proportion to the weights over many jobs."""
    # Sorted by name, so that the order in the settings has no effect.
    ordered = sorted(versions.items())
    remainder = int.from_bytes(hashlib.sha256(job_id.bytes).digest()[:8], "big") / 2**64 * sum(versions.values())
    for version, weight in ordered:
        remainder -= weight
        if remainder < 0:
            return version
    # Only rounding leads here.
    return ordered[-1][0]


def with_variant(request: JobRequest, job_id: UUID, variants: Variants) -> JobRequest:
    """The request with the version drawn for its prompt.

    A request with a version of its own, or with a prompt outside all experiments, stays unchanged.
    """
    config = request.config
    versions = variants.get(config.prompt_name or config.mode.value)
    if not versions or config.prompt_version is not None:
        return request
    config_with_version = config.model_copy(update={"prompt_version": draw_version(job_id, versions)})
    return request.model_copy(update={"config": config_with_version})


@dataclass(slots=True)
class FallbackChain:
    """The providers of one job at one lease, in their order.

    Args:
        job: the job.
        providers: all providers of this process.
        add_plan_ms: gets the milliseconds that each plan took.
        variants: the prompt versions of experiments.
    """

    job: Leased
    providers: Providers
    add_plan_ms: Callable[[float], None]
    variants: Variants = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)
    """``provider: reason`` of each provider without an answer, in order."""
    calls: int = 0
    """Number of calls so far."""
    _turns: list[Turn] = field(default_factory=list)
    _next: PlannedCall | None = None
    _unusable: list[ConfigurationError | ProviderError] = field(default_factory=list)

    def __post_init__(self) -> None:
        turns = self.providers.turns(self.job.request.config)
        # Each turn is good for one spent attempt beyond those that the first may spend.
        done = max(0, self.job.spent - self.job.request.config.max_attempts + 1)
        self._turns = list(turns[done:])

    @property
    def spent(self) -> bool:
        """True when every provider failed as often as allowed."""
        return not self._turns and self._next is None

    def more(self) -> bool:
        """True if another provider can be called; plans its call, so that an unusable provider does not count."""
        while self._next is None and self._turns:
            turn = self._turns.pop(0)
            try:
                self._next = self._plan(turn)
            except (ConfigurationError, ProviderError) as error:
                kind = error.kind if isinstance(error, ProviderError) else FailureKind.CONFIGURATION
                self.misses.append(f"{turn.provider}: {kind.value}")
                self._unusable.append(error)
        return self._next is not None

    def take(self) -> PlannedCall:
        """The next call to make. Without one, raises the first provider's error together with those of the others."""
        if not self.more():
            raise self._error()
        plan, self._next = self._next, None
        assert plan is not None
        self.calls += 1
        return plan

    def add_failure(self, plan: PlannedCall, failure: Failure) -> None:
        """Notes a failed call."""
        self.misses.append(f"{plan.provider.name}: {failure.kind.value}")

    def pass_over(self, plan: PlannedCall, why: str) -> None:
        """Notes that a call was not made after all."""
        self.calls -= 1
        self.misses.append(f"{plan.provider.name}: {why}")

    def with_unusable(self, failure: Failure) -> Failure:
        """The final failure of the job, which names the unusable providers."""
        message = "; ".join((failure.message, *map(str, self._unusable)))
        return failure.model_copy(update={"message": message})

    def with_misses(self, answered: Answered) -> Answered:
        """An answer that names the providers in whose place it came."""
        if not self.misses:
            return answered
        completion = answered.completion
        snapshot = completion.snapshot.model_copy(update={"fallback_from": tuple(self.misses)})
        return Answered(answered.raw, completion.model_copy(update={"snapshot": snapshot}))

    def _plan(self, turn: Turn) -> PlannedCall:
        provider = self.providers.get(turn.provider)
        request = _request_of(self.job.request, turn)
        if self.variants:
            request = with_variant(request, self.job.job_id, self.variants)
        started = monotonic()
        prompt = render(request, provider.protocol(request.config), provider.model_of(request.config))
        if correction := self.job.active_correction:
            prompt = with_correction(prompt, request, correction)
        plan = plan_call(self.job, provider, request, prompt)
        self.add_plan_ms((monotonic() - started) * 1000)
        return plan

    def _error(self) -> ConfigurationError | ProviderError:
        first, *rest = self._unusable
        if not rest:
            return first
        message = "; ".join(map(str, self._unusable))
        return ProviderError(first.kind, message) if isinstance(first, ProviderError) else ConfigurationError(message)


def _request_of(request: JobRequest, turn: Turn) -> JobRequest:
    """The request as a turn's provider gets it: a model is one of its own provider."""
    if turn.model == request.config.model:
        return request
    return request.model_copy(update={"config": request.config.model_copy(update={"model": turn.model})})
