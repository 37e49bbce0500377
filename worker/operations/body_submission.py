"""Submits the lines of one request's body, and tells of it no more than an answer takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from tasks.errors import InputError
from tasks.ports import HintKey, Refused
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_intake import InputBounds, InputOrder
from worker.operations.file_submission import Submission
from worker.settings import Settings

MOST_REFUSED = 10_000
"""Lines that may be refused of a body: with more, it is hardly what its sender meant, and nothing is accepted."""

MOST_NAMED = 1_000
"""Refused lines that an answer names one by one."""

MOST_WARNINGS = 100


@dataclass(slots=True)
class LinesOutcome:
    """The outcome of a body of lines; ``error`` where nothing was accepted."""

    lines: int = 0
    batch_id: UUID | None = None
    created: bool = False
    jobs: int = 0
    refused: int = 0
    refused_lines: tuple[Refused, ...] = ()
    """The first ones."""
    repeated: int = 0
    holders: Mapping[UUID, int] = field(default_factory=dict)
    submitted_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    hints: Mapping[HintKey, list[UUID]] = field(default_factory=dict)
    error: InputError | None = None


async def submit_lines(ledger: PostgresLedger, settings: Settings, order: InputOrder) -> LinesOutcome:
    """Writes the jobs of a body in one transaction."""
    refused: list[Refused] = []
    warnings: list[str] = []
    try:
        order = replace(order, bounds=InputBounds(settings.http_max_lines, MOST_REFUSED))
        submission = Submission(order, settings, on_refused=refused.append, warn=warnings.append)
        accepted = None if submission.empty else await submission.write(ledger)
    except InputError as error:
        return LinesOutcome(error=error, refused_lines=tuple(refused[:MOST_NAMED]))
    outcome = LinesOutcome(submission.intake.lines, refused_lines=tuple(refused[:MOST_NAMED]))
    if accepted is not None and accepted.jobs:
        outcome.batch_id, outcome.created, outcome.jobs = accepted.batch_id, accepted.created, accepted.jobs
        outcome.refused, outcome.refused_lines = len(accepted.refused), accepted.refused[:MOST_NAMED]
        outcome.repeated, outcome.holders = len(accepted.repeated), dict(accepted.holders)
        outcome.submitted_at, outcome.warnings = accepted.submitted_at, tuple(warnings[:MOST_WARNINGS])
        outcome.hints = submission.hints()
    return outcome
