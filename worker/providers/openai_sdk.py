"""Common use of the openai SDK: the client, the protocols, sampling parameters, and the rules of strict schemas."""

from collections.abc import Callable
from typing import Any, ClassVar

import httpx2
import openai

from schemas.generation import AnswerProtocol, GenerationConfig
from worker.providers.adapter import MOST_CONNECTIONS, NO_KEY, Draft, SdkClient, Target, sampling_of
from worker.providers.presets import why_no_sampling
from worker.providers.streaming import StreamingAdapter


def build_client(target: Target) -> SdkClient:
    """Builds a client that never retries, over aiohttp: the default transport's pool slows down with the calls in flight."""
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


class OpenAIAdapter(StreamingAdapter):
    """Common part of OpenAI's two APIs that write answers: in segments, or in running text with markers.

    Running text is for jobs that stream, and for servers without a JSON schema; a job with an ``output_schema`` is
    always asked for the JSON object.
    """

    sdk: ClassVar[Any] = openai
    sdk_error: ClassVar[type[Exception]] = openai.OpenAIError
    stream_class = openai.AsyncStream[object]

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``."""
        running_text = config.output_schema is None and (config.stream or not self.target.json_schema)
        best = AnswerProtocol.MARKERS if running_text else AnswerProtocol.SEGMENTS
        return self.chosen(config, best, (AnswerProtocol.SEGMENTS, AnswerProtocol.MARKERS))


def add_sampling(draft: Draft, config: GenerationConfig, model: str, problem_of: Callable[[str], str | None]) -> None:
    """Adds the sampling parameters of a job to a draft, or drops them with the reason.

    Args:
        draft: the request so far.
        config: the job's.
        model: decides about temperature and top_p.
        problem_of: the reason against one of the other parameters; None for one that the API has.
    """
    for name, value in sampling_of(config).items():
        decided_by_model = name in {"temperature", "top_p"}
        problem = why_no_sampling(model, config.reasoning_effort) if decided_by_model else problem_of(name)
        if problem:
            draft.dropped[name] = problem
        else:
            draft.parameters[name] = value


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
