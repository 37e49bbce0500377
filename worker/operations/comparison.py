"""Compares the state of jobs before and after their answers are checked again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Self
from uuid import UUID

from schemas.grounding import Verdict
from schemas.states import FINAL_STATES, JobState
from tasks.ports import JobView, Ledger


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The outcome of one run of a job, without its texts."""

    state: JobState
    outcome: str
    grounding_score: float | None
    verdicts: tuple[tuple[Verdict, int], ...]
    failed_checkers: tuple[str, ...]
    cost_usd: Decimal

    @classmethod
    def of(cls, view: JobView) -> Self:
        """The present run of a job."""
        grounding = view.record.grounding if view.record is not None else None
        return cls(
            state=view.state,
            outcome=view.outcome.value if view.outcome is not None else view.state.value,
            grounding_score=grounding.grounding_score if grounding else None,
            verdicts=tuple(grounding.counts.items()) if grounding else (),
            failed_checkers=tuple(grounding.failed_checkers) if grounding else (),
            cost_usd=view.cost_usd or Decimal(0),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The jobs that were checked again, each before and after."""

    pairs: Sequence[tuple[Snapshot, Snapshot]]

    @property
    def all_done(self) -> bool:
        """Tells that every job is final again, with every layer that was asked for."""
        return all(after.state in FINAL_STATES and not after.failed_checkers for _, after in self.pairs)

    @property
    def changed(self) -> int:
        """Jobs whose outcome is another one now."""
        return sum(before.outcome != after.outcome for before, after in self.pairs)

    @property
    def cost_usd(self) -> Decimal:
        """Cost of the judge."""
        return sum((after.cost_usd - before.cost_usd for before, after in self.pairs), Decimal(0))

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, before, after): claims by verdict, jobs by outcome, mean grounding score."""
        sides = [[pair[0] for pair in self.pairs], [pair[1] for pair in self.pairs]]
        claims = [_claims(side) for side in sides]
        outcomes = [Counter(snapshot.outcome for snapshot in side) for side in sides]
        rows = [
            (f"claims {verdict.value}", str(claims[0][verdict]), str(claims[1][verdict]))
            for verdict in Verdict
            if claims[0][verdict] or claims[1][verdict]
        ]
        rows += [
            (f"jobs {outcome}", str(outcomes[0][outcome]), str(outcomes[1][outcome]))
            for outcome in sorted(outcomes[0] | outcomes[1])
        ]
        return [*rows, ("mean grounding score", _mean(sides[0]), _mean(sides[1]))]


def _claims(snapshots: Sequence[Snapshot]) -> Counter[Verdict]:
    counted: Counter[Verdict] = Counter()
    for snapshot in snapshots:
        counted.update(dict(snapshot.verdicts))
    return counted


def _mean(snapshots: Sequence[Snapshot]) -> str:
    scores = [snapshot.grounding_score for snapshot in snapshots if snapshot.grounding_score is not None]
    return f"{sum(scores) / len(scores):.3f}" if scores else "-"


async def snapshots(ledger: Ledger, batch_id: UUID) -> dict[UUID, Snapshot]:
    """The present state of the jobs of a batch."""
    return {view.job_id: Snapshot.of(view) async for view in ledger.reading.batch_views(batch_id)}
