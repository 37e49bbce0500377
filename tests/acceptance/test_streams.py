"""Streamed answers of a real worker: readers early and late see the same and the record is as without."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import redis

from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load
from tests.providers import KEY
from tests.stored_records import SNAPSHOT, USAGE
from tests.stub.server import Stub, running_stub
from worker.token_streams import Kind, Token, TokenReader

PROVIDERS = ("openai", "anthropic")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    with running_stub(token_s=scale_to_load(0.05)) as stub:
        for name in PROVIDERS:
            monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        yield stub


def job(provider: str, *, stream: bool) -> dict[str, Any]:
    (question,) = questions(1)
    return {**question, "custom_id": f"{provider} {stream}", "config": {"provider": provider, "stream": stream}}


def command(system: System, *arguments: str) -> Ended:
    return run_here(arguments, system.environment())


def text_of(tokens: list[Token]) -> str:
    """The text that a reader shows at the end; a start token discards the text before it."""
    text = ""
    for token in tokens:
        text = "" if token.kind is Kind.START else text + token.text
    return text


async def two_readers(redis_url: str, job_id: UUID) -> tuple[list[Token], list[Token]]:
    """One from before the first word, one from the midst of it."""
    midst = asyncio.Event()

    async def read(reader: TokenReader) -> list[Token]:
        tokens: list[Token] = []
        async for token in reader.follow(job_id, 1):
            tokens.append(token)
            # Not more: the slower Redis answers, the more of the text comes in one piece.
            if token.kind is Kind.TEXT:
                midst.set()
        return tokens

    async with TokenReader(redis_url, key_prefix="") as reader, asyncio.timeout(scale_to_load(60)):
        early = asyncio.create_task(read(reader))
        await midst.wait()
        late = asyncio.create_task(read(reader))
        assert not early.done()
        return await early, await late


def result(system: System, job_id: UUID) -> dict[str, Any]:
    """The parts of a result that streaming must not change."""
    statement = f"""
        SELECT answer, citations, grounding -> 'claims', status, {USAGE}, j.outcome, j.cost_usd
        FROM generation_record g JOIN job j ON j.id = g.job_id WHERE j.id = %s
    """
    names = ("answer", "citations", "claims", "status", "usage", "outcome", "cost_usd")
    return dict(zip(names, system.rows(statement, job_id)[0], strict=True))


def test_early_and_late_readers_agree_and_the_record_equals_the_unstreamed(system: System, stub: Stub) -> None:
    jobs = [job(provider, stream=stream) for provider in PROVIDERS for stream in (True, False)]
    _, (streamed, fetched, native, native_fetched) = system.submit(jobs)
    system.start_worker()
    early, late = asyncio.run(two_readers(system.redis_url, native))
    assert early == late
    system.until_final(len(jobs))

    assert text_of(early) == "Desk number 0 opens at 1 in the morning."
    assert [token.kind for token in early if token.kind is not Kind.TEXT] == [Kind.START, Kind.END, Kind.FINAL]
    assert (early[-1].state, early[-1].outcome) == ("completed", "answered")
    for job_id, other in ((streamed, fetched), (native, native_fetched)):
        assert result(system, job_id) == result(system, other)
        assert result(system, job_id)["outcome"] == "answered"
    protocols = f"SELECT {SNAPSHOT} ->> 'protocol' FROM generation_record g WHERE job_id = %s"
    assert [system.scalar(protocols, job_id) for job_id in (streamed, fetched, native)] == [
        "markers",
        "segments",
        "native",
    ]

    with redis.Redis.from_url(system.redis_url) as client:
        kept_for = {key.decode().split(":")[2] for key in client.keys("nightdesk:tokens:*")}
    assert kept_for == {str(streamed), str(native)}, "jobs that do not stream leave nothing"

    done = command(system, "watch", str(streamed))
    assert (done.code, done.out) == (
        0,
        "Desk number 0 opens at 1 in the morning. [1]\n",
    )
    assert "completed, answered" in done.err
    assert command(system, "watch", str(fetched)).out == ""
