"""An interrupted submission: the person learns from the ledger that all of it was taken, or nothing, and learns it once."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.errors import LedgerUnavailable
from tests.lent_ledger import LentLedger
from worker.cli.submitting import NOTHING_SUBMITTED, Interruption, fate_of
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Submission
from worker.settings import Settings


def opened(ledger: LentLedger | None) -> Any:
    """A session with a ledger; None: it is away."""

    def on_ledger(operation: Any) -> Any:
        if ledger is None:
            raise LedgerUnavailable("PostgreSQL can't be reached")
        return asyncio.run(operation(ledger))

    return SimpleNamespace(on_ledger=on_ledger)


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"query": "When?", "context": ["At nine."]}) + "\n")
    return Submission(InputOrder([str(path)]), Settings(provider="extractive"))


def test_a_submission_that_was_written_is_named_with_its_jobs(submission: Submission) -> None:
    ledger = LentLedger()
    asyncio.run(submission.write(ledger))
    text, batch_id = fate_of(opened(ledger), submission)
    assert batch_id == submission.batch.id
    assert text.startswith(f"Batch {batch_id} was submitted whole: 1 job."), text
    assert f"nightdesk status {batch_id}" in text


def test_a_submission_that_was_not_written_left_nothing(submission: Submission) -> None:
    assert fate_of(opened(LentLedger()), submission) == (NOTHING_SUBMITTED, None)


def test_without_a_ledger_the_command_that_tells_is_named(submission: Submission) -> None:
    text, batch_id = fate_of(opened(None), submission)
    assert batch_id is None
    assert f"unless 'nightdesk status {submission.batch.id}' knows of it" in text


def test_the_innermost_place_tells_and_only_it(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = Interruption()
    with (
        pytest.raises(KeyboardInterrupt),
        interruption.tell_fate(lambda: "outer"),
        interruption.tell_fate(lambda: "inner"),
    ):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "Interrupted. inner\n"


def test_what_is_submitted_stays_so_while_the_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = Interruption()

    def submit() -> None:
        with interruption.tell_fate(lambda: "Nothing was submitted."):
            with interruption.tell_fate(lambda: "Batch 1 was submitted whole."):
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit()
    assert capsys.readouterr().err == "Interrupted. Batch 1 was submitted whole.\n"
