"""Key, model, address, price and disk are looked at before a submission, with the real SDKs over HTTP."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from schemas.job import GenerationConfig
from tasks.errors import ConfigurationError, ServiceUnavailable
from worker.operations.free_disk import low_disk_line
from worker.operations.preflight import check_models, judges_line, models_line
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

OPENAI_404 = {
    "error": {"message": "The model 'x' does not exist", "type": "invalid_request_error", "code": "model_not_found"}
}
FILE_NOT_FOUND = {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
"""Of llama.cpp, at ``GET models/NAME``, which it lacks."""
REFUSED_KEY = {"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}
NO_SCOPE = {"error": {"message": "Missing scopes: api.model.read", "type": "invalid_request_error", "code": None}}
MODELS = {"object": "list", "data": [{"id": "qwen:latest", "object": "model", "created": 1, "owned_by": "x"}]}


class Vendor(ThreadingHTTPServer):
    """Answers each GET with one status and body, each POST as an API does, and keeps the paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, b"{}"
        self.page = False
        """Another program: what it answers is HTML, and it knows no POST."""
        self.chat_alone = False
        """A server without the Responses API: only a list of models, and chat completions."""
        self.empty = 400, b'{"error": {"message": "no model"}}'
        """What it says of an empty request."""
        self.missing = b"{}"
        """What it says of an address that it does not have."""
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, status: int, body: Any) -> None:
        self.status, self.body = status, body if isinstance(body, bytes) else json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Vendor

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.server.chat_alone and not (self.path == "/v1/models" or b"gpt-6" in self.server.body):
            self._send(404, self.server.missing)
            return
        self._send(self.server.status, self.server.body)

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        assert self.rfile.read(int(self.headers["content-length"])) == b"{}", "no question is asked"
        if self.server.chat_alone and self.path != "/v1/chat/completions":
            self._send(404, self.server.missing)
            return
        self._send(*((501, b"<p>Unsupported method</p>") if self.server.page else self.server.empty))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "text/html" if self.server.page else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def running_vendor() -> Iterator[Vendor]:
    """A vendor in a thread of its own."""
    with Vendor() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    with running_vendor() as server:
        yield server


def look(url: str, *configs: GenerationConfig, judges: Sequence[str | None] = (), **settings: Any) -> list[str]:
    environment = {
        "OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url,
    }  # fmt: skip
    given = Settings(**settings)
    asked = configs or (() if judges else (GenerationConfig(),))
    return asyncio.run(check_models(ConfiguredProviders(given, environment), given, asked, judges))


