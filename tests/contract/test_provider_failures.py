"""Every way a call fails, through the real SDKs: which kind it is, how long to wait, and that no key gets out."""

import asyncio
import logging
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from schemas.failure import FailureKind as K
from tasks.masking import hide
from tasks.ports import Answered, Provider
from tests.providers import ANTHROPIC, CHAT, KEY, OPENAI, OVER_HTTP, Kind, fails, plan, question, using
from tests.stub import faults
from tests.stub.faults import Act, anthropic_error, openai_error, raw, status
from tests.stub.server import Stub
from worker.providers import whole_calls
from worker.variables import Variables

over_http = pytest.mark.parametrize("kind", OVER_HTTP, ids=str)


def refused(stub: Stub, kind: Kind, act: Act, expected: K) -> None:
    stub.then(act)
    error = fails(kind.at(stub))
    assert (error.kind, len(stub.requests)) == (expected, 1), error


# ---- what any maker's server may do ----------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (faults.reset, K.UNKNOWN_OUTCOME),
        (faults.truncated, K.UNKNOWN_OUTCOME),
        (raw(b'{"id": "half'), K.BAD_ANSWER),
        (raw(b'{"output": 1, "choices": [], "content": 1}'), K.BAD_ANSWER),
        (raw(faults.HTML.encode(), "text/html"), K.BAD_ANSWER),
        (status(302, "", location="/v1/responses"), K.CONFIGURATION),
        (status(403, faults.HTML), K.UNAVAILABLE),
        (status(403, {"error": {"message": "no access to the model `x`"}}), K.PERMISSION),
        (status(404, ""), K.UNAVAILABLE),
        (status(404, {"error": {"message": "the model `x` does not exist"}}), K.NOT_FOUND),
        (status(501, {"error": {"message": "suffix is not supported"}}), K.INVALID_REQUEST),
        (status(408, ""), K.UNKNOWN_OUTCOME),
        (status(409, ""), K.OVERLOADED),
        (status(413, faults.HTML), K.INVALID_REQUEST),
        (status(500, faults.HTML), K.UNKNOWN_OUTCOME),
        (status(503, faults.HTML), K.OVERLOADED),
        (status(529, ""), K.OVERLOADED),
        (status(500, {"error": None}), K.UNKNOWN_OUTCOME),
        (status(400, {"detail": "?"}), K.INVALID_REQUEST),
    ],
)
def test_faults_of_any_server(kind: Kind, act: Act, expected: K, stub: Stub) -> None:
    refused(stub, kind, act, expected)


@over_http
@pytest.mark.parametrize("act", [faults.slow(5), faults.drip], ids=["silent", "dripping"])
def test_an_answer_that_takes_too_long_may_have_been_billed(kind: Kind, act: Act, stub: Stub) -> None:
    stub.then(act)
    error = fails(kind.at(stub), question(timeout_s=0.3))
    assert error.kind is K.UNKNOWN_OUTCOME
    assert len(stub.requests) == 1


MEGABYTE = b" " * 1_000_000
ENDLESS = {
    "plain": faults.flood(MEGABYTE),
    "packed": faults.packed(MEGABYTE * 20),
    "events unasked": faults.flood(MEGABYTE, "text/event-stream", start=b"data: "),
}


@over_http
@pytest.mark.parametrize("how", ENDLESS)
def test_an_answer_is_read_and_unpacked_up_to_a_bound(kind: Kind, how: str, stub: Stub) -> None:
    stub.then(ENDLESS[how])
    error = fails(kind.at(stub))
    assert (error.kind, "more than 16,000,000 bytes" in str(error)) == (K.BAD_ANSWER, True), error


@over_http
@pytest.mark.parametrize("piece", [b" ", b"data: {}\n\n"])
def test_a_stream_is_read_up_to_a_bound(kind: Kind, piece: bytes, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_calls, "MOST_STREAMED_BYTES", 500_000)
    stub.then(faults.flood(piece * 1_000, "text/event-stream", start=b"data: {}\n\n"))
    error = fails(kind.at(stub), question(stream=True))
    assert (error.kind, "more than 500,000 bytes" in str(error)) == (K.BAD_ANSWER, True), error


@over_http
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_read_as_far_as_its_words_are_looked_at(kind: Kind, *, stream: bool, stub: Stub) -> None:
    """Megabytes of words were searched for names of parameters, for seconds, in the loop of all calls."""
    stub.then(faults.flood(MEGABYTE, "text/plain", code=400))
    assert fails(kind.at(stub), question(stream=stream)).kind is K.INVALID_REQUEST


