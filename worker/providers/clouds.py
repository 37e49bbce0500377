"""Calls models where companies buy them: OpenAI's at Azure, Anthropic's at Amazon Bedrock and at Google Vertex.

Addresses and signatures are written by the vendors' SDKs; credentials come from the clouds' own libraries, which find them as
every other program on that machine does. An API has all its calls under one client, so its head can't be kept as elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from importlib import import_module
from time import time
from types import ModuleType
from typing import Any, ClassVar

import anthropic
import openai

from schemas.failure import FailureKind
from schemas.job import JobRequest
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Call
from worker.providers.adapter import Adapter, Reading, Target
from worker.providers.anthropic import Anthropic
from worker.providers.openai import OpenAI, build_client
from worker.providers.prices import PriceList
from worker.providers.whole_calls import SignedCalls, client_of

EARLY_S = 300.0
"""Seconds before its end at which a token is replaced; a call may wait that long in a queue of its cloud."""

ENTRA_SCOPE = "https://cognitiveservices.azure.com/.default"
GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

Token = Callable[[], Awaitable[str]]


class FreshToken:
    """A token that is fetched anew before it ends, by one of the calls that need it; the others wait for that one.

    Args:
        fetch: returns a token, and the Unix time at which it ends.
    """

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]]) -> None:
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self._token, self._until = "", 0.0

    async def __call__(self) -> str:
        """The token; raises what the fetch raises."""
        if time() < self._until:
            return self._token
        async with self._lock:
            if time() >= self._until:
                self._token, end = await self._fetch()
                self._until = end - EARLY_S
        return self._token


def _library(name: str, extra: str, target: Target, key: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        problem = f"the provider {target.name!r} needs {key}, or the extra {extra!r} of nightdesk: {error}"
        raise ConfigurationError(problem) from None


class _InCloud(Adapter):
    """Tells a failure to get credentials, before anything was sent, from the errors of a call."""

    def translate(
        self, error: Exception, address: str | None = None, request: JobRequest | None = None
    ) -> ProviderError:
        """See ``Adapter.translate``."""
        names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
        if not (
            isinstance(error, RuntimeError)
            or any(name.startswith(("azure.", "botocore.", "google.")) for name in names)
        ):
            return super().translate(error, address, request)
        passing = getattr(error, "retryable", False) or any(
            word in type(error).__name__ for word in ("Transport", "Connect", "Timeout", "ServiceRequest")
        )
        kind = FailureKind.UNAVAILABLE if passing else FailureKind.AUTHENTICATION
        return self.failures.error(kind, f"could not get credentials: {error}")


# ---- Azure -----------------------------------------------------------------------------------------------------------


class AzureOpenAI(_InCloud, OpenAI):
    """Answers by the Responses API of an Azure resource, by its key or a token of Entra ID; a model is a deployment."""

    has_batches: ClassVar[bool] = False

    def __init__(self, target: Target) -> None:
        if not target.base_url:
            problem = (
                f"the provider {target.name!r} needs the endpoint of its resource: base_url in NIGHTDESK_PROVIDERS, or "
            )
            raise ConfigurationError(f"{problem}AZURE_OPENAI_ENDPOINT")
        self._credential: Any = None
        token: Token | None = None
        if target.api_key is None:
            identity = _library("azure.identity.aio", "azure", target, "the key AZURE_OPENAI_API_KEY")
            self._credential = identity.DefaultAzureCredential()
            token = FreshToken(self._fetch)
        self._scope = target.options.get("scope", ENTRA_SCOPE)
        endpoint = target.base_url.rstrip("/").removesuffix("/v1").removesuffix("/openai")
        # Not its own, as OpenAI's: it has no windows at a lower price.
        target = replace(target, base_url=f"{endpoint}/openai/v1", official=False)
        version = target.options.get("api_version")
        client = build_client(target, token) if version is None else _versioned(target, endpoint, version, token)
        super().__init__(replace(target, base_url=str(client.base_url).rstrip("/")), client, "azure")
        self._whole_calls = SignedCalls(client, self.path)

    async def _fetch(self) -> tuple[str, float]:
        token = await self._credential.get_token(self._scope)
        return token.token, token.expires_on

    async def close(self) -> None:
        """See ``tasks.ports.Provider``."""
        await super().close()
        if self._credential is not None:
            await self._credential.close()


def _versioned(target: Target, endpoint: str, version: str, token: Token | None) -> Any:
    """A client of the API by dated versions, for resources without the current one."""
    return openai.AsyncAzureOpenAI(
        azure_endpoint=endpoint,
        api_version=version,
        api_key=target.api_key,
        azure_ad_token_provider=token,
        max_retries=0,
        http_client=client_of(openai),
    )


# ---- Anthropic's models at other clouds ------------------------------------------------------------------------------


class _AnthropicElsewhere(_InCloud, Anthropic):
    """Common part of Bedrock and Vertex: the answer comes whole, at once, and costs what the model asked for costs."""

    streams: ClassVar[bool] = False
    has_batches: ClassVar[bool] = False

    def __init__(self, target: Target, client: Any, vendor: PriceList, token: Token | None = None) -> None:
        super().__init__(replace(target, base_url=str(client.base_url).rstrip("/")), client, vendor)
        self._whole_calls = SignedCalls(client, self.path, token)
        # The SDK writes the rest of the address, with the model in it.
        self._endpoint = self._endpoint.removesuffix(self.path)

    def _cost(self, call: Call, model: str | None, reading: Reading) -> Decimal | None:  # noqa: ARG002 - as the base has it
        # An answer names the model without the region by which it is priced.
        return super()._cost(call, None, reading)


def _client(target: Target, kind: Callable[..., Any], **arguments: Any) -> Any:
    try:
        return kind(
            base_url=target.base_url or None,
            max_retries=0,
            open_telemetry=False,
            http_client=client_of(anthropic),
            **arguments,
            **target.options,
        )
    except Exception as error:  # noqa: BLE001 - of whichever library finds the credentials
        raise ConfigurationError(f"the provider {target.name!r} can't be set up: {error}") from None


class Bedrock(_AnthropicElsewhere):
    """Amazon Bedrock, by a bearer token, or signed with the credentials that boto3 finds."""

    def __init__(self, target: Target) -> None:
        if target.api_key is None:
            _library("boto3", "bedrock", target, "the key AWS_BEARER_TOKEN_BEDROCK")
        super().__init__(target, _client(target, anthropic.AsyncAnthropicBedrock, api_key=target.api_key), "aws")


class Vertex(_AnthropicElsewhere):
    """Google Vertex, by an access token, or with the application default credentials."""

    def __init__(self, target: Target) -> None:
        self._credentials: Any = None
        if target.api_key is None:
            self._google = _library("google.auth", "vertex", target, "an access token (api_key_env)")
            self._transport = _library(
                "google.auth.transport.requests", "vertex", target, "an access token (api_key_env)"
            )
        client = _client(target, anthropic.AsyncAnthropicVertex, access_token=target.api_key)
        super().__init__(target, client, "google", None if target.api_key else FreshToken(self._fetch))

    async def _fetch(self) -> tuple[str, float]:
        return await asyncio.to_thread(self._refreshed)

    def _refreshed(self) -> tuple[str, float]:
        client: Any = self.client
        if self._credentials is None:
            self._credentials, project = self._google.default(scopes=[GOOGLE_SCOPE])
            client.project_id = client.project_id or project
        self._credentials.refresh(self._transport.Request())
        expiry = self._credentials.expiry
        return self._credentials.token, expiry.replace(tzinfo=UTC).timestamp() if expiry else 0.0
