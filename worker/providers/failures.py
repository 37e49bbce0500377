"""Translates the errors of provider calls into ``ProviderError``, for the adapters of all SDKs.

One question tells their kinds apart: may the provider have done (and billed) the work? No message holds a secret.
"""

import json
import math
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2

from schemas.failure import FailureKind
from schemas.job import GenerationConfig, JobRequest
from tasks.errors import ProviderError
from tasks.masking import MASK, masked
from worker.limits.rates import answered_at
from worker.providers.whole_calls import AnswerTooLarge

_K = FailureKind

LONGEST_MESSAGE = 400
"""Characters of a provider's own words that are kept."""

MOST_READ = 4_000
"""Characters of its words that are looked at: to search megabytes takes seconds, in a loop that others share."""

QUOTA_CODES = frozenset(
    {
        # of OpenAI, as code or type
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        # of Anthropic, as type or in the details
        "billing_error",
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "organization_on_hold",
        "user_profile_not_billable",
    }
)
"""Codes that no short wait cures: the operator has to pay or to raise a limit."""

_NO_CREDIT = re.compile(r"credit balance is too low|exceeded your current quota", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context_length_exceeded|prompt is too long|maximum context length|context (?:window|length|size)"
    r"|exceeds? the (?:available )?context",
    re.IGNORECASE,
)

PARAMETER_CODES = frozenset({"unknown_parameter", "unsupported_parameter", "unsupported_value"})
"""OpenAI's, beside the parameter's name in ``param``."""

_PARAMETER = re.compile(
    r"""unknown\ name\ "(?P<gemini>[\w.]+)"
    |(?:unknown|unsupported|unrecognized)\ (?:request\ )?(?:parameter|argument)s?(?:\ supplied)?:\ *['"]?(?P<openai>[\w.]+)
    |(?<![\w.])(?P<anthropic>[\w.]+):\ extra\ inputs\ are\ not\ permitted
    |don't\ support\ (?P<litellm>\w+)=
    |"loc":\ \["body",\ "(?P<fastapi>(?!messages|input|model)[\w.]+)\"
    |fewer\ (?P<openrouter>max_tokens)""",
    re.IGNORECASE | re.VERBOSE,
)
"""How servers say that they don't know a parameter, or take no such value, each with its name."""

_FORM = re.compile(r"response_format|output_config\.format|text\.format|\bjson_schema\b", re.IGNORECASE)
"""The names of the form that answers are asked for in."""

_BAD_SCHEMA = re.compile(r"invalid (?:json )?schema|schema is invalid", re.IGNORECASE)
"""Said of one job's schema, not of the form."""

_TOO_LARGE = re.compile(r"^request too large", re.IGNORECASE)
"""OpenAI's, with 429: a request larger than what may be asked in a minute never fits."""

_BAD_KEY = re.compile(r"api key not valid|api key expired|API_KEY_INVALID", re.IGNORECASE)
"""Gemini refuses a key with 400."""

OF_STATUS = {
    400: _K.INVALID_REQUEST,
    401: _K.AUTHENTICATION,
    402: _K.QUOTA,
    403: _K.PERMISSION,
    404: _K.NOT_FOUND,
    405: _K.NOT_FOUND,
    408: _K.UNKNOWN_OUTCOME,
    409: _K.OVERLOADED,
    413: _K.INVALID_REQUEST,
    422: _K.INVALID_REQUEST,
    429: _K.RATE_LIMITED,
    499: _K.UNKNOWN_OUTCOME,
    501: _K.INVALID_REQUEST,  # of vLLM: a part of the request that it does not serve
    503: _K.OVERLOADED,
    529: _K.OVERLOADED,  # Anthropic: too busy
}
"""Other 3xx are a wrong base URL, other 4xx a refused request, other 5xx an unknown outcome."""

_TOLD_APART = frozenset({400, 403, 413, 422, 429})
"""Statuses that say less than the codes and words beside them."""

