"""Plans the calls of a job to its providers, one after the other; one that can't be called is passed over and named."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from tasks.calls.attempts import UNPRICED
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered, Call, Leased, Provider, Providers, Turn
from tasks.prompting.correction import active_correction, with_correction
from tasks.prompting.experiments import Variants, with_variant
from tasks.prompting.render import render


@dataclass(frozen=True, slots=True)
class Planned:
    """A call that can be made."""

    provider: Provider
    call: Call


@dataclass(slots=True)
class FallbackChain:
    """The turns of one job at one lease.

    Args:
        job: the job.
        providers: where its providers are.
        spend: told the milliseconds that each plan took.
        shares: of the prompt versions that are tried.
    """

    job: Leased
    providers: Providers
    spend: Callable[[float], None]
    shares: Variants = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """``provider: kind of failure`` of those that did not answer, in order."""
    taken: int = 0
    """Calls made so far."""
    _todo: list[Turn] = field(default_factory=list)
    _next: Planned | None = None
    _unusable: list[ConfigurationError | ProviderError] = field(default_factory=list)

    def __post_init__(self) -> None:
        turns = self.providers.turns(self.job.request.config)
        # Each turn is good for one spent attempt beyond those that the first may spend.
        done = max(0, self.job.spent - self.job.request.config.max_attempts + 1)
        self._todo = list(turns[done:])

    @property
    def spent(self) -> bool:
        """Whether no turn is left for this job: every provider failed as often as allowed."""
        return not self._todo and self._next is None

    def more(self) -> bool:
        """Whether another provider can be called; plans its call, so that one that can't be does not count."""
        while self._next is None and self._todo:
            turn = self._todo.pop(0)
            try:
                self._next = self._planned(turn)
            except (ConfigurationError, ProviderError) as error:
                kind = error.kind if isinstance(error, ProviderError) else FailureKind.CONFIGURATION
                self.asked.append(f"{turn.provider}: {kind.value}")
                self._unusable.append(error)
        return self._next is not None

    def take(self) -> Planned:
        """The next call to make; raises why there is none: the first provider's error, with those of the others."""
        if not self.more():
            raise self._none_left()
        planned, self._next = self._next, None
        assert planned is not None
        self.taken += 1
        return planned

    def failed(self, planned: Planned, failure: Failure) -> None:
        """Note that a call failed."""
        self.asked.append(f"{planned.provider.name}: {failure.kind.value}")

    def passed_over(self, planned: Planned, why: str) -> None:
        """Note that a call was not made after all."""
        self.taken -= 1
        self.asked.append(f"{planned.provider.name}: {why}")

    def with_unusable(self, failure: Failure) -> Failure:
        """The failure that a job ends with, telling of the providers that could not even be called."""
        told = "; ".join((failure.message, *map(str, self._unusable)))
        return failure.model_copy(update={"message": told})

    def credited(self, answered: Answered) -> Answered:
        """An answer, telling in whose place it came."""
        if not self.asked:
            return answered
        completion = answered.completion
        snapshot = completion.snapshot.model_copy(update={"fallback_from": tuple(self.asked)})
        return Answered(answered.raw, completion.model_copy(update={"snapshot": snapshot}))

    def _planned(self, turn: Turn) -> Planned:
        provider = self.providers.get(turn.provider)
        request = with_variant(_request_of(self.job.request, turn), self.job.job_id, self.shares)
        started = monotonic()
        first = render(request, provider.protocol(request.config), provider.model_of(request.config))
        prompt = with_correction(first, request, active_correction(self.job))
        call = provider.plan(request, prompt)
        self.spend((monotonic() - started) * 1000)
        if call.reserve_usd is None and self.job.max_cost_usd is not None:
            raise ProviderError(FailureKind.BUDGET, UNPRICED.format(call.model, call.provider))
        return Planned(provider, call)

    def _none_left(self) -> ConfigurationError | ProviderError:
        first, *others = self._unusable
        if not others:
            return first
        told = "; ".join(map(str, self._unusable))
        return ProviderError(first.kind, told) if isinstance(first, ProviderError) else ConfigurationError(told)


def _request_of(request: JobRequest, turn: Turn) -> JobRequest:
    """The request as it is put to a turn's provider: a model is one of its own provider."""
    if turn.model == request.config.model:
        return request
    return request.model_copy(update={"config": request.config.model_copy(update={"model": turn.model})})
