"""Common use of the openai SDK: the client, its errors, and the rules of strict schemas."""

from typing import Any

import httpx2
import openai

from schemas.failure import FailureKind
from tasks.errors import ProviderError
from worker.providers.adapter import MOST_CONNECTIONS, NO_KEY, SdkClient, Target
from worker.providers.failures import Failures

SDK = f"openai {openai.__version__}"


def build_client(target: Target) -> SdkClient:
    """Build a client that never retries, over aiohttp: the default transport's pool slows down with the calls in flight."""
    # Organisation and project of the environment are for OpenAI itself, not for other servers.
    elsewhere: dict[str, Any] = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    client: SdkClient = openai.AsyncOpenAI(
        api_key=target.api_key or NO_KEY,
        base_url=target.base_url,
        max_retries=0,
        default_headers=None if target.official else elsewhere,
        http_client=openai.DefaultAioHttpClient(limits=httpx2.Limits(max_connections=MOST_CONNECTIONS)),
    )
    return client


def translate(error: Exception, failures: Failures) -> ProviderError:
    """Turn an exception of the SDK, or one that escaped it, into ours."""
    match error:
        case openai.APIStatusError():
            return failures.of_status(error.response, error.body)
        case openai.APIResponseValidationError():
            return failures.bad_answer(error.response, "an answer that its SDK rejects")
        case openai.APIConnectionError():
            return failures.of_connection(error)
        case openai.OpenAIError():
            return failures.error(FailureKind.CONFIGURATION, f"could not be called: {error}")
        case _:
            return failures.of_connection(error)


def is_strict(schema: Any) -> bool:
    """True if a schema fits OpenAI's strict mode: every object closed, and all its properties required.

    Source: OpenAI's guide to structured outputs, "supported schemas" (2026-11).
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
        rest = {name: value for name, value in schema.items() if name != "properties"}
        return all(map(is_strict, properties.values())) and all(map(is_strict, rest.values()))
    return all(map(is_strict, schema.values()))
