"""Builds every provider for a test, those over HTTP through the real SDKs, pointed at a stub."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from schemas.job import JobRequest, SourceContext
from tasks.errors import ProviderError
from tasks.ports import Answered, Call, Listener, Provider
from tasks.prompting.messages import render
from tests.stub.server import Stub
from worker.providers.adapter import Target
from worker.providers.anthropic import Anthropic
from worker.providers.extractive import Extractive
from worker.providers.openai import OpenAI, OpenAIDecisions
from worker.providers.openai_chat import OpenAIChat

KEY = "sk-canary-0123456789abcdefghijklmnopqrstuvwxyz"

OPENS = "The night desk opens at nine in the evening."
CLOSES = "The archive closes at noon on Fridays."
SOURCES = (
    SourceContext(content=f"{OPENS} It takes the day's copy and checks it.", metadata={"title": "Hours"}),
    SourceContext(content=f"{CLOSES}\n\nIts keys are kept by the porter."),
)

Result = TypeVar("Result")


def question(query: str = "When does the night desk open?", **config: Any) -> JobRequest:
    """A question with two sources."""
    config.setdefault("timeout_s", 60.0)
    return JobRequest(query=query, context=SOURCES, config=config)


@dataclass(frozen=True)
class Kind:
    """One kind of provider, how it is built, and what its maker calls things."""

    name: str
    build: Callable[[Target], Provider]
    base: str = ""
    model: str = ""

    def target(self, stub: Stub, **changes: Any) -> Target:
        return replace(Target(self.name, stub.url + self.base, KEY, self.model), **changes)

    def at(self, stub: Stub, **changes: Any) -> Provider:
        return self.build(self.target(stub, **changes))

    def __str__(self) -> str:
        return self.name


EXTRACTIVE = Kind("extractive", lambda target: Extractive(name=target.name))
OPENAI = Kind("openai", OpenAI, "/v1", "gpt-6-luna")
CHAT = Kind("chat", OpenAIChat, "/v1", "local-model")
DECISIONS = Kind("openai_decisions", OpenAIDecisions, "/v1", "gpt-6-luna")
"""Answers no questions of jobs, so it is none of ``EVERY``."""
ANTHROPIC = Kind("anthropic", Anthropic, "", "claude-haiku-5-5")

OVER_HTTP = (OPENAI, CHAT, ANTHROPIC)
EVERY = (EXTRACTIVE, *OVER_HTTP)


def plan(provider: Provider, request: JobRequest) -> Call:
    """The call of a request, as the generate step makes it."""
    return provider.plan(request, render(request, provider.protocol(request.config)))


def using(provider: Provider, work: Callable[[Provider], Awaitable[Result]]) -> Result:
    """Do something with a provider on a loop of its own, and close it."""

    async def closed_after() -> Result:
        try:
            return await work(provider)
        finally:
            await provider.close()

    return asyncio.run(closed_after())


def ask(provider: Provider, request: JobRequest) -> tuple[Call, Answered]:
    """Plan and call once; returns the call as it was planned."""

    async def work(provider: Provider) -> tuple[Call, Answered]:
        call = plan(provider, request)
        return call, await provider.call(replace(call))

    return using(provider, work)


def hear(provider: Provider, request: JobRequest) -> tuple[list[str], Answered | ProviderError, Listener]:
    """Plan and call once, listening; what was heard, what came of it, and the listener."""
    chunks: list[str] = []
    listener = Listener(chunks.append)

    async def work(provider: Provider) -> Answered | ProviderError:
        try:
            return await provider.call(plan(provider, request), listener)
        except ProviderError as error:
            return error

    return chunks, using(provider, work), listener


def fails(provider: Provider, request: JobRequest | None = None) -> ProviderError:
    """Call once, and expect an error."""
    try:
        _, answered = ask(provider, request or question())
    except ProviderError as error:
        return error
    raise AssertionError(f"answered: {answered.completion}")
