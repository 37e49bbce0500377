"""Compares the answers of two batches to the same questions, by their verdicts and their cost."""

import hashlib
import math
from collections import Counter
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import NormalDist, fmean, stdev

from schemas.grounding import Verdict
from schemas.model_call import total_usd
from schemas.states import FINAL_STATES, Outcome
from tasks.ports import JobView

Z = NormalDist().inv_cdf(0.975)
"""Standard errors on each side of a value for an interval of 95 %."""

TIERS = {
    Outcome.ANSWERED: 4,
    Outcome.UNVERIFIED: 3,
    Outcome.PARTIAL: 2,
    Outcome.ABSTAINED: 1,
    Outcome.NO_EVIDENCE: 1,
    Outcome.REJECTED: 0,
    Outcome.REFUSED: 0,
}
"""Order of the outcomes; a job without one is as the last."""


@dataclass(frozen=True, slots=True)
class Merit:
    """The part of a job that is compared; ``support`` is the share of its claims that are supported."""

    outcome: str
    tier: int
    support: float
    cost_usd: Decimal | None

    @classmethod
    def of(cls, view: JobView) -> "Merit":
        """The merit of a final job."""
        grounding = view.record.grounding if view.record is not None else None
        counts = grounding.counts if grounding is not None else {}
        claims = sum(count for verdict, count in counts.items() if verdict is not Verdict.NOT_CHECKABLE)
        return cls(
            outcome=view.ending,
            tier=TIERS[view.outcome] if view.outcome is not None else 0,
            support=counts.get(Verdict.SUPPORTED, 0) / claims if claims else 0.0,
            cost_usd=view.cost_usd,
        )

    @property
    def rank(self) -> tuple[int, float]:
        """Order of answers; only answers with an outcome between right and wrong differ by their support."""
        return self.tier, self.support if self.tier in {TIERS[Outcome.UNVERIFIED], TIERS[Outcome.PARTIAL]} else 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its bounds of 95 %."""

    value: float
    low: float
    high: float


def wilson(successes: float, trials: int) -> Interval | None:
    """A share with Wilson's score interval, which holds for few trials and for shares near 0 and 1; None without trials."""
    if not trials:
        return None
    share, weight = successes / trials, Z * Z / trials
    middle = (share + weight / 2) / (1 + weight)
    reach = Z * math.sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    return Interval(share, max(0.0, middle - reach), min(1.0, middle + reach))


@dataclass(slots=True)
class Comparison:
    """Counts over the questions of both batches; a win is the second batch's."""

    pairs: int = 0
    wins: int = 0
    losses: int = 0
    unfinished: int = 0
    """Pairs of which a job is not final."""
    only_first: int = 0
    only_second: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Pairs by the outcome of each."""
    first_usd: Decimal | None = Decimal(0)
    second_usd: Decimal | None = Decimal(0)
    """Cost of the pairs; None where the price of a call is unknown."""
    _more: list[float] = field(default_factory=list)
    """The surplus cost of the second of each pair."""

    @property
    def ties(self) -> int:
        """Pairs of equal rank."""
        return self.pairs - self.wins - self.losses

    @property
    def win_share(self) -> Interval | None:
        """Wins among the pairs that differ; 0.5 outside of the bounds is a difference beyond chance."""
        return wilson(self.wins, self.wins + self.losses)

    @property
    def more_usd(self) -> Interval | None:
        """The surplus cost of a job of the second batch, by the paired differences; None for fewer than two pairs or no price."""
        if self.pairs < 2 or self.first_usd is None or self.second_usd is None:  # noqa: PLR2004 - one has no deviation
            return None
        mean = fmean(self._more)
        reach = Z * stdev(self._more) / math.sqrt(self.pairs)
        return Interval(mean, mean - reach, mean + reach)

    def add(self, first: Merit, second: Merit) -> None:
        """Adds a pair of final jobs."""
        self.pairs += 1
        self.wins += second.rank > first.rank
        self.losses += second.rank < first.rank
        self.outcomes[first.outcome, second.outcome] += 1
        self.first_usd = total_usd(self.first_usd, first.cost_usd)
        self.second_usd = total_usd(self.second_usd, second.cost_usd)
        if first.cost_usd is not None and second.cost_usd is not None:
            self._more.append(float(second.cost_usd - first.cost_usd))


async def compare(first: AsyncIterable[JobView], second: AsyncIterable[JobView]) -> Comparison:
    """Pairs jobs by their question; of several with the same question, in their order.

    Holds some 300 bytes for each job of the first batch and streams the second. Erased jobs have no question left.
    """
    merits: dict[tuple[bytes, int], Merit | None] = {}
    ordinals: Counter[bytes] = Counter()
    async for view in first:
        if view.erased_at is None:
            key = _question(view)
            merits[key, ordinals[key]] = _merit(view)
            ordinals[key] += 1
    comparison = Comparison()
    ordinals.clear()
    async for view in second:
        if view.erased_at is not None:
            continue
        key = _question(view)
        place = (key, ordinals[key])
        ordinals[key] += 1
        if place not in merits:
            comparison.only_second += 1
            continue
        before, after = merits.pop(place), _merit(view)
        if before is None or after is None:
            comparison.unfinished += 1
        else:
            comparison.add(before, after)
    comparison.only_first = len(merits)
    return comparison


def _merit(view: JobView) -> Merit | None:
    return Merit.of(view) if view.state in FINAL_STATES else None


def _question(view: JobView) -> bytes:
    return hashlib.sha256(view.request.query.strip().encode(errors="surrogatepass")).digest()[:16]
