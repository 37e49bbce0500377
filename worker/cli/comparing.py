"""Compares how jobs stood before and after their answers were checked again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from schemas.grounding import Verdict
from schemas.states import FINAL_STATES, JobState
from tasks.ports import JobView


@dataclass(frozen=True, slots=True)
class Stand:
    """What one run of a job came to, without its texts."""

    state: JobState
    outcome: str
    grounding_score: float | None
    verdicts: tuple[tuple[Verdict, int], ...]
    failed_checkers: tuple[str, ...]
    cost_usd: Decimal

    @classmethod
    def of(cls, view: JobView) -> Self:
        """Of a job as the ledger has it now."""
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

    pairs: Sequence[tuple[Stand, Stand]]

    @property
    def all_done(self) -> bool:
        """Whether every job is final again, and with every layer that was asked for."""
        return all(after.state in FINAL_STATES and not after.failed_checkers for _, after in self.pairs)

    @property
    def changed(self) -> int:
        """Jobs whose outcome is another one now."""
        return sum(before.outcome != after.outcome for before, after in self.pairs)

    @property
    def cost_usd(self) -> Decimal:
        """What the judge cost."""
        return sum((after.cost_usd - before.cost_usd for before, after in self.pairs), Decimal(0))

    def rows(self) -> list[tuple[str, str, str]]:
        """(what, before, after): claims by verdict, jobs by outcome, mean grounding score."""
        sides = [[pair[0] for pair in self.pairs], [pair[1] for pair in self.pairs]]
        claims = [_claims(side) for side in sides]
        outcomes = [Counter(stand.outcome for stand in side) for side in sides]
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


def _claims(stands: Sequence[Stand]) -> Counter[Verdict]:
    counted: Counter[Verdict] = Counter()
    for stand in stands:
        counted.update(dict(stand.verdicts))
    return counted


def _mean(stands: Sequence[Stand]) -> str:
    scores = [stand.grounding_score for stand in stands if stand.grounding_score is not None]
    return f"{sum(scores) / len(scores):.3f}" if scores else "-"
