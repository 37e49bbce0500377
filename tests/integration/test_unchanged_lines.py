"""An input of which an earlier batch has a part is paid for where it was changed."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.states import JobState
from tests.contract.situations import ACTOR, state
from worker.ledger.postgres import PostgresLedger
from worker.operations.estimation import estimate_files
from worker.operations.file_submission import Accepted, Submission
from worker.operations.input_content import SameInput
from worker.operations.second_reading import Unchanged
from worker.settings import Settings

LINES = [{"query": f"Question {n}?", "context": ["Because."]} for n in range(30)]


async def hand_in(
    ledger: PostgresLedger,
    path: Path,
    lines: Sequence[dict[str, Any]],
    same: SameInput = SameInput.TAKE_EARLIER,
    **settings: Any,
) -> tuple[Unchanged | None, Accepted, Submission]:
    """Submits lines as a command does whose input is not known as a whole."""
    await asyncio.to_thread(path.write_text, "\n".join(map(json.dumps, lines)))
    submission = Submission(
        [str(path)], {}, Settings(**{"provider": "extractive", **settings}), strict=False, same_input=same
    )
    assert await submission.known_batch(ledger.contents) is None
    unchanged = await submission.take_unchanged(ledger.contents)
    return unchanged, await submission.write(ledger), submission


def test_lines_that_did_not_change_keep_their_jobs(database_url: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with PostgresLedger(database_url, connections=1) as ledger:
            path = tmp_path / "in.jsonl"
            unchanged, first, submission = await hand_in(ledger, path, LINES)
            assert unchanged is None
            assert submission.receipt is not None
            jobs = submission.receipt.job_ids
            await ledger.actions.cancel([jobs[5]], ACTOR)

            corrected = [*LINES[:3], {**LINES[3], "context": ["Because of that."]}, *LINES[4:], LINES[0]]
            unchanged, second, submission = await hand_in(ledger, path, corrected)

            assert unchanged == ({first.batch_id: 28}, 31), "not the one that was cancelled, and no job twice"
            assert (second.jobs, second.unchanged, dict(second.holders)) == (31, True, {first.batch_id: 28})
            assert submission.receipt is not None
            assert [at for at, job_id in enumerate(submission.receipt.job_ids) if job_id not in jobs] == [3, 5, 30]
            assert await state(ledger, jobs[5]) is JobState.CANCELLED
            assert second.batch_id is not None
            assert (await ledger.reading.batch_status(second.batch_id)).jobs == 3

            files, settings = [str(path)], Settings(provider="extractive")
            estimation = await estimate_files(files, {}, settings, ledger)
            assert (estimation.lines, estimation.unchanged, estimation.estimate.jobs) == (31, 31, 0)
            assert (
                await estimate_files(files, {}, settings, ledger, same_input=SameInput.PAY_ANEW)
            ).estimate.jobs == 31

            # Taken back, from the batch that has each of them by now.
            unchanged, third, _ = await hand_in(ledger, path, [*reversed(LINES)])
            assert unchanged == ({first.batch_id: 29, second.batch_id: 1}, 30)
            assert (third.batch_id, third.created) == (None, False)

            # Asked for, or with settings that decide answers otherwise.
            for other in ({"same": SameInput.PAY_ANEW}, {"strictness": "lenient"}):
                unchanged, last, _ = await hand_in(ledger, path, LINES[1:], **other)  # type: ignore[arg-type]
                assert (unchanged, last.repeated) == (None, ())

    asyncio.run(work())
