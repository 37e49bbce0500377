"""Asks a provider whether it knows the key and the model, by a call that costs nothing, before jobs are submitted."""

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from schemas.failure import FailureKind
from tasks.errors import ProviderError
from tasks.ports import Provider
from worker.providers.adapter import Adapter
from worker.providers.openai import OpenAI
from worker.providers.openai_chat import OpenAIChat

PROBE_S = 4.0
"""Longest wait for the answer; a provider that is slow here is no reason to submit nothing."""

_CERTAIN = frozenset({FailureKind.AUTHENTICATION, FailureKind.QUOTA, FailureKind.UNAVAILABLE})
"""Failures that every call would have; others may be of this one call, whose right a key can lack."""


_ONCE: Any = {"follow_redirects": False}


async def probe(provider: Provider, model: str, *, lists_all: bool) -> ProviderError | None:
    """The failure that each call of this model would have; None where there is none, or the provider can't tell.

    Args:
        provider: built from the settings.
        model: asked for.
        lists_all: a model that the server does not list is not there.
    """
    if not isinstance(provider, Adapter):
        return None
    client: Any = provider.client
    try:
        async with asyncio.timeout(PROBE_S):
            listed = isinstance(provider, OpenAIChat)
            try:
                answer = await (client.models.list() if listed else client.models.retrieve(model))
            except Exception as error:  # noqa: BLE001 - the adapter knows what its SDK raises
                return await _certain(provider, error)
            # So the SDKs give what is not JSON. A server of others may know the model, and have chat completions alone.
            if isinstance(answer, str) or (isinstance(provider, OpenAI) and not _at_openai(provider)):
                return await _other_program(provider)
            names = _names_in(answer.data) if listed else []
    except TimeoutError:
        return None
    if lists_all and names and not {model, f"{model}:latest"} & set(names):
        problem = f"has no model {model!r}; it has {', '.join(names[:5])}"
        return provider.failures.error(FailureKind.NOT_FOUND, problem)
    return None


async def chat_models(provider: Adapter) -> list[str] | None:
    """The models of a server that has chat completions; None: it has none, or can't tell. Costs nothing.

    Most servers and gateways of others have these alone, not the Responses API.
    """
    client: Any = provider.client
    try:
        async with asyncio.timeout(PROBE_S):
            refused = False
            try:
                await client.post(OpenAIChat.path, cast_to=httpx2.Response, content=b"{}", options=_ONCE)
            except Exception as error:  # noqa: BLE001 - the adapter knows what its SDK raises
                problem = provider.translate(error, provider.address)
                if problem.kind is FailureKind.NOT_FOUND:
                    return None
                refused = problem.status_code is not None and problem.kind is not FailureKind.UNAVAILABLE
            names = []
            with suppress(Exception):
                names = _names_in((await client.models.list()).data)
            # An API refuses an empty request; what answers it, or breaks over it, is one if it lists models.
            return names if refused or names else None
    except TimeoutError:
        return None


def _names_in(models: Any) -> list[str]:
    """The names in a list of models; empty for a server that lists them in another form, or none (``null`` of a program in Go)."""
    names = [getattr(each, "id", None) for each in models] if isinstance(models, list) else []
    return [name for name in names if isinstance(name, str)]


async def _certain(provider: Adapter, error: Exception) -> ProviderError | None:
    problem = provider.translate(error, provider.address)
    # OpenAI's SDK breaks over a list that is not JSON.
    other = problem.kind is FailureKind.UNAVAILABLE and problem.status_code is not None
    if other or problem.kind is FailureKind.INTERNAL:
        return await _other_program(provider)
    if problem.kind is FailureKind.NOT_FOUND:
        # Or it is that of an address that the server does not have.
        return problem if _names_model(getattr(error, "body", None)) else await _other_program(provider)
    # A key may be limited to the calls that answer.
    return problem if problem.kind in _CERTAIN and "scope" not in str(problem) else None


async def _other_program(provider: Adapter) -> ProviderError | None:
    """The failure of an address that is no API's; a gateway may lack the models alone.

    An empty request tells: an API refuses it in its own words, and bills nothing.
    """
    try:
        response: httpx2.Response = await provider.client.post(
            provider.path, cast_to=httpx2.Response, content=b"{}", options=_ONCE
        )
    except Exception as error:  # noqa: BLE001 - as above
        problem = provider.translate(error, provider.address)
        if problem.kind is FailureKind.NOT_FOUND:
            # An empty request names no model: the server lacks the address.
            return provider.failures.no_api(error.response, provider.address)  # type: ignore[attr-defined]
        return problem if problem.kind is FailureKind.UNAVAILABLE else None
    is_page = response.headers.get("content-type", "").startswith("text/html")
    return provider.failures.no_api(response, provider.address) if is_page else None


def _at_openai(provider: Adapter) -> bool:
    return (urlsplit(provider.target.base_url).hostname or "").endswith(".openai.com")


def _names_model(body: object) -> bool:
    """Tells that an error's body is about the model: as OpenAI's SDK unwraps it, or as Anthropic writes it.

    Other servers answer in the same form that they have no such address (llama.cpp: ``not_found_error``, "File Not Found").
    """
    if not isinstance(body, dict):
        return False
    error = body["error"] if isinstance(body.get("error"), dict) else body
    words = str(error.get("message") or "").lower()
    return error.get("code") == "model_not_found" or (
        error.get("type") == "not_found_error" and words.startswith(("model", "the model"))
    )