_NO_SUCH_PLACE = frozenset(
    {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
"""Answers of any web server to an address or a method that it does not have, and of a firewall to what it lets nobody ask."""

OF_TYPE = {
    "rate_limit_error": _K.RATE_LIMITED,
    "rate_limit_exceeded": _K.RATE_LIMITED,
    "overloaded_error": _K.OVERLOADED,
    "slow_down": _K.OVERLOADED,
    "invalid_prompt": _K.INVALID_REQUEST,
    "invalid_request_error": _K.INVALID_REQUEST,
    "authentication_error": _K.AUTHENTICATION,
    "permission_error": _K.PERMISSION,
    "not_found_error": _K.NOT_FOUND,
    "bio_policy": _K.REFUSED,
    "content_filter": _K.REFUSED,
    "content_policy_violation": _K.REFUSED,
    "misalignment_policy_violation": _K.REFUSED,
    "data_residency_mismatch": _K.CONFIGURATION,
}
"""Errors that come in the body of an answer with status 200, where others are an unknown outcome; refusals also with 400."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of one provider, with its secrets masked.

    Args:
        provider: the name it is configured under.
        secrets: keys; whole or in parts of eight characters they are replaced.
    """

    provider: str
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Failures({self.provider!r})"

    def error(
        self, kind: FailureKind, problem: str, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> ProviderError:
        """An error whose message names the provider and holds no secret."""
        message = " ".join(mask(f"{self.provider} {problem}"[:MOST_READ], self.secrets).split())
        if len(message) > LONGEST_MESSAGE:
            message = message[:LONGEST_MESSAGE] + "…"
        if headers is not None:
            facts = {"provider_request_id": request_id(headers), **facts}
        return ProviderError(kind, message, **facts)

    def of_status(
        self, response: httpx2.Response, body: object, address: str | None = None, request: JobRequest | None = None
    ) -> ProviderError:
        """An answer with an error status.

        Args:
            response: the answer.
            body: what the SDK read of it.
            address: that of the calls, if the answer is to one.
            request: the job's, if the answer is to its call: a refusal of what the job sets is no fault of the lane.
        """
        if address is not None and response.status_code in _NO_SUCH_PLACE and not _is_of_api(response):
            return self.no_api(response, address)
        error = replace(_error_of(body), request=request)
        kind = _kind(response.status_code, error)
        problem = f"answered {response.status_code} {error}"
        if place := response.is_redirect and response.headers.get("location"):
            target = urlsplit(place)
            new_address = (
                f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}" if target.hostname else target.path
            )
            problem = f"answered {response.status_code}: its address is {new_address}; correct the base URL"
        if kind in {_K.INVALID_REQUEST, _K.QUOTA} and (refusal := error.refusal(kind)):
            kind, problem = refusal[0], f"{refusal[1]}; it {problem}"
        return self.error(
            kind,
            problem,
            response.headers,
            status_code=response.status_code,
            retry_after_s=retry_after_s(response.headers),
        )

    def no_api(self, response: httpx2.Response, address: str) -> ProviderError:
        """An answer of another program: no work was done, and the right one may be there later."""
        status = f"{response.status_code} {HTTPStatus(response.status_code).phrase}"
        problem = f"can't be reached: the server at {address} is no {self.provider} API (answered {status})"
        if response.status_code == HTTPStatus.FORBIDDEN:
            problem += "; it may be a proxy or a firewall in front of that: let it pass these calls"
        return self.error(_K.UNAVAILABLE, problem, response.headers, status_code=response.status_code)

    def in_answer(self, response: httpx2.Response, body: object) -> ProviderError:
        """An error object that came with status 200."""
        error = _error_of(body)
        kind = _K.QUOTA if error.codes & QUOTA_CODES else None
        kind = kind or next((OF_TYPE[code] for code in error.codes if code in OF_TYPE), _K.UNKNOWN_OUTCOME)
        problem = f"answered {response.status_code} with an error: {error}"
        return self.error(kind, problem, response.headers, status_code=response.status_code)

    def bad_answer(self, response: httpx2.Response, why: str) -> ProviderError:
        """An answer with status 200 that is not of the provider's protocol."""
        start = response.content[:120].decode(errors="replace")
        problem = f"answered {response.status_code} with {why}: {start}"
        return self.error(_K.BAD_ANSWER, problem, response.headers, status_code=response.status_code)

    def of_connection(self, error: BaseException) -> ProviderError:
        """An exception without an answer: what the SDK wrapped says more than the wrapper.

        The SDKs' aiohttp transport reports a refused connection and a connection lost after sending both as
        ``httpx2.ConnectTimeout``; only the aiohttp error behind it tells them apart.
        """
        # Aiohttp's own errors first: under a refused one lies a plain TimeoutError or OSError of the system.
        for cause in sorted(_causes(error), key=lambda cause: not isinstance(cause, aiohttp.ClientError)):
            kind, problem = _without_answer(cause)
            if kind is not None:
                return self.error(kind, problem)
        return self.error(_K.INTERNAL, f"call broke: {type(error).__name__}: {error}")


# ---- errors that came as an answer -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Error:
    """The error object of an answer: its codes, from the most telling one on, and its words."""

    codes: frozenset[str]
    message: str
    param: str | None = None
    request: JobRequest | None = None
    """The job's; words that stand in it are the job's own, which some servers repeat."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", self.message[:MOST_READ])

    def says(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The words of the provider that fit a pattern."""
        match = pattern.search(self.message)
        if match is None or self.request is None:
            return match
        own = self.request.model_dump_json().lower()
        return None if json.dumps(match[0].lower(), ensure_ascii=False)[1:-1] in own else match

    def refusal(self, kind: FailureKind) -> tuple[FailureKind, str] | None:
        """The part of the request that is refused, in words, and whether only its job is at fault; None: no part is named."""
        parameter, form = self.parameter(), self.refuses_the_form()
        own = set() if self.request is None else _set_by(self.request.config)
        name = "output_schema" if form and "output_schema" in own else parameter or self.param or ""
        if not own.isdisjoint(name.split(".")):
            return _K.INVALID_REQUEST, f"refuses {name!r}, which the job sets: leave it out or change it"
        if kind is _K.QUOTA:
            return None
        if form:
            return _K.PARAMETER, 'takes no JSON schema: set "json_schema": false in its settings'
        if parameter:
            return (
                _K.PARAMETER,
                f"refuses the parameter {parameter!r}: leave it out, or name it in 'drops' of its settings",
            )
        return None

    def parameter(self) -> str | None:
        """The parameter that the server does not know or take, if that is what it says."""
        if self.param and self.codes & PARAMETER_CODES:
            return self.param
        match = self.says(_PARAMETER)
        return match[match.lastgroup] if match and match.lastgroup else None

    def refuses_the_form(self) -> bool:
        """Tells that the form of the answer is refused, and not the schema of one job."""
        named = self.says(_FORM) or _FORM.search(self.param or "")
        return bool(named) and not _BAD_SCHEMA.search(self.message)

    def __str__(self) -> str:
        codes = ", ".join(sorted(self.codes))
        return f"({codes}) {self.message}" if codes else self.message


_OTHER_NAMES = {
    "max_tokens": ("max_completion_tokens", "max_output_tokens"),
    "reasoning_effort": ("reasoning", "effort"),
    "stop": ("stop_sequences",),
    "stream": ("stream_options",),
}


def _set_by(config: GenerationConfig) -> set[str]:
    """The names by which providers know what a job sets of its call."""
    own = config.model_dump(exclude_defaults=True)
    names = {*own, *own.get("sampling", ())}
    return names.union(*(_OTHER_NAMES.get(name, ()) for name in names))


def _error_of(body: object) -> _Error:
    """Reads ``{"error": {...}}`` of both makers, the inner object alone (openai's SDK unwraps it), or Gemini's list of one."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return _Error(frozenset(), str(body or ""))
    if isinstance(body.get("detail"), list):
        # FastAPI repeats the request beside what is wrong with it.
        entries = [
            {name: part.get(name) for name in ("type", "loc", "msg")}
            for part in body["detail"]
            if isinstance(part, dict)
        ]
        body = {**body, "detail": entries}
    error = body.get("error", body)
    if not isinstance(error, dict):
        return _Error(frozenset(), str(error))
    details = error.get("details")
    codes = [error.get("code"), error.get("type"), details.get("error_code") if isinstance(details, dict) else None]
    message = error.get("message")
    metadata = error.get("metadata")
    if isinstance(message, str) and isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        # OpenRouter's: the words of the provider behind it.
        message = f"{message}: {metadata['raw']}"
    return _Error(
        frozenset(str(code) for code in codes if isinstance(code, str | int) and code != "error"),
        message if isinstance(message, str) else json.dumps(error, default=str),
        error.get("param") if isinstance(error.get("param"), str) else None,
    )


def _is_of_api(response: httpx2.Response) -> bool:
    """Tells that the body of an error is a provider's: JSON with more words than those of the status."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return False
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict) or not body:
        return False
    phrase = HTTPStatus(response.status_code).phrase
    # FastAPI, Spring and others say no more where they have no such route.
    return phrase not in (body.get("detail"), body.get("error"), body.get("message"))


def _kind(status: int, error: _Error) -> FailureKind:  # noqa: PLR0911 - a row of the table each
    if status in _TOLD_APART:
        too_long = _TOO_LARGE if status == HTTPStatus.TOO_MANY_REQUESTS else _TOO_LONG
        if "context_length_exceeded" in error.codes or too_long.search(error.message):
            return _K.CONTEXT_EXCEEDED
        if error.codes & QUOTA_CODES or error.says(_NO_CREDIT):
            return _K.QUOTA
        if error.says(_BAD_KEY):
            return _K.AUTHENTICATION
        if _K.REFUSED in map(OF_TYPE.get, error.codes):
            return _K.REFUSED
    if "overloaded_error" in error.codes:
        return _K.OVERLOADED
    if (kind := OF_STATUS.get(status)) is not None:
        return kind
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _K.UNKNOWN_OUTCOME
    return _K.INVALID_REQUEST if status >= HTTPStatus.BAD_REQUEST else _K.CONFIGURATION


_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's own id of a call."""
    return next((value for name in _REQUEST_IDS if (value := headers.get(name))), None)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait: ``retry-after-ms``, ``retry-after`` in seconds or as an HTTP date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    retry_after = headers.get("retry-after")
    seconds = _number(retry_after)
    if seconds is not None or retry_after is None:
        return seconds
    try:
        moment = parsedate_to_datetime(retry_after).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, moment - answered_at(headers))


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


