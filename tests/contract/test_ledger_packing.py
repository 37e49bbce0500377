"""Long answers and records are packed, a record refers to its answer, and both are read back exactly as they were written."""

from typing import Any

import psycopg

from schemas.answer import CanonicalAnswer, Citation, Segment, SegmentCitation
from schemas.generation import OutputFormat
from schemas.grounding import Claim, Evidence, Grounding, Value, Verdict
from schemas.model_call import NativeCitation, ProviderSnapshot
from schemas.record import GenerationRecord, Quality
from schemas.states import Step
from tasks.ports import Leased, NewAttempt, StoredAnswer
from tasks.results import result_of
from tests.builders import (
    closed_ok,
    make_answer,
    make_prompt,
    make_record,
    to_check,
)
from tests.contract.situations import (
    finish,
    lines_of,
    open_one,
    sound,
    submit_and_take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger

TEXT = "".join(f"The copy of \u201evolume {number}\u201c is ready at nine \u2713. " for number in range(60))


def long_answer() -> StoredAnswer:
    answer = make_answer(
        TEXT,
        native_citations=(NativeCitation(start=0, end=5, source_number=1, quote="nine \u2713"),),
        snapshot=ProviderSnapshot(
            provider="fake", model_asked="fake-1", parameters_sent={"temperature": 0.5, "stop": "never"}
        ),
    )
    return StoredAnswer(b"\xff\x00raw " + TEXT.encode(), answer.completion, make_prompt())


def long_record(job: Leased, **changes: Any) -> GenerationRecord:
    """A record as the check makes it: of the stored answer, with claims and citations."""
    assert job.stored is not None
    completion = job.stored.completion
    evidence = (Evidence(source_index=0, start=4, end=14, score=0.875),)
    claims = tuple(
        Claim(text=TEXT[at : at + 40], start_pos=at, end_pos=at + 40, verdict=Verdict.SUPPORTED, evidence=evidence)
        for at in range(0, 1_000, 40)
    )
    citation = Citation(
        source_index=0, rank=1, chunk_id="c1", document_id="d1", quoted_text="nine", text_snippet="nine \u2713",
        start_pos=3, end_pos=6, source_start=4, source_end=8, relevance_score=1e-07, verified=True,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "messages_snapshot": job.stored.prompt.snapshot,
        "provider_snapshot": completion.snapshot,
        "output_raw": completion.text,
        "usage": completion.usage,
        "answer": TEXT,
        "output_format": OutputFormat.PLAIN,
        "citations": (citation,),
        "grounding": Grounding(
            grounding_score=1.0,
            claims=claims,
            values=(Value(path="$.n", value=2**40, verdict=Verdict.SUPPORTED),),
            counts={Verdict.SUPPORTED: 25},
        ),
        "quality": Quality(answer_quality=0.5, reasoning="for a reason", warnings=("short",)),
        "canonical": CanonicalAnswer(
            segments=(Segment(text=TEXT, citations=(SegmentCitation(source=1, quote="nine"),)),), sufficient=True
        ),
    }
    return make_record(job, **{**fields, **changes})


async def answer_at_length(ledger: PostgresLedger) -> tuple[Leased, NewAttempt]:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=long_answer(), then=to_check(leased))])
    return await take_one(ledger, leased.job_id, Step.CHECK), attempt


def stored(url: str, query: str) -> tuple[Any, ...]:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row


async def test_an_answer_is_leased_as_it_was_stored(ledger: PostgresLedger, postgres_database_url: str) -> None:
    job, attempt = await answer_at_length(ledger)

    assert job.stored is not None
    assert (job.stored.attempt_id, job.stored.completion) == (attempt.id, long_answer().completion)
    assert job.stored.prompt == make_prompt()
    columns = "SELECT parsed ? 'text', prompt -> 'snapshot' ? 'messages', length(frame) FROM completion"
    *inline, packed = stored(postgres_database_url, columns)
    assert inline == [False, False]
    assert packed < len(TEXT) / 2


async def test_the_audit_shows_every_byte_of_an_answer(ledger: PostgresLedger) -> None:
    job, _ = await answer_at_length(ledger)

    (audit,) = (await ledger.reading.job_detail(job.job_id)).completions

    answer = long_answer()
    assert audit["raw"] == answer.raw.decode(errors="backslashreplace")
    assert audit["parsed"] == answer.completion.model_dump(mode="json")
    assert audit["prompt"] == answer.prompt.model_dump(mode="json")
    assert "frame" not in audit


async def test_a_record_repeats_nothing_of_its_answer(ledger: PostgresLedger, postgres_database_url: str) -> None:
    job, attempt = await answer_at_length(ledger)
    record = long_record(job)
    await finish(ledger, job, record=record)

    done = await view(ledger, job.job_id)
    assert done.record is not None
    assert done.record.model_copy(update={"created_at": None}) == record
    assert (await ledger.reading.job_detail(job.job_id)).records == (done.record,)
    columns = """SELECT attempt_id, messages_snapshot, provider_snapshot, output_raw, usage, citations, canonical,
                        grounding ? 'claims', grounding ? 'values', grounding -> 'counts', frame IS NOT NULL
                 FROM generation_record"""
    assert stored(postgres_database_url, columns) == (
        attempt.id, None, None, None, None, None, None, False, False, {"supported": 25}, True,
    )  # fmt: skip
    await sound(ledger)


async def test_a_record_of_a_version_with_fewer_fields_is_written_with_their_defaults(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    job, _ = await answer_at_length(ledger)
    record = long_record(job)
    assert record.grounding is not None
    claim, quality = record.grounding.claims[0], Quality(reasoning="short")
    grounding = record.grounding.model_copy(update={"claims": (claim,)})
    await finish(
        ledger, job, record=long_record(job, grounding=grounding, quality=quality, citations=(), canonical=None)
    )
    older = "UPDATE generation_record SET grounding = (grounding - 'values') #- '{claims,0,reason}', quality = quality - 'warnings'"
    assert stored(postgres_database_url, f"{older} RETURNING frame IS NULL") == (True,)

    (line,) = await lines_of(ledger, job.batch_id)
    assert line.content == result_of(await view(ledger, job.job_id)).model_dump_json().encode()
    assert [result.line() for result in await ledger.reading.results([job.job_id])] == [line]
