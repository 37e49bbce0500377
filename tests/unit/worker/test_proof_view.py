"""Proofs of many jobs fit a screen."""

import io
from uuid import uuid4

from rich.console import Console

from worker.cli.proof_view import show_proofs
from worker.operations.replay import Finding, PromptProof

UNKNOWN = Finding.UNKNOWN


def show(*proofs: PromptProof) -> list[str]:
    out = io.StringIO()
    show_proofs(Console(file=out, width=80), proofs)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_jobs_that_could_not_be_compared_for_one_reason_are_one_entry() -> None:
    waits = [PromptProof(uuid4(), n, None, UNKNOWN, UNKNOWN, ("it is not final but pending",)) for n in range(30)]
    lone = PromptProof(uuid4(), 30, "c30", UNKNOWN, UNKNOWN, ("it ended as no_evidence",))
    changed = PromptProof(uuid4(), 31, "c31", Finding.DIFFERENT, UNKNOWN, ("the template was changed",))
    lines = show(*waits, lone, changed)
    assert lines[:3] == [
        "31 messages not compared", "1 messages DIFFERENT from what was sent", "32 bodies not compared",
    ]  # fmt: skip
    assert [line for line in lines if line.startswith("job ")] == [
        f"job {waits[0].job_id}", f"job {lone.job_id} (c30)", f"job {changed.job_id} (c31)",
    ]  # fmt: skip
    assert "  and so 29 further jobs: --json lists all" in lines
    assert sum("further" in line for line in lines) == 1
