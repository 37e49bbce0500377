"""Common part of the adapters over HTTP: plan a call, make it once through the vendor's SDK, parse the answer."""

import hashlib
import json
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, assert_never
from urllib.parse import urlsplit

import httpx2
import orjson

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, NativeCitation, Prompt, ProviderSnapshot, Usage
from tasks.answers.parse import storable
from tasks.errors import ProviderError
from tasks.ports import Answered, Call, Listener
from tasks.ports.remote_batches import RemoteCalls, RemoteResponses, RemoteResult
from worker.providers.failures import Failures, request_id
from worker.providers.prices import PRICE_TIERS, PriceList, Prices
from worker.providers.whole_calls import CallLimit, SdkClient, SignedCalls, WholeCalls

if TYPE_CHECKING:
    from worker.provider_settings import TokenPrice

NO_KEY = "none"
"""Placeholder key for a server that needs none; the SDKs refuse to work without one."""


@dataclass(frozen=True, slots=True)
class Target:
    """Address and options of a configured provider.

    Attributes:
        name: in settings and jobs.
        base_url: in the form of the SDK; empty for code of one's own.
        api_key: None for a server that needs none.
        model: default of jobs that name none.
        json_schema: the server enforces a JSON schema; without it the model writes running text with markers.
        service_tier: passed on unchanged; None: the provider's default.
        official: the vendor's own endpoint as the SDK's environment variables describe it, organisation included.
        answer_protocol: default of jobs that name none; None: the adapter's best.
        takes: sampling parameters of the server beyond its protocol's.
        drops: parameters of the protocol that the server does not know.
        extra_body: fields added to each request.
        prices: own prices by model.
        options: arguments of the SDK's client, at a cloud; of the factory, for code of one's own.
    """

    name: str
    base_url: str
    api_key: str | None
    model: str | None
    json_schema: bool = True
    service_tier: str | None = None
    official: bool = False
    answer_protocol: AnswerProtocol | None = None
    takes: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    prices: "Mapping[str, TokenPrice] | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


@dataclass(slots=True)
class Draft:
    """A request for one provider: the body in two halves, and the parameters that it leaves out."""

    content: dict[str, Any]
    """Messages and schemas: long, and in the job's record anyway."""
    parameters: dict[str, Any]
    """All other parts of the body; stored with the snapshot."""
    dropped: dict[str, str]
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts about the content, stored with the parameters and not sent."""

    def add_beneath(self, fields: Mapping[str, Any]) -> None:
        """Adds fields of the settings that the job leaves open; objects of one name are put together."""
        for name, value in fields.items():
            if name in self.content:
                self.dropped[name] = "Nightdesk writes it for each job, in the place of extra_body"
                continue
            own = self.parameters.get(name, value)
            whole = {**value, **own} if isinstance(own, dict) and isinstance(value, dict) else own
            self.parameters[name] = whole
            if own is whole and own != value:
                self.dropped[f"extra_body.{name}"] = "what is written for the job goes before it"


@dataclass(frozen=True, slots=True)
class Received:
    """A provider's raw answer with its JSON; ``damaged``: decoding replaced bytes."""

    call: Call
    response: httpx2.Response
    raw: bytes
    value: dict[str, Any]
    damaged: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """Parsed fields of an answer."""

    text: str
    finish_reason: FinishReason
    model: str | None
    usage: Usage | None
    citations: tuple[NativeCitation, ...] = ()
    refusal: str | None = None
    service_tier: str | None = None


FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.CONTEXT_EXCEEDED,
    "content_filter": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "tool_calls": FinishReason.TOOL_CALL,
    "tool_use": FinishReason.TOOL_CALL,
    "function_call": FinishReason.TOOL_CALL,
    None: FinishReason.INTERRUPTED,
    "": FinishReason.INTERRUPTED,
}
"""Finish reasons of Anthropic, of chat completions, and of servers that have both."""

MOST_NAME_CHARACTERS = 300
"""Of a name that a provider returns; jobs name models by as many at most."""

MOST_TOKENS = 100_000_000
"""Of a call, in each count: ten times the longest context that there is."""


def counted(**counts: Any) -> Usage | None:
    """The usage of a call by its counts, of which some may be missing; None where one is no count of tokens that a call can have."""
    try:
        usage = Usage(**{name: count or 0 for name, count in counts.items()})
    except ValueError:
        return None
    return usage if all(0 <= count <= MOST_TOKENS for _, count in usage) else None