@over_http
def test_an_answer_that_came_while_the_process_stood_still_is_read(
    kind: Kind, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(provider: Provider) -> Answered:
        loop = asyncio.get_running_loop()

        async def answer_after_a_stall(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
            monkeypatch.setattr(loop, "time", lambda time=loop.time: time() + 90)
            return web.json_response(answer)

        stub.then(answer_after_a_stall)
        return await provider.call(plan(provider, question(timeout_s=60)))

    assert using(kind.at(stub), work).completion.text
    assert len(stub.requests) == 1


@over_http
def test_a_refused_connection_was_never_billed(kind: Kind, stub: Stub) -> None:
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{closed_port.getsockname()[1]}{kind.base}"
        assert fails(kind.at(stub, base_url=base_url)).kind is K.UNAVAILABLE


@over_http
def test_a_base_url_that_is_none_is_a_wrong_setting(kind: Kind, stub: Stub) -> None:
    assert fails(kind.at(stub, base_url="ftp://127.0.0.1/v1")).kind is K.CONFIGURATION


# ---- what each maker says --------------------------------------------------------------------------------------

NO_CREDIT = "Your credit balance is too low to access the API."
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("kind", "act", "expected"),
    [
        (OPENAI, openai_error(429, "rate_limit_exceeded"), K.RATE_LIMITED),
        (OPENAI, openai_error(429, "insufficient_quota", QUOTA), K.QUOTA),
        (OPENAI, openai_error(429, "billing_hard_limit_reached"), K.QUOTA),
        (OPENAI, openai_error(503, "slow_down"), K.OVERLOADED),
        (OPENAI, openai_error(500, "server_error"), K.UNKNOWN_OUTCOME),
        (OPENAI, openai_error(400, "context_length_exceeded"), K.CONTEXT_EXCEEDED),
        (OPENAI, openai_error(400, "unsupported_parameter"), K.INVALID_REQUEST),
        (OPENAI, openai_error(401, "invalid_api_key"), K.AUTHENTICATION),
        (OPENAI, openai_error(403, "unsupported_country_region_territory"), K.PERMISSION),
        (OPENAI, openai_error(404, "model_not_found"), K.NOT_FOUND),
        (CHAT, openai_error(429, "insufficient_quota", QUOTA), K.QUOTA),
        (CHAT, status(400, {"object": "error", "message": "maximum context length is 4096"}), K.CONTEXT_EXCEEDED),
        (CHAT, status(400, {"error": "exceeds the available context size"}), K.CONTEXT_EXCEEDED),
        (CHAT, openai_error(400, "content_filter"), K.REFUSED),
        (CHAT, status(400, {"error": {"message": "gpt-5 models don't support temperature=0.2."}}), K.PARAMETER),
        (CHAT, status(402, {"error": {"message": "pay"}}), K.QUOTA),
        (CHAT, status(422, {"detail": [{"msg": "unknown field"}]}), K.INVALID_REQUEST),
        (ANTHROPIC, anthropic_error(429, "rate_limit_error"), K.RATE_LIMITED),
        (ANTHROPIC, anthropic_error(429, "rate_limit_error", error_code="ramp_limit_exceeded"), K.RATE_LIMITED),
        (ANTHROPIC, anthropic_error(429, "rate_limit_error", error_code="enforced_spend_limit_reached"), K.QUOTA),
        (ANTHROPIC, anthropic_error(429, "rate_limit_error", error_code="contract_spend_limit_reached"), K.QUOTA),
        (ANTHROPIC, anthropic_error(402, "billing_error"), K.QUOTA),
        (ANTHROPIC, anthropic_error(403, "permission_error", error_code="organization_on_hold"), K.QUOTA),
        (ANTHROPIC, anthropic_error(400, "invalid_request_error", NO_CREDIT), K.QUOTA),
        (ANTHROPIC, anthropic_error(400, "invalid_request_error", "prompt is too long: 9 tokens"), K.CONTEXT_EXCEEDED),
        (ANTHROPIC, anthropic_error(400, "invalid_request_error"), K.INVALID_REQUEST),
        (ANTHROPIC, anthropic_error(401, "authentication_error"), K.AUTHENTICATION),
        (ANTHROPIC, anthropic_error(403, "permission_error"), K.PERMISSION),
        (ANTHROPIC, anthropic_error(404, "not_found_error"), K.NOT_FOUND),
        (ANTHROPIC, anthropic_error(413, "request_too_large"), K.INVALID_REQUEST),
        (ANTHROPIC, anthropic_error(500, "api_error"), K.UNKNOWN_OUTCOME),
        (ANTHROPIC, anthropic_error(500, "overloaded_error"), K.OVERLOADED),
        (ANTHROPIC, anthropic_error(529, "overloaded_error"), K.OVERLOADED),
    ],
)
def test_errors_of_a_maker(kind: Kind, act: Act, expected: K, stub: Stub) -> None:
    refused(stub, kind, act, expected)


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        (OPENAI, {"status": "failed", "error": {"code": "server_error", "message": "no"}}, K.UNKNOWN_OUTCOME),
        (OPENAI, {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "no"}}, K.RATE_LIMITED),
        (OPENAI, {"status": "failed", "error": {"code": "bio_policy", "message": "no"}}, K.REFUSED),
        (OPENAI, {"status": "failed", "error": None}, K.UNKNOWN_OUTCOME),
        (CHAT, {"error": {"message": "no", "code": "insufficient_quota"}}, K.QUOTA),
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, K.OVERLOADED),
    ],
)
def test_an_error_inside_a_200_is_an_error(kind: Kind, change: dict[str, object], expected: K, stub: Stub) -> None:
    refused(stub, kind, faults.changed(lambda answer: answer.update(change)), expected)


