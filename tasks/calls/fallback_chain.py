"""Plans the calls of a job to its providers, one after the other; an unusable provider is passed over and named."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from tasks.calls.paid_call import PlannedCall, plan_call
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered, Leased, Providers, Turn
from tasks.prompting.correction import with_correction
from tasks.prompting.experiments import Variants, with_variant
from tasks.prompting.messages import render


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