SHAPELESS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Exceptions of reading a value of an unknown shape."""


class Adapter(ABC):
    """A provider over HTTP. Building one builds the SDK's client (25-56 ms), so there is one per name and process."""

    path: ClassVar[str]
    sdk: ClassVar[Any]
    """The vendor's package."""
    sdk_error: ClassVar[type[Exception]]
    """The base of its exceptions."""
    streams: ClassVar[bool] = True
    has_batches: ClassVar[bool] = True

    def __init__(self, target: Target, client: SdkClient, vendor: PriceList | None) -> None:
        self.name = target.name
        self.target = target
        self.failures = Failures(target.name, (target.api_key,) if target.api_key else ())
        self.client = client
        self._prices = Prices(vendor, target.base_url, target.prices)
        self._whole_calls: WholeCalls | SignedCalls = WholeCalls(client, self.path, target.base_url)
        parts = urlsplit(target.base_url)
        at = parts.hostname or ""
        self._endpoint = f"{at}:{parts.port}" if parts.port else at
        self._endpoint += parts.path.rstrip("/") + self.path

    @abstractmethod
    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``."""

    def model_of(self, config: GenerationConfig) -> str | None:
        """See ``tasks.ports.Provider``."""
        return config.model or self.target.model

    @abstractmethod
    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """Writes the body of a request."""

    @abstractmethod
    def read(self, received: Received) -> Reading:
        """Parses an answer; raises ``ProviderError``, or ``SHAPELESS`` for missing keys."""

    @property
    def address(self) -> str:
        """The address of the calls, without credentials."""
        return self._endpoint

    def translate(
        self, error: Exception, address: str | None = None, request: JobRequest | None = None
    ) -> ProviderError:
        """Translates an exception of the SDK, or one that escapes it, into ours; for the rest see ``Failures.of_status``."""
        if isinstance(error, self.sdk.APIStatusError):
            return self.failures.of_status(error.response, error.body, address, request)
        if isinstance(error, self.sdk.APIResponseValidationError):
            return self.failures.bad_answer(error.response, "an answer that its SDK rejects")
        if isinstance(error, self.sdk_error) and not isinstance(error, self.sdk.APIConnectionError):
            return self.failures.error(FailureKind.CONFIGURATION, f"could not be called: {error}")
        return self.failures.of_connection(error)

    @contextmanager
    def translating(self, address: str | None = None) -> Iterator[None]:
        """Translates whatever a block raises but our own errors; ``address``: see ``Failures.of_status``."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDKs let errors of three libraries through
            # Not chained: what lies behind may hold what the message must not.
            raise self.translate(error, address) from None

    # ---- planning ----

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """See ``tasks.ports.Provider``."""
        config = request.config
        lane = self._lane(config)
        model = self.model_of(config)
        if model is None:
            raise self.failures.error(
                FailureKind.CONFIGURATION, "has no default model: set 'model' in its settings or in the job's config"
            )
        stream, tier = config.stream and self.streams, self.target.service_tier
        if lane is not Lane.STANDARD:
            # It has a tier, and a price, of its own; and an answer of it comes whole.
            stream, tier = False, PRICE_TIERS[lane]
            request = request.model_copy(update={"config": config.model_copy(update={"stream": False})})
        draft = self.draft(request, prompt, model)
        for name in self.target.drops & draft.parameters.keys():
            del draft.parameters[name]
            draft.dropped[name] = f"{self.name} does not know it (its settings say: drops)"
        draft.add_beneath(self.target.extra_body)
        if stream:
            draft.parameters["stream"] = True
        elif config.stream:
            draft.dropped["stream"] = _HAS_NOT.get(lane, "the answer is fetched whole here")
        if tier is not None and lane is Lane.STANDARD:
            draft.parameters["service_tier"] = tier
        elif self.target.service_tier is not None:
            draft.dropped["service_tier"] = _HAS_NOT[lane]
        body = orjson.dumps({**draft.parameters, **draft.content})
        return Call(
            provider=self.name,
            model=model,
            lane=lane.value,
            protocol=prompt.snapshot.protocol,
            body=body,
            request_hash=hashlib.sha256(body).digest(),
            timeout_s=config.timeout_s,
            reserve_usd=self._prices.reserve_usd(model, len(body), config.max_tokens, tier),
            prompt=prompt,
            request=request,
            parameters_sent={**draft.parameters, **draft.notes},
            parameters_dropped=draft.dropped,
            stream=stream,
            endpoint=self._endpoint,
        )

    def expected_usd(self, call: Call) -> Decimal | None:
        """See ``tasks.ports.Provider``."""
        tier, most = _tier_of(call, self.target.service_tier), call.request.config.max_tokens
        return self._prices.expected_usd(call.model or "", len(call.body), most, tier)

    # ---- calling ----

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:  # noqa: ARG002 - streams hear
        """Fetches an answer whole; see ``tasks.ports.Provider``."""
        with self.translating(self.address):
            async with CallLimit(call.timeout_s):
                response = await self._whole_calls.post(call)
        if not response.is_success:
            raise self.failures.of_status(response, _error_body(response), self.address, call.request) from None
        return self.answered(self.received(call, response))

    def answered(self, received: Received) -> Answered:
        """Parses a received answer into a completion."""
        try:
            return Answered(received.raw, self.completion(received, self.read(received)))
        except ProviderError:
            raise
        except SHAPELESS as error:
            raise self.failures.bad_answer(received.response, f"an unknown shape ({type(error).__name__})") from None

    async def close(self) -> None:
        """See ``tasks.ports.Provider``."""
        await self._whole_calls.close()
        await self.client.close()

    def received(self, call: Call, response: httpx2.Response) -> Received:
        """Decodes the JSON of an answer fetched whole."""
        raw = response.content
        try:
            value, damaged = _loads(raw)
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "").partition(";")[0] or "a body"
            raise self.failures.bad_answer(response, f"{kind} that is not JSON") from None
        if not isinstance(value, dict):
            raise self.failures.bad_answer(response, "JSON that is no object")
        return Received(call, response, raw, value, damaged)

    def completion(self, received: Received, reading: Reading) -> Completion:
        """Combines parsed fields and the call into a completion."""
        call = received.call
        text = storable(reading.text)
        refusal = storable(reading.refusal) if reading.refusal is not None else None
        model = _name(reading.model)
        headers = received.response.headers
        snapshot = ProviderSnapshot(
            provider=self.name,
            model_asked=call.model,
            model_returned=model,
            service_tier_asked=call.parameters_sent.get("service_tier"),
            service_tier_returned=_name(reading.service_tier),
            lane=call.lane,
            protocol=call.protocol,
            endpoint=self._endpoint,
            request_id=request_id(headers),
            parameters_sent=call.parameters_sent,
            parameters_dropped=call.parameters_dropped,
            sdk=f"{self.sdk.__name__} {self.sdk.__version__}",
            # Some of them are moments by the provider's clock.
            rate_limits={name: value for name, value in headers.items() if "ratelimit" in name or name == "date"},
        )
        return Completion(
            text=text,
            finish_reason=reading.finish_reason,
            protocol=call.protocol,
            native_citations=reading.citations,
            refusal=refusal,
            sanitised=text != reading.text or received.damaged,
            usage=reading.usage,
            cost_usd=self._cost(call, model, reading),
            snapshot=snapshot,
        )

    def _cost(self, call: Call, model: str | None, reading: Reading) -> Decimal | None:
        if reading.usage is None:
            # The worst case, as of an unknown outcome: else no ceiling holds at a server that names no usage.
            return call.reserve_usd
        tier = _tier_of(call, reading.service_tier)
        return self._prices.cost_usd(call.model or "", model, reading.usage, tier)

    # ---- provider batches, and the background ----

    def _lane(self, config: GenerationConfig) -> Lane:
        match config.lane:
            case Lane.STANDARD | Lane.AUTO:
                has_lane = False
            case Lane.PROVIDER_BATCH:
                has_lane = self.has_batches and self.batch_calls is not None
            case Lane.BACKGROUND | Lane.BACKGROUND_2H:
                has_lane = self.background is not None
            case _:
                assert_never(config.lane)
        return config.lane if has_lane else standard_lane(config, self.failures)

    @property
    def background(self) -> RemoteResponses | None:
        """The provider's background; None: it has none."""
        return None

    @property
    def batch_calls(self) -> RemoteCalls | None:
        """The provider's batches; None: it has none."""
        return None

    def answer_of(self, call: Call, result: RemoteResult) -> Answered:
        """Parses a row of a batch's results as the answer of a single call is parsed; see ``RemoteCalls.answer``."""
        headers = {"content-type": "application/json"}
        if result.request_id is not None:
            headers["x-request-id"] = result.request_id
        response = httpx2.Response(result.status_code, headers=headers, content=result.body)
        if not response.is_success:
            raise self.failures.of_status(response, _error_body(response), request=call.request)
        return self.answered(self.received(call, response))


