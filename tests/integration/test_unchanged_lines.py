"""An input of which an earlier batch has a part is paid for where it was changed."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from schemas.states import JobState
from tasks.errors import SameInputSubmitted
from tasks.ports import Content
from tests.builders import make_batch, make_jobs, make_request
from tests.contract.situations import ACTOR, state
from tests.lent_ledger import KeptLedger
from worker.ledger.postgres import PostgresLedger
from worker.operations.estimation import estimate_submission
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Accepted, Submission, Unchanged
from worker.operations.input_content import SameInput
from worker.settings import Settings

LINES = [{"query": f"Question {n}?", "context": ["Because."]} for n in range(30)]


async def look(
    ledger: PostgresLedger,
    path: Path,
    lines: Sequence[dict[str, Any]],
    same: SameInput = SameInput.TAKE_EARLIER,
    batch: dict[str, Any] | None = None,
    priority: int = 0,
    **settings: Any,
) -> tuple[Unchanged | None, Submission]:
    """Looks for the lines of an input that is not known as a whole, before it is written."""
    await asyncio.to_thread(path.write_text, "\n".join(map(json.dumps, lines)))
    chosen = Settings(**{"provider": "extractive", **settings})
    submission = Submission(InputOrder([str(path)], batch or {}, same_input=same, priority=priority), chosen)
    assert await submission.known_batch(ledger.contents) is None
    return await submission.take_unchanged(ledger.contents), submission


async def hand_in(
    ledger: PostgresLedger, path: Path, lines: Sequence[dict[str, Any]], **options: Any
) -> tuple[Unchanged | None, Accepted, Submission]:
    """Submits lines as a command does whose input is not known as a whole."""
    unchanged, submission = await look(ledger, path, lines, **options)
    return unchanged, await submission.write(ledger), submission


def corrected(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same lines with another source of the last."""
    return [*lines[:-1], {**lines[-1], "context": [f"{lines[-1]['context'][0]} Indeed."]}]


def questions(word: str) -> list[dict[str, Any]]:
    """A few lines that no other input has."""
    return [{"query": f"{word} {n}?", "context": ["Because."]} for n in range(4)]


async def test_lines_that_did_not_change_keep_their_jobs(database_url: str, tmp_path: Path) -> None:
    async with KeptLedger(database_url) as ledger:
        path = tmp_path / "in.jsonl"
        unchanged, first, submission = await hand_in(ledger, path, LINES)
        assert unchanged is None
        assert submission.receipt is not None
        jobs = submission.receipt.job_ids
        await ledger.actions.cancel([jobs[5]], ACTOR)

        changed = [*LINES[:3], {**LINES[3], "context": ["Because of that."]}, *LINES[4:], LINES[0]]
        unchanged, second, submission = await hand_in(ledger, path, changed)

        assert unchanged == ({first.batch_id: 28}, 31), "not the one that was cancelled, and no job twice"
        assert (second.jobs, second.unchanged, dict(second.holders)) == (31, True, {first.batch_id: 28})
        assert submission.receipt is not None
        assert [at for at, job_id in enumerate(submission.receipt.job_ids) if job_id not in jobs] == [3, 5, 30]
        assert await state(ledger, jobs[5]) is JobState.CANCELLED
        assert second.batch_id is not None
        assert (await ledger.reading.batch_status(second.batch_id)).jobs == 3

        for same, unchanged_lines in ((SameInput.TAKE_EARLIER, 31), (SameInput.PAY_ANEW, 0)):
            again = Submission(InputOrder([str(path)], same_input=same), Settings(provider="extractive"))
            estimation = await estimate_submission(again, ledger)
            assert (estimation.lines, estimation.unchanged) == (31, unchanged_lines)
            assert estimation.estimate.jobs == 31 - unchanged_lines

        # Taken back, from the batch that has each of them by now.
        unchanged, third, _ = await hand_in(ledger, path, [*reversed(LINES)])
        assert unchanged == ({first.batch_id: 29, second.batch_id: 1}, 30)
        assert (third.batch_id, third.created) == (None, False)

        # Asked for, or with settings that decide answers otherwise.
        for other in ({"same": SameInput.PAY_ANEW}, {"strictness": "lenient"}):
            unchanged, last, _ = await hand_in(ledger, path, LINES[1:], **other)
            assert (unchanged, last.repeated) == (None, ())


async def test_a_line_by_another_prompt_further_down_is_asked_anew_and_no_other_line(
    database_url: str, tmp_path: Path
) -> None:
    async with KeptLedger(database_url) as ledger:
        path = tmp_path / "in.jsonl"
        plain = [{"query": f"Mixed {n}?", "context": ["Because."]} for n in range(24)]
        simple = {**plain[22], "config": {"mode": "simple"}}
        await hand_in(ledger, path, plain)
        unchanged, mixed, _ = await hand_in(ledger, path, [*plain[:22], simple, plain[23]])
        assert unchanged is not None
        assert (unchanged.jobs.total(), len(mixed.repeated)) == (23, 23)
        unchanged, _, _ = await hand_in(ledger, path, corrected([*plain[:22], simple, plain[23]]))
        assert unchanged is not None
        assert unchanged.jobs.total() == 22, "what the text of that prompt was then is not kept"
        unchanged, _, _ = await hand_in(ledger, path, [{**plain[0], "config": {"mode": "simple"}}, *plain[1:]])
        assert unchanged is None


