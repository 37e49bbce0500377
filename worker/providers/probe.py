"""Asks a provider whether it knows the key and the model, by a call that costs nothing, before jobs are submitted."""

import asyncio
from typing import Any

from schemas.failure import FailureKind
from tasks.errors import ProviderError
from tasks.ports import Provider
from worker.providers.adapter import Adapter
from worker.providers.openai_chat import OpenAIChat

PROBE_S = 4.0
"""Longest wait for the answer; a provider that is slow here is no reason to submit nothing."""

_CERTAIN = frozenset({FailureKind.AUTHENTICATION, FailureKind.QUOTA, FailureKind.UNAVAILABLE})
"""Failures that every call would have; others may be of this one call, whose right a key can lack."""


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
            if not isinstance(provider, OpenAIChat):
                await client.models.retrieve(model)
                return None
            names = [each.id for each in (await client.models.list()).data]
    except TimeoutError:
        return None
    except Exception as error:  # noqa: BLE001 - the adapter knows what its SDK raises
        return _certain(provider, error)
    if lists_all and names and not {model, f"{model}:latest"} & set(names):
        problem = f"has no model {model!r}; it has {', '.join(names[:5])}"
        return provider.failures.error(FailureKind.NOT_FOUND, problem)
    return None


def _certain(provider: Adapter, error: Exception) -> ProviderError | None:
    problem = provider.translate(error)
    if problem.kind is FailureKind.NOT_FOUND:
        # Not that of an address that the server does not have.
        return problem if _names_model(getattr(error, "body", None)) else None
    # A key may be limited to the calls that answer.
    return problem if problem.kind in _CERTAIN and "scope" not in str(problem) else None


def _names_model(body: object) -> bool:
    """Tells that an error's body is about the model: as OpenAI's SDK unwraps it, or as Anthropic writes it."""
    if not isinstance(body, dict):
        return False
    error = body["error"] if isinstance(body.get("error"), dict) else body
    return error.get("code") == "model_not_found" or error.get("type") == "not_found_error"
