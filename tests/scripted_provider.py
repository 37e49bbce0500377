"""A provider that does what a test says, call by call, for steps that are tested without a network."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from types import MappingProxyType

from schemas.generation import WINDOWS, AnswerProtocol, Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, Prompt, ProviderSnapshot, Usage
from tasks.errors import ConfigurationError
from tasks.ports import Answered, Call, CheapJudge, Listener, Provider, Turn
from tasks.ports.remote_batches import RemoteCalls, RemoteResponses

Act = Callable[[Call], Awaitable[Answered]]


def answers(text: str = "The desk opens at nine. [1]", **changes: object) -> Act:
    """Answer at once."""

    async def act(call: Call) -> Answered:
        fields: dict[str, object] = {
            "text": text,
            "finish_reason": FinishReason.STOP,
            "protocol": AnswerProtocol.MARKERS,
            "usage": Usage(input_tokens=100, output_tokens=10),
            "cost_usd": Decimal("0.002"),
            "snapshot": ProviderSnapshot(provider=call.provider, model_asked=call.model),
            **changes,
        }
        return Answered(text.encode(errors="replace"), Completion(**fields))  # type: ignore[arg-type]

    return act


def raises(error: Exception) -> Act:
    """Fail."""

    async def act(call: Call) -> Answered:
        raise error

    return act


async def hangs(call: Call) -> Answered:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


class ScriptedProvider(Provider):
    """Takes one act a call; the last one repeats."""

    def __init__(
        self,
        *acts: Act,
        name: str = "scripted",
        model: str = "scripted-1",
        reserve_usd: Decimal | None = Decimal("0.01"),
        gives_probabilities: bool = False,
        expected_usd: Decimal | None = Decimal("0.001"),
    ) -> None:
        self.name = name
        self.gives_probabilities = gives_probabilities
        self.model = model
        self.calls: list[Call] = []
        self.plans = 0
        self.called = asyncio.Event()
        self.listener: Listener | None = None
        self._acts = acts
        self._reserve = reserve_usd
        self._expected = expected_usd

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        return AnswerProtocol.MARKERS

    def model_of(self, config: GenerationConfig) -> str | None:
        return config.model or self.model

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        self.plans += 1
        body = prompt.snapshot.sha256.encode()
        return Call(
            provider=self.name,
            model=self.model_of(request.config),
            lane="standard",
            protocol=AnswerProtocol.MARKERS,
            body=body,
            request_hash=hashlib.sha256(body).digest(),
            timeout_s=request.config.timeout_s,
            reserve_usd=self._reserve,
            prompt=prompt,
            request=request,
            stream=request.config.stream,
        )

    def expected_usd(self, call: Call) -> Decimal | None:
        return self._expected

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:
        self.calls.append(call)
        self.listener = listener
        self.called.set()
        return await self._acts[min(len(self.calls), len(self._acts)) - 1](call)

    async def close(self) -> None:
        pass


class Registry:
    """The providers of a test by name; the first is the default, and a job without fallbacks has those given here."""

    def __init__(
        self,
        *providers: ScriptedProvider,
        fallbacks: tuple[str, ...] = (),
        cheap: Mapping[str, CheapJudge] = MappingProxyType({}),
    ) -> None:
        self._fallbacks = fallbacks
        self.cheap = cheap
        self._providers = {provider.name: provider for provider in providers}
        self._default = providers[0].name
        self.remote: RemoteCalls | None = None
        self.background: RemoteResponses | None = None

    def get(self, name: str | None) -> Provider:
        try:
            return self._providers[name or self._default]
        except KeyError:
            raise ConfigurationError(f"no provider {name!r} is configured") from None

    def gives_probabilities(self, name: str) -> bool:
        return name in self._providers and self._providers[name].gives_probabilities

    def remote_calls(self, name: str) -> RemoteCalls | None:
        self.get(name)
        return self.remote

    def remote_responses(self, name: str) -> RemoteResponses | None:
        return self.background

    def cheaper_lanes(self, name: str) -> tuple[Lane, ...]:
        batches = (Lane.PROVIDER_BATCH,) if self.remote is not None else ()
        return (*batches, *WINDOWS) if self.background is not None else batches

    def cheap_judge(self, provider: str, model: str | None) -> CheapJudge | None:
        return self.cheap.get(provider)

    def turns(self, config: GenerationConfig, level: int = 0) -> tuple[Turn, ...]:
        if level:
            return (Turn.parse(config.escalate[level - 1]),)
        first = Turn(config.provider or self._default, config.model)
        return (first, *map(Turn.parse, config.fallbacks or self._fallbacks))

    async def close(self) -> None:
        pass