EARLY, LATE = "2126-01-01T00:00:00Z", "2126-06-01T00:00:00Z"


async def test_jobs_without_an_answer_are_taken_only_where_they_run_as_new_ones_would(
    database_url: str, tmp_path: Path
) -> None:
    async def shared(ledger: PostgresLedger, word: str, earlier: dict[str, Any], later: dict[str, Any]) -> int:
        path, lines = tmp_path / "in.jsonl", questions(word)
        _, first, _ = await hand_in(ledger, path, lines, batch=earlier)
        if word == "Paused":
            assert first.batch_id is not None
            await ledger.actions.pause_batch(first.batch_id, ACTOR, paused=True)
        unchanged, second, _ = await hand_in(ledger, path, corrected(lines), **later)
        assert (unchanged.jobs.total() if unchanged else 0) == len(second.repeated)
        return len(second.repeated)

    async with KeptLedger(database_url) as ledger:
        assert await shared(ledger, "Free", {"name": "free"}, {}) == 3
        assert await shared(ledger, "Begun", {"not_before": "2020-01-01T00:00:00Z"}, {}) == 3
        assert await shared(ledger, "As long", {"deadline": LATE}, {"batch": {"deadline": EARLY}}) == 3
        assert await shared(ledger, "Paused", {}, {}) == 0
        assert await shared(ledger, "Begins later", {"not_before": EARLY}, {}) == 0
        assert await shared(ledger, "Window", {"window": "22:00-06:00 UTC"}, {}) == 0
        assert await shared(ledger, "Same ceiling", {"max_cost_usd": "1"}, {"batch": {"max_cost_usd": "1"}}) == 3
        assert await shared(ledger, "Low ceiling", {"max_cost_usd": "1"}, {"batch": {"max_cost_usd": "2"}}) == 0
        assert await shared(ledger, "Ceiling", {"max_cost_usd": "0.01"}, {}) == 0
        assert await shared(ledger, "Ends", {"deadline": EARLY}, {}) == 0
        assert await shared(ledger, "Ends sooner", {"deadline": EARLY}, {"batch": {"deadline": LATE}}) == 0
        assert await shared(ledger, "Behind", {}, {"priority": 5}) == 0


async def test_jobs_that_end_or_go_between_the_look_and_the_write_are_asked_anew(
    database_url: str, tmp_path: Path
) -> None:
    async with KeptLedger(database_url) as ledger:
        path, lines = tmp_path / "in.jsonl", questions("Meanwhile")
        _, first, earlier = await hand_in(ledger, path, lines)
        unchanged, submission = await look(ledger, path, corrected(lines))
        assert unchanged is not None
        assert unchanged.jobs.total() == 3
        assert first.batch_id is not None
        assert earlier.receipt is not None
        await ledger.actions.cancel([earlier.receipt.job_ids[0]], ACTOR)
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.execute("DELETE FROM job WHERE id = %s", (earlier.receipt.job_ids[1],))

        accepted = await submission.write(ledger)
        assert [line.position for line in accepted.repeated] == [2]
        assert accepted.batch_id is not None
        assert (await ledger.reading.batch_status(accepted.batch_id)).jobs == 3


async def test_a_batch_is_found_by_its_content_until_its_answers_are_gone(database_url: str) -> None:
    async with KeptLedger(database_url) as ledger:

        async def submit(content: Content, tenant: str = "default") -> UUID:
            batch = replace(make_batch(tenant=tenant), content=lambda: content)
            await ledger.submission.submit(batch, [make_jobs(make_request("Why?"), tenant=tenant)])
            return batch.id

        same, other = Content(b"head", b"whole", b"basis"), Content(b"head", b"other", b"basis")
        first = await submit(same)
        assert await ledger.contents.find("default", same) == first
        assert await ledger.contents.find("default", other) is None
        assert await ledger.contents.find("another", same) is None
        assert await ledger.contents.begins_like("default", b"head")
        with pytest.raises(SameInputSubmitted, match="same command again"):
            await submit(same)
        assert await submit(same, "another") != first
        second = await submit(same._replace(replaces=True))
        assert await ledger.contents.find("default", same) == second
        await ledger.actions.cancel_batch(second, ACTOR)
        assert await ledger.contents.find("default", same) is None
        last = await submit(same)
        jobs = [view.job_id async for view in ledger.reading.batch_views(last)]
        await ledger.actions.cancel(jobs, ACTOR)
        assert await ledger.contents.find("default", same) == last
        await ledger.erasure.erase(jobs, ACTOR)
        assert await ledger.contents.find("default", same) is None