_NOT_IN_BACKGROUND = "a response in the background at a lower price has no such parameter"

_HAS_NOT = {
    Lane.PROVIDER_BATCH: "a provider batch has no such parameter",
    Lane.BACKGROUND: _NOT_IN_BACKGROUND,
    Lane.BACKGROUND_2H: _NOT_IN_BACKGROUND,
}


class OfAdapter:
    """The part of what reads answers later that is the adapter's."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._client: Any = adapter.client

    def answer(self, call: Call, result: RemoteResult) -> Answered:
        """See the ports of batches and responses."""
        return self._adapter.answer_of(call, result)


def _name(text: str | None) -> str | None:
    """A name as a provider gives it: of a model, of a tier."""
    return None if text is None else storable(text[:MOST_NAME_CHARACTERS])


def _tier_of(call: Call, tier: str | None) -> str | None:
    """The tier that a call is priced by. In a provider batch some answers say "default", and cost half all the same."""
    return PRICE_TIERS.get(call.lane, tier)


def standard_lane(config: GenerationConfig, failures: Failures) -> Lane:
    """The lane of a call made at once; raises ``ProviderError`` for a job that wants another one."""
    if config.lane not in {Lane.STANDARD, Lane.AUTO}:
        reason = f"does not serve the lane {config.lane.value!r} here: use 'standard'"
        raise failures.error(FailureKind.CONFIGURATION, reason)
    return Lane.STANDARD


def messages_of(request: JobRequest, prompt: Prompt) -> list[dict[str, str]]:
    """The messages of a prompt in the form that chat APIs share."""
    contents = [source.content for source in request.context]
    return [{"role": role, "content": text} for role, text in prompt.snapshot.texts(contents)]


def choose_protocol(
    config: GenerationConfig,
    best: AnswerProtocol,
    serves: tuple[AnswerProtocol, ...],
    preferred: AnswerProtocol | None,
    failures: Failures,
) -> AnswerProtocol:
    """Chooses the answer protocol of a job.

    Args:
        config: the job's; a protocol in it has precedence.
        best: the adapter's best protocol for it.
        serves: all protocols of the adapter.
        preferred: the settings' choice for this provider; gives way to a job's ``output_schema``.
        failures: of the provider.

    Raises: ProviderError (configuration) for a protocol that the adapter lacks, or that can't carry the object.
    """
    protocol = config.answer_protocol
    if protocol is None:
        if preferred is None or config.output_schema is not None:
            return best
        protocol = preferred
    if protocol not in serves:
        available = ", ".join(f"'{served.value}'" for served in serves)
        problem = f"has no answer protocol '{protocol.value}'; it has {available}: change answer_protocol"
        raise failures.error(FailureKind.CONFIGURATION, problem)
    if config.output_schema is not None and protocol is not AnswerProtocol.SEGMENTS:
        problem = f"can't return the object of output_schema with answer_protocol '{protocol.value}': use 'segments'"
        raise failures.error(FailureKind.CONFIGURATION, problem)
    return protocol


def _error_body(response: httpx2.Response) -> object:
    """The body of an answer with an error status: its JSON, else its text."""
    text = response.text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _loads(raw: bytes) -> tuple[Any, bool]:
    """Reads JSON, replacing bytes that are not UTF-8; lone surrogates are let in here and replaced with the text."""
    # Python's reader refuses the mark, orjson too; some servers written for Windows send it.
    raw = raw.removeprefix(BOM_UTF8)
    try:
        return orjson.loads(raw), False
    except orjson.JSONDecodeError:
        text = raw.decode(errors="replace")
        return json.loads(text), text.encode() != raw


def sampling_of(config: GenerationConfig) -> dict[str, Any]:
    """Sampling settings of a job, by name."""
    values: dict[str, Any] = {"temperature": config.temperature}
    if config.sampling is not None:
        values |= config.sampling.model_dump(mode="json")
    return {name: value for name, value in values.items() if value is not None}