# ---- errors without an answer ----------------------------------------------------------------------------------


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from, the innermost first."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain[::-1]


def _without_answer(error: BaseException) -> tuple[FailureKind | None, str]:  # noqa: PLR0911 - a row of the table each
    name = type(error).__name__
    match error:
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return _K.UNAVAILABLE, f"can't be reached: {error.host}:{error.port} refuses connections"
        case (
            aiohttp.ClientConnectorError()
            | socket.gaierror()
            | ConnectionRefusedError()
            | ssl.SSLCertVerificationError()
        ):
            return _K.UNAVAILABLE, f"can't be reached: {name}: {error}"
        case aiohttp.ConnectionTimeoutError():
            return _K.UNAVAILABLE, "can't be reached: no connection in time"
        case (
            aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | httpx2.InvalidURL() | httpx2.UnsupportedProtocol()
        ):
            return _K.CONFIGURATION, f"has a base URL that can't be called: {name}"
        case aiohttp.ServerTimeoutError() | httpx2.ReadTimeout() | TimeoutError():
            return _K.UNKNOWN_OUTCOME, "did not answer in time"
        case aiohttp.ClientError() | ConnectionError() | httpx2.ReadError() | httpx2.WriteError():
            return _K.UNKNOWN_OUTCOME, f"broke off the connection: {name}: {error}"
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return _K.UNAVAILABLE, f"can't be reached: {name}: {error}"
        case httpx2.RequestError():
            return _K.UNKNOWN_OUTCOME, f"broke off the exchange: {name}: {error}"
        case json.JSONDecodeError() | UnicodeDecodeError() | AnswerTooLarge():
            return _K.BAD_ANSWER, f"answered with something that can't be read: {name}: {error}"
    return None, ""


# ---- secrets ---------------------------------------------------------------------------------------------------

_PART = 8
"""Characters of a secret in a row that give it away; providers echo the ends of keys."""
_KEYLIKE = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai)-[\w.*…-]{4,}|(?i:\bbearer\s+)[^\s'\"]+|\bBasic\s+[\w+/=]{8,}")


def mask(text: str, secrets: Sequence[str]) -> str:
    """The text without these secrets, their parts, those of this process, and whatever looks like a key."""
    text = masked(_KEYLIKE.sub(MASK, text))
    hidden: set[int] = set()
    for secret in secrets:
        length = min(_PART, len(secret))
        for part in {secret[at : at + length] for at in range(len(secret) - length + 1)} if length else ():
            at = text.find(part)
            while at >= 0:
                hidden.update(range(at, at + length))
                at = text.find(part, at + 1)
    if not hidden:
        return text
    return "".join(
        "" if at in hidden and at - 1 in hidden else MASK if at in hidden else character
        for at, character in enumerate(text)
    )
