"""A short record keeps its part of the line of its result, byte for byte as the model writes it, until the record changes."""

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from schemas.answer import Citation
from schemas.failure import Failure, FailureKind
from schemas.grounding import Claim, Grounding, Value, Verdict
from schemas.model_call import ProviderSnapshot, SharedFrom, Usage
from schemas.record import Quality
from tasks.results import result_of
from tests.builders import make_failed, make_record, make_request, new_id
from tests.contract.conftest import Subject
from tests.contract.situations import ACTOR, finish, lines_of, sound, submit, take, view
from worker.ledger import result_documents
from worker.ledger.postgres import PostgresLedger

pytestmark = pytest.mark.parametrize("subject", ["postgres"], indirect=True)

ODD = 'quoted "\\" \u201enine\u201c \u2713 \U0001f600 \u2028 \x1f\x7f\t\n</script>'
CITATION = Citation(
    source_index=0, rank=1, chunk_id=ODD, document_id="d1", quoted_text=ODD, text_snippet=ODD, start_pos=3, end_pos=6,
    source_start=4, source_end=8, relevance_score=1e-07, verified=True,
)  # fmt: skip
SNAPSHOT = ProviderSnapshot(
    provider="fake",
    parameters_sent={
        "temperature": 0.5,
        "stop": ["b", "a"],
        "response_format": {"type": "x", "a": {"bb": 1, "a": 2.50}},
    },
    rate_limits={"x-remaining": "1", "x-limit": "2"},
    shared_from=SharedFrom(job_id=new_id(), attempt_id=new_id(), answered_at=datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "odd characters": {"answer": ODD, "citations": (CITATION,), "quality": Quality(reasoning=ODD, warnings=(ODD,))},
    "objects": {"output_structured": {"bb": [{"z": 1, "a": None}], "a": {}, "ccc": ODD, "n": 0.1}},
    "snapshot": {"provider_snapshot": SNAPSHOT, "usage": Usage(input_tokens=3)},
    "claims": {
        "grounding": Grounding(
            grounding_score=0.5,
            confidence=0.0001,
            claims=(Claim(text=ODD, start_pos=0, end_pos=9, verdict=Verdict.UNSUPPORTED, score=1.0),),
            values=(Value(path="$.n", value=1e-07, verdict=Verdict.SUPPORTED),),
        )
    },
}
INEXACT = {1e20: b"100000000000000000000", -0.0: b"0.0", 10**30 + 1: b"1000000000000000000000000000001"}
"""Numbers that PostgreSQL gives back in another form: their lines are made of what it gives back."""


@pytest.fixture
def ledger(subject: Subject) -> PostgresLedger:
    assert isinstance(subject.ledger, PostgresLedger)
    return subject.ledger


async def final_batch(ledger: PostgresLedger, **changes: Any) -> Any:
    """The id of a batch of one final job, with these changes of its record."""
    receipt = await submit(ledger, make_request(ODD, metadata={"z": 1.5, "a": [ODD]}, trace_id=ODD))
    (job,) = await take(ledger, receipt.job_ids)
    await finish(ledger, job, record=make_record(job, **changes))
    return receipt


def stored(url: str, query: str) -> tuple[Any, ...]:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row


HAS_LINE = "SELECT line IS NOT NULL FROM generation_record"


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_stored_line_is_that_of_the_model(
    ledger: PostgresLedger, postgres_database_url: str, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    receipt = await final_batch(ledger, **VARIANTS[variant])
    monkeypatch.delattr(result_documents, "line_of_document")

    (line,) = await lines_of(ledger, receipt.batch_id)

    assert stored(postgres_database_url, HAS_LINE) == (True,)
    result = result_of(await view(ledger, receipt.job_ids[0]))
    assert line.content == result.model_dump_json().encode()
    assert (line.position, line.state) == (result.position, result.state)
    await sound(ledger)


@pytest.mark.parametrize(("number", "text"), INEXACT.items())
async def test_what_the_server_writes_otherwise_is_not_kept(
    ledger: PostgresLedger, postgres_database_url: str, number: float, text: bytes
) -> None:
    receipt = await final_batch(ledger, output_structured={"n": number})

    (line,) = await lines_of(ledger, receipt.batch_id)

    assert stored(postgres_database_url, HAS_LINE) == (False,)
    assert b'"structured":{"n":%b}' % text in line.content


async def test_an_object_with_the_name_of_a_field_is_not_kept(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    receipt = await final_batch(ledger, output_structured={"a": 1, "asks": [2]})

    (line,) = await lines_of(ledger, receipt.batch_id)

    assert stored(postgres_database_url, HAS_LINE) == (False,)
    assert line.content == result_of(await view(ledger, receipt.job_ids[0])).model_dump_json().encode()


async def test_a_failed_job_without_an_answer_says_so(ledger: PostgresLedger, postgres_database_url: str) -> None:
    receipt = await submit(ledger, make_request())
    (job,) = await take(ledger, receipt.job_ids)
    await ledger.queue.finish([make_failed(job, FailureKind.ATTEMPTS_SPENT)])

    (line,) = await lines_of(ledger, receipt.batch_id)

    assert stored(postgres_database_url, HAS_LINE) == (False,)
    assert line.content == result_of(await view(ledger, receipt.job_ids[0])).model_dump_json().encode()


async def test_any_change_of_a_record_takes_its_line_away(ledger: PostgresLedger, postgres_database_url: str) -> None:
    receipt = await final_batch(ledger, failure=Failure(kind=FailureKind.ATTEMPTS_SPENT, message="before"))

    # As a version that knows of no line does it.
    change = "UPDATE generation_record SET answer = 'later' RETURNING line IS NULL"
    assert stored(postgres_database_url, change) == (True,)

    (line,) = await lines_of(ledger, receipt.batch_id)
    assert b'"response":"later"' in line.content


async def test_an_erased_record_has_no_line(ledger: PostgresLedger, postgres_database_url: str) -> None:
    receipt = await final_batch(ledger)

    await ledger.erasure.erase(receipt.job_ids, ACTOR)

    assert stored(postgres_database_url, HAS_LINE) == (False,)
    (line,) = await lines_of(ledger, receipt.batch_id)
    assert line.content == result_of(await view(ledger, receipt.job_ids[0])).model_dump_json().encode()


async def test_a_line_of_other_models_is_not_used(ledger: PostgresLedger, postgres_database_url: str) -> None:
    receipt = await final_batch(ledger)
    (expected,) = await lines_of(ledger, receipt.batch_id)

    other = "UPDATE generation_record SET line = '\\x00' || line RETURNING line IS NOT NULL"
    assert stored(postgres_database_url, other) == (True,)

    assert await lines_of(ledger, receipt.batch_id) == [expected]


async def test_a_line_has_what_changes_of_its_job(ledger: PostgresLedger, postgres_database_url: str) -> None:
    receipt = await final_batch(ledger)

    changed = "UPDATE job SET cost_usd = 0.50000001, outcome = 'partial' RETURNING true"
    assert stored(postgres_database_url, changed) == (True,)

    (line,) = await lines_of(ledger, receipt.batch_id)
    assert b'"outcome":"partial"' in line.content
    assert b'"cost_usd":"0.50000001"' in line.content
    assert stored(postgres_database_url, HAS_LINE) == (True,)