@pytest.mark.parametrize(
    ("provider", "status", "body", "message"),
    [
        ("openai", 401, REFUSED_KEY, "Correct the key in OPENAI_API_KEY. Nothing was submitted"),
        ("anthropic", 401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid"}}, "ANTHROPIC_API_KEY"),
        ("openai", 404, OPENAI_404, "Name another model in NIGHTDESK_MODEL"),
        ("ollama", 200, MODELS, "has no model 'other'; it has qwen:latest"),
    ],
)  # fmt: skip
def test_what_every_call_would_meet_stops_the_submission(
    vendor: Vendor, provider: str, status: int, body: Any, message: str
) -> None:
    vendor.answer(status, body)
    own = {"ollama": {"preset": "ollama", "base_url": f"{vendor.url}/v1", "model": "other"}}
    with pytest.raises(ConfigurationError, match=message):
        look(vendor.url, provider=provider, providers=own)


@pytest.mark.parametrize(
    ("provider", "status", "body", "calls"),
    [
        ("openai", 200, {"id": "gpt-6-luna", "object": "model", "created": 1, "owned_by": "x"}, 2),
        ("openai", 403, NO_SCOPE, 1),
        ("openai", 404, b"no such page", 2),
        ("anthropic", 404, FILE_NOT_FOUND, 2),
        ("anthropic", 500, b"busy", 1),
        ("ollama", 200, MODELS, 1),
        ("ollama", 200, {"models": [{"name": "qwen"}]}, 1),
        ("ollama", 200, {"object": "list", "data": ["qwen", {"name": "qwen"}]}, 1),
        ("ollama", 405, b"", 2),
    ],
)
def test_a_provider_that_knows_both_or_can_not_tell_stops_nothing(
    vendor: Vendor, provider: str, status: int, body: Any, calls: int
) -> None:
    vendor.answer(status, body)
    own = {"ollama": {"preset": "ollama", "base_url": f"{vendor.url}/v1", "model": "qwen"}}
    vendor.paths.clear()
    assert look(vendor.url, provider=provider, providers=own) == []
    assert len(vendor.paths) == calls, "none is repeated; a gateway without models is asked at the address of its calls"


@pytest.mark.parametrize("status", [200, 404, 501])
@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_the_port_of_another_program_stops_the_submission(
    vendor: Vendor, provider: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor.answer(status, b"<h1>Printers of the second floor</h1>")
    monkeypatch.setattr(vendor, "page", True)
    own = {"ollama": {"preset": "ollama", "base_url": f"{vendor.url}/v1", "model": "qwen"}}
    no_api = rf"no {provider} API \(answered 501 Not Implemented\)\. Start it, or correct .*\. Nothing was submitted"
    with pytest.raises(ServiceUnavailable, match=no_api):
        look(vendor.url, provider=provider, providers=own)


@pytest.mark.parametrize(
    ("models", "model", "missing", "empty"),
    [
        (MODELS, "qwen:latest", {"detail": "Not Found"}, 400),
        (MODELS, "qwen:latest", {"detail": "Not Found"}, 200),
        (MODELS, "qwen:latest", FILE_NOT_FOUND, 500),
        ({"object": "list", "data": []}, "gpt-6-luna", FILE_NOT_FOUND, 400),
        ({"id": "gpt-6-luna"}, "gpt-6-luna", {"detail": "Not Found"}, 422),
    ],
)
def test_a_server_of_chat_completions_alone_is_told_the_setting_to_type(
    vendor: Vendor, models: Any, model: str, missing: Any, empty: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor.answer(200, models)
    monkeypatch.setattr(vendor, "empty", (empty, b"{}"))
    vendor.missing = json.dumps(missing).encode()
    monkeypatch.setattr(vendor, "chat_alone", True)
    own = {"local": {"preset": "vllm"}}

    with pytest.raises(ConfigurationError, match="answers chat completions, and not OpenAI's Responses API") as raised:
        look(vendor.url, provider="openai", providers=own)

    setting = str(raised.value).partition("Set NIGHTDESK_PROVIDERS='")[2].partition("'. Nothing was submitted")[0]
    typed = json.loads(setting)
    assert typed["openai"]["model"] == model
    assert "local" in typed
    assert look(vendor.url, provider="openai", providers=typed) == [], "as typed, it is accepted"


def test_a_cloud_that_can_not_be_set_up_stops_the_submission() -> None:
    # Else each of its jobs would fail for it.
    settings = Settings(providers={"aws": {"kind": "bedrock", "model": "m", "options": {"aws_profile": "nobody"}}})
    providers = ConfiguredProviders(settings, {})
    with pytest.raises(ConfigurationError, match=r"'aws' .*nobody.*Nothing was submitted"):
        asyncio.run(check_models(providers, settings, [GenerationConfig(provider="aws")]))


def test_one_provider_of_several_that_fails_is_a_warning(vendor: Vendor) -> None:
    vendor.answer(404, OPENAI_404)
    offline = GenerationConfig(provider="extractive")

    (warning,) = look(vendor.url, GenerationConfig(provider="openai"), offline)
    assert warning.endswith("jobs that ask it wait or fail, the others are answered")
    assert "Nothing was submitted" not in warning
    with pytest.raises(ConfigurationError, match=r"openai answered 404 .* Nothing was submitted"):
        look(vendor.url, GenerationConfig(provider="openai"), GenerationConfig(provider="openai", model="y"))


def test_an_address_that_refuses_is_named_with_its_variable() -> None:
    with pytest.raises(ServiceUnavailable, match=r"refuses connections\. Start it, or correct OPENAI_BASE_URL"):
        look("http://127.0.0.1:1", provider="openai")
    assert (
        "the fallbacks are asked instead" in look("http://127.0.0.1:1", GenerationConfig(fallbacks=("extractive",)))[0]
    )


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, REFUSED_KEY, "Correct the key in OPENAI_API_KEY. Nothing was submitted"),
        (
            404,
            OPENAI_404,
            "Name another judge in NIGHTDESK_JUDGE, or in config.judge of the jobs. Nothing was submitted",
        ),
    ],
)
@pytest.mark.parametrize("judge", ["openai:x", None])
def test_a_judge_that_can_not_be_asked_stops_answers_that_wait_for_it(
    vendor: Vendor, status: int, body: Any, message: str, judge: str | None
) -> None:
    vendor.answer(status, body)
    with pytest.raises(ConfigurationError, match=message):
        look(vendor.url, judges=[judge], judge="openai:x" if judge is None else None)


def test_a_judge_that_is_there_is_named_and_a_missing_one_too(vendor: Vendor) -> None:
    vendor.answer(200, {"id": "gpt-5-mini", "object": "model", "created": 1, "owned_by": "x"})
    assert look(vendor.url, judges=["openai:gpt-5-mini"]) == []
    assert "set NIGHTDESK_JUDGE" in look(vendor.url, judges=[None])[0]
    settings = Settings(judge="openai:gpt-5-mini")
    line = judges_line(ConfiguredProviders(settings, {"OPENAI_API_KEY": "k"}), settings, [None])
    assert line == "judged by openai:gpt-5-mini: 0.25 USD a million tokens in, 2 out (by NIGHTDESK_JUDGE)"


def test_the_first_line_tells_who_answers_the_price_and_the_setting_that_chose() -> None:
    def line(environment: dict[str, str], *configs: GenerationConfig, **settings: Any) -> str:
        chosen = Settings(**settings)
        return models_line(ConfiguredProviders(chosen, environment), chosen, configs or [GenerationConfig()])

    assert line({}) == "answers by extractive: quotes of the sources, offline and free (as no key is set)"
    assert line({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://proxy/v1"}) == (
        "answers by openai:gpt-6-luna: 0.1 USD a million tokens in, 0.5 out (as OPENAI_API_KEY is set, address by "
        "OPENAI_BASE_URL)"
    )
    other = GenerationConfig(provider="vllm", model="qwen")
    assert line({}, other) == "answers by vllm:qwen: its price is not known, so no cost is counted"
    assert line({}, GenerationConfig(), provider="vllm", model="qwen").endswith(
        "(by NIGHTDESK_PROVIDER, model by NIGHTDESK_MODEL)"
    )


def test_too_little_disk_is_told(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert "only 100 MB are free" in low_disk_line(settings, free=100_000_000)
    assert not low_disk_line(settings, free=300_000_000)
    elsewhere = Settings(database_url="postgresql://db/x", redis_url="redis://r")
    assert not low_disk_line(elsewhere, free=0)
