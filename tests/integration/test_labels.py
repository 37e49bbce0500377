"""Labels of people over PostgreSQL: stored, replaced, refused alone with line and field, exported for the calibration."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.grounding import Claim, Grounding, JudgeVerdict, Verdict
from schemas.job import SourceContext
from tasks.errors import InputError, NotFound
from tests.builders import SOURCE, make_batch, make_prompt, make_record, make_request, new_id
from tests.contract.situations import finish, submit, take, take_one
from tests.lent_ledger import KeptLedger
from worker.cli.commands.calibration_fit import read_labels
from worker.ledger.labels import LabelVerdict
from worker.ledger.postgres import PostgresLedger
from worker.operations.label_changes import (
    Exported,
    LabelRequest,
    add_label,
    exported_labels,
    read_verdict,
)

CLAIMS = (
    Claim(text="It has the copy ready by morning.", start_pos=0, end_pos=5, verdict=Verdict.SUPPORTED),
    Claim(
        text="It sleeps.", start_pos=6, end_pos=9, verdict=Verdict.UNSUPPORTED, checker="judge",
        judge=JudgeVerdict(verdict=Verdict.UNSUPPORTED, probability=0.2),
    ),
)  # fmt: skip


def scenario(database_url: str, work: Callable[[PostgresLedger], Awaitable[None]]) -> None:
    async def run() -> None:
        async with KeptLedger(database_url) as ledger:
            await work(ledger)

    asyncio.run(run())


async def answered(ledger: PostgresLedger) -> tuple[UUID, UUID, UUID]:
    """A batch with an answered job, named a, and one that is not final; their ids."""
    sources = (SourceContext(content=SOURCE), SourceContext(content="A source that was not shown."))
    requests = (make_request(custom_id="a", context=sources), make_request("Who?", custom_id="b"))
    receipt = await submit(ledger, *requests, batch=make_batch())
    job = await take_one(ledger, receipt.job_ids[0])
    record = make_record(
        job,
        grounding=Grounding(grounding_score=0.5, claims=CLAIMS, checkers={"judge": "openai:gpt-6-luna by _judge@2"}),
        messages_snapshot=make_prompt().snapshot,
        canonical=CanonicalAnswer(
            segments=(Segment(text="It has the copy ready.", citations=(SegmentCitation(source=1),)),)
        ),
    )
    await finish(ledger, job, record=record)
    return receipt.batch_id, receipt.job_ids[0], receipt.job_ids[1]


async def export(ledger: PostgresLedger, counts: Exported, batch_id: UUID | None = None) -> list[dict[str, Any]]:
    return [line async for line in exported_labels(ledger, counts, batch_id)]


def test_labels_are_replaced_by_person_shown_exported_and_read_by_the_calibration(
    database_url: str, tmp_path: Path
) -> None:
    async def work(ledger: PostgresLedger) -> None:
        batch, job, _ = await answered(ledger)
        for person, verdict, claim in (
            ("ada", LabelVerdict.UNSUPPORTED, 1),
            ("ada", LabelVerdict.SUPPORTED, 1),
            ("bob", LabelVerdict.CONTRADICTED, 2),
            ("ada", LabelVerdict.UNSUPPORTED, None),
            ("bob", LabelVerdict.NOT_CHECKABLE, 1),
        ):
            await add_label(ledger, LabelRequest(batch, verdict, person, "a", claim=claim, note=f"by {person}"))

        detail = await ledger.reading.job_detail(job)
        assert [(row["claim"], row["verdict"], row["actor"]) for row in detail.labels] == [
            (None, "unsupported", "ada"),
            (1, "supported", "ada"),
            (1, "not_checkable", "bob"),
            (2, "contradicted", "bob"),
        ]
        counts = Exported()
        lines = await export(ledger, counts, batch)
        assert (counts.lines, counts.without_label, counts.stale) == (3, 1, 0)
        assert [(line.get("claim_number"), line["label"], line["verdict"]) for line in lines] == [
            (1, 1, "supported"),
            (2, 0, "contradicted"),
            (None, 0, "unsupported"),
        ]
        assert lines[0]["sources"] == [SOURCE]
        assert lines[2]["response"] == "It has the copy ready. [1]"
        assert await export(ledger, Exported(), new_id()) == []
        # What was exported can be read by the calibration.
        path = tmp_path / "labels.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        faults: list[str] = []
        answers, _ = read_labels(str(path), faults.append)
        assert (faults, [answer.supported for answer in answers]) == ([], [True, False, False])

        await ledger.erasure.erase([job], "ada")
        assert (await ledger.reading.job_detail(job)).labels == ()

    scenario(database_url, work)


def test_a_label_belongs_to_the_answer_that_was_read(database_url: str) -> None:
    async def work(ledger: PostgresLedger) -> None:
        _, job, _ = await answered(ledger)
        await add_label(ledger, LabelRequest(job, LabelVerdict.SUPPORTED, "ada"))
        await ledger.actions.retry([job], "ada")
        with pytest.raises(InputError, match="is not final but scheduled"):
            await add_label(ledger, LabelRequest(job, LabelVerdict.SUPPORTED, "ada"))
        with pytest.raises(NotFound):
            await add_label(ledger, LabelRequest(new_id(), LabelVerdict.SUPPORTED, "ada"))
        await ledger.duties.promote(10)
        (leased,) = await take(ledger, [job])
        await finish(ledger, leased)
        counts = Exported()
        assert (await export(ledger, counts), counts.stale) == ([], 1)

    scenario(database_url, work)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(1, "supported"), ("0", "unsupported"), (True, "supported"), (" Contradicted ", "contradicted")],
)
def test_words_and_numbers_of_labels_are_those_of_the_calibration(value: Any, verdict: str) -> None:
    assert read_verdict(value) == verdict
