"""A provider's key shows up nowhere, also when the provider refuses it and repeats it in its answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines
from tests.postgres import everything_in
from tests.servers import Servers
from tests.stub.faults import echo_key
from tests.stub.server import Stub, running_stub

CANARY = "sk-canary-5f3a9c71e2d84b06-hidden"
STREAMED = {"stream": True, "fallbacks": ["other"]}
PARTS = (CANARY, "canary-5f3a9c71", "e2d84b06-hidden")


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        yield stub


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, stub: Stub, servers: Servers, database_url: str
) -> Iterator[tuple[Home, str]]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
    stub.then(*[echo_key] * 50)
    monkeypatch.setenv("OTHER_KEY", CANARY)
    other = {"other": {"kind": "openai_chat", "base_url": f"{stub.url}/v1", "api_key_env": "OTHER_KEY", "model": "m"}}
    with new_home(
        database_url=database_url,
        redis_url=servers.redis_url,
        key_prefix=f"secrets-{database_url.rpartition('_')[2]}:",
        provider="openai",
        providers=json.dumps(other),
        log_level="DEBUG",
    ) as home:
        yield home, database_url


def everything_in_redis(servers: Servers, prefix: str) -> str:
    """All results and streamed texts behind the prefix."""
    texts = []
    with redis.Redis.from_url(servers.redis_url, decode_responses=True) as client:
        for key in client.scan_iter(f"{prefix}*"):
            kind = client.type(key)
            texts += [client.get(key)] if kind == "string" else client.xrange(key) if kind == "stream" else []
    assert len(texts) > 1
    return repr(texts)


def test_the_error_for_a_refused_key_does_not_contain_the_key(
    refused: tuple[Home, str], stub: Stub, servers: Servers, tmp_path: Path
) -> None:
    home, database_url = refused
    out = tmp_path / "out.jsonl"

    offline = question(2, config={"provider": "extractive"})
    questions = [question(0), question(1, config=STREAMED), offline]
    done = home.run("run", write_lines(tmp_path / "in.jsonl", questions), "-o", out)

    assert done.code == 1, done.err
    # The provider did get the key, and did answer with it.
    assert stub.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert {request.path for request in stub.requests} == {"/v1/responses", "/v1/chat/completions"}
    results = read_lines(out)
    assert [result["held_reason"] for result in results] == ["lane_paused", "lane_paused", None]
    assert "Incorrect API key provided" in done.err
    show = home.run("show", results[0]["job_id"], "--json")
    assert json.loads(show.out)["attempts"]
    rows = everything_in(database_url)
    assert "q0" in rows
    examined = home.run("doctor", "--json")
    logs = [path for path in home.root.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" and path.stat().st_size for path in logs)
    places = {
        "output": out.read_text(),
        "standard output and error": done.out + done.err,
        "show": show.out + show.err,
        "doctor": examined.out + examined.err,
        "Redis": everything_in_redis(servers, home.settings["key_prefix"]),
        "database": rows,
        **{str(path): path.read_bytes().decode(errors="replace") for path in logs},
    }
    assert [(place, part) for place, text in places.items() for part in PARTS if part in text] == []


@pytest.mark.parametrize("command", ["status", "doctor", "worker"])
@pytest.mark.parametrize(
    "url",
    [
        "host=127.0.0.1 port=1 password=s3cret dbname=x",
        "postgresql://u:s3cret/hunter2@127.0.0.1:1/db",
        "postgresql://u:1/s3cret@127.0.0.1:1/db",
        "postgresql://u:1#s3cret@127.0.0.1:1/db",
        "postgresql://u:1?s3cret@127.0.0.1:1/db",
        "postgresql://u:s3cret@[::1/db",
        "postgresql://u:s3cret@127.0.0.1:port/db",
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, command: str, tmp_path: Path) -> None:
    with new_home(database_url=url, redis_url="redis://127.0.0.1:1/0") as home:
        done = home.run(command)

    output = " ".join((done.out + done.err).split())
    assert done.code, output
    assert "NIGHTDESK_DATABASE_URL: must be a URL; in its password write" in output
    assert not [word for word in ("s3cret", "hunter2", "Traceback") if word in output]