@over_http
def test_an_error_names_its_status_request_and_provider(kind: Kind, stub: Stub) -> None:
    stub.then(openai_error(500, "server_error", "the engine\nfell over"))
    error = fails(kind.at(stub))
    assert error.status_code == 500
    assert (error.provider_request_id or "").startswith("req_")
    assert str(error) == f"{kind.name} answered 500 (server_error) the engine fell over"


# ---- how long to wait ------------------------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "600"}, 600.0),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_wait_asked_for(kind: Kind, headers: dict[str, str], expected: float | None, stub: Stub) -> None:
    stub.then(openai_error(429, "rate_limit_error", **headers))
    assert fails(kind.at(stub)).retry_after_s == expected


@over_http
@pytest.mark.parametrize("ahead_s", [-600, 0, 600])
def test_the_wait_asked_for_as_a_date_by_whatever_clock(kind: Kind, stub: Stub, ahead_s: int) -> None:
    now = datetime.now(UTC) + timedelta(seconds=ahead_s)
    then = now + timedelta(seconds=60)
    stub.then(status(529, "", date=format_datetime(now, usegmt=True), retry_after=format_datetime(then, usegmt=True)))
    assert fails(kind.at(stub)).retry_after_s == 60


# ---- secrets ---------------------------------------------------------------------------------------------------


def leaks(text: str) -> list[str]:
    """The parts of the key, eight characters long, that stand in a text."""
    return [part for at in range(len(KEY) - 7) if (part := KEY[at : at + 8]) in text]


@over_http
def test_no_key_in_any_message_or_log(kind: Kind, stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    acts: list[Act] = [
        faults.echo_key,
        status(400, f"<p>Authorization: Bearer {KEY}</p>"),
        status(403, {"error": {"message": f"key {KEY[3:20]} has no access", "code": KEY}}),
        raw(f"{{'you sent': '{KEY}'".encode()),
        faults.reset,
        openai_error(500, "server_error", KEY * 40),
    ]
    provider = kind.at(stub)
    messages = [repr(provider), repr(getattr(provider, "target", "")), repr(getattr(provider, "failures", ""))]
    with caplog.at_level(logging.INFO):
        for act in acts:
            stub.then(act)
            error = fails(kind.at(stub))
            messages.append(str(error))
            assert error.__cause__ is None
            assert error.__suppress_context__
    assert len(stub.requests) == len(acts)
    assert not leaks("\n".join([*messages, caplog.text]))
    assert "Incorrect API key provided: [masked]" in messages[3]


@over_http
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDKs, about their own library
def test_no_secret_of_a_proxy_or_a_cloud_in_any_message(
    kind: Kind, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", stub.url.replace("//", "//joe:word-of%2Fproxy@"))
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "8Q~of-azure")

    async def echo(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        del answer
        return web.Response(
            text=f"{request.headers['Proxy-Authorization']} wJalrXUtnFEMI/K7MDENG 8Q~of-azure", status=407
        )

    stub.then(echo)
    hide(Variables().secrets)
    told = str(fails(kind.build(replace(kind.target(stub), base_url=f"http://provider.invalid{kind.base}"))))

    assert told.count("[masked]") == 3
    assert [word for word in ("joe:", "word-of", "am9lOndvcmQ", "wJalr", "8Q~") if word in told] == []
