"""Files that the ledger accepts in part, knows already, or refuses: the stored jobs and the messages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import InputError
from tests.lent_ledger import LentLedger
from worker.cli.summary import describe
from worker.cli.terminal import warn
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Accepted, Submission
from worker.operations.result_lines import write_results
from worker.settings import Settings


class SubmitHarness:
    """A ledger, and files that are handed in to it."""

    def __init__(self, folder: Path) -> None:
        self.ledger = LentLedger()
        self.folder = folder
        self.count = 0

    def submit(self, *jobs: dict[str, Any], strict: bool = False, **options: str) -> Accepted:
        self.count += 1
        path = self.folder / f"{self.count}.jsonl"
        # A blank line before each, which counts: a position is that of the line as an editor shows it.
        path.write_text("".join(f"\n{json.dumps(job)}\n" for job in jobs))
        submission = Submission(
            InputOrder([str(path)], options, strict=strict),
            Settings(provider="extractive"),
            on_refused=lambda line: warn(str(line)),
        )
        return asyncio.run(submission.write(self.ledger))

    def output(self, accepted: Accepted) -> list[dict[str, Any]]:
        path = self.folder / "out.jsonl"
        with path.open("wb") as file:
            asyncio.run(write_results(file, self.ledger, accepted.batch_id, accepted.input_lines))
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def harness(tmp_path: Path) -> SubmitHarness:
    return SubmitHarness(tmp_path)


def keyed(number: int, query: str | None = None) -> dict[str, Any]:
    return {
        "context": ["So."],
        "query": query or f"Question {number}?",
        "idempotency_key": str(number),
        "custom_id": f"c{number}",
    }


def test_one_line_in_conflict_is_named_and_the_others_are_taken(
    harness: SubmitHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    first = harness.submit(keyed(7))
    accepted = harness.submit(*(keyed(n, "changed" if n == 7 else None) for n in range(10)))

    assert (accepted.created, accepted.jobs, len(accepted.refused)) == (True, 9, 1)
    (bad,) = accepted.refused
    assert (bad.position, bad.custom_id) == (15, "c7")
    assert str(bad.place).endswith("2.jsonl, line 16")
    (job_id,) = harness.ledger.row("SELECT id FROM job WHERE idempotency_key = '7'")
    message = f"line 16: idempotency_key: '7' was used before for job {job_id}"
    assert message in capsys.readouterr().err
    assert describe(accepted).endswith("9 jobs submitted; 1 line was not valid")
    lines = harness.output(accepted)
    assert [line["position"] for line in lines] == list(range(1, 20, 2))
    assert [line["state"] for line in lines] == ["available"] * 7 + ["failed"] + ["available"] * 2
    assert first.batch_id != accepted.batch_id


def test_all_or_none_takes_nothing_where_one_line_is_in_conflict(harness: SubmitHarness) -> None:
    harness.submit(keyed(1))
    with pytest.raises(InputError, match=r"1 of 3 lines can't be accepted; nothing was submitted"):
        harness.submit(keyed(0), keyed(1, "changed"), keyed(2), strict=True)
    assert len(asyncio.run(harness.ledger.reading.batches(9))) == 1
