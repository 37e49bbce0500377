"""A worker process, real servers and the real SDKs against providers that refuse a share of the calls.

Every job becomes final, every call at the provider is an attempt in the ledger, and no answer is paid for twice.
"""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.conftest import System, questions
from tests.llmock import running_llmock
from tests.providers import KEY
from tests.servers import Servers
from tests.stub.clouds import ACCESS_KEY, SECRET_KEY, SESSION, running_clouds
from tests.stub.server import running_stub

JOBS = 30
SIGNED_BY = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_SESSION_TOKEN": SESSION}
RATES = {429: 0.08, 500: 0.02, 503: 0.02, 529: 0.03}


@pytest.fixture
def composed(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    with servers.database() as url:
        system = System(url, servers.redis_url, tmp_path)
        try:
            yield system
        finally:
            system.stop()


def attempts(system: System) -> Counter[str]:
    return Counter(outcome for (outcome,) in system.rows("SELECT outcome FROM attempt"))


def stored_text(system: System) -> str:
    rows = [*system.rows("SELECT attempt::text FROM attempt"), *system.rows("SELECT c::text FROM completion c")]
    rows += system.rows("SELECT r::text FROM generation_record r")
    return "\n".join(text for (text,) in rows)


def assert_explained(system: System, calls: int, answered: int) -> Counter[str]:
    """Every job completed; as many attempts as calls, as many ``ok`` as answers, one for each job; no key kept."""
    assert system.rows("SELECT state, count(*) FROM job GROUP BY 1") == [("completed", JOBS)]
    outcomes = attempts(system)
    assert sum(outcomes.values()) == calls
    assert outcomes["ok"] == answered == JOBS
    assert system.scalar("SELECT count(DISTINCT job_id) FROM attempt WHERE outcome = 'ok'") == JOBS
    assert set(outcomes) <= {"ok", "error:rate_limited", "error:overloaded", "unknown"}
    assert KEY not in stored_text(system)
    assert KEY not in system.log()
    return outcomes


def shared_out(*providers: str) -> list[dict[str, Any]]:
    """Questions for some providers in turns."""
    turns = cycle(providers)
    return [{**question, "config": {"provider": next(turns)}} for question in questions(JOBS)]


def test_against_the_stub(composed: System, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_stub(error_rates=RATES, latency_s=0.02) as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        composed.submit(shared_out("openai", "mine"))
        composed.start_worker(provider="openai", providers=providers)
        composed.until_final(JOBS)
        outcomes = assert_explained(composed, sum(stub.calls.values()), sum(stub.answered.values()))

    assert outcomes["error:rate_limited"] + outcomes["error:overloaded"] > 0
    # The billing oracle, request by request: what the provider counted is what the ledger recorded.
    recorded = composed.rows("SELECT encode(request_hash, 'hex'), count(*) FROM attempt GROUP BY 1")
    assert dict(recorded) == stub.calls
    assert set(stub.answered.values()) == {1}
    assert composed.rows("SELECT DISTINCT outcome FROM job") == [("answered",)]
    costs = composed.rows("SELECT sum(cost_usd) FROM attempt UNION ALL SELECT sum(cost_usd) FROM job")
    assert costs[0] == costs[1]
    priced = composed.rows("SELECT DISTINCT provider FROM attempt WHERE outcome = 'ok' AND cost_usd > 0")
    assert priced == [("openai",)]


OF_CLOUDS = {
    "azure": {"kind": "azure_openai", "model": "gpt-6-luna"},
    "aws": {"kind": "bedrock", "model": "eu.anthropic.claude-haiku-5-5", "options": {"aws_region": "eu-central-1"}},
    "gcp": {
        "kind": "vertex",
        "model": "claude-haiku-5-5",
        "api_key_env": "VERTEX_TOKEN",
        "options": {"region": "global", "project_id": "ours"},
    },
}


def test_at_the_clouds(composed: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SIGNED_BY.items():
        monkeypatch.setenv(name, value)
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    for name in ("AZURE_OPENAI_API_KEY_FILE", "VERTEX_TOKEN_FILE"):
        monkeypatch.setenv(name, str(key))
    with running_clouds(KEY) as clouds:
        settings = {
            provider: {**cloud, "base_url": f"{clouds.url}/v1" if provider == "gcp" else clouds.url}
            for provider, cloud in OF_CLOUDS.items()
        }
        jobs = [{**job, "config": {"provider": name}} for job, name in zip(questions(3), OF_CLOUDS, strict=True)]
        composed.submit(jobs, max_cost_usd="0.5")
        composed.start_worker(providers=json.dumps(settings))
        composed.until_final(len(jobs))

    rows = composed.rows(
        "SELECT j.outcome, j.cost_usd, a.reserved_usd, a.usage ->> 'input_tokens', c.parsed #>> '{snapshot,model_asked}' "
        "FROM job j JOIN generation_record g ON g.job_id = j.id JOIN attempt a ON a.id = g.attempt_id "
        "JOIN completion c ON c.attempt_id = a.id ORDER BY j.position"
    )
    assert [(outcome, tokens, model) for outcome, _, _, tokens, model in rows] == [
        ("answered", "1200", cloud["model"]) for cloud in OF_CLOUDS.values()
    ]
    assert all(reserved > cost > 0 for _, cost, reserved, _, _ in rows)
    batch = composed.rows("SELECT max_cost_usd, spent_usd, reserved_usd FROM batch")
    total = sum(cost for _, cost, *_ in rows)
    assert batch == [(Decimal("0.5"), total, 0)], "the ceiling was kept by the prices of the clouds"
    assert len(clouds.paths) == len(jobs)
    stored = stored_text(composed) + composed.log()
    assert not {secret for secret in (KEY, *SIGNED_BY.values()) if secret in stored}


def test_against_an_independent_simulator(composed: System, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [option for code, share in RATES.items() for option in ("--error-rate", f"{code}={share}")]
    with running_llmock(*rates) as llmock:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{llmock.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{llmock.url}/anthropic")
        composed.submit(shared_out("openai", "anthropic"))
        composed.start_worker(provider="openai")
        composed.until_final(JOBS)
        journal: list[dict[str, Any]] = llmock.requests()
    answered = sum(entry["status"] == 200 for entry in journal)
    assert_explained(composed, len(journal), answered)
    # The SDKs never tried again on their own.
    assert {entry["sdk_retry_count"] for entry in journal} <= {0, None}
