"""Fits an amount of earlier calls, such as their answer's length, to the size of their prompts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

FURTHEST = 2.0
"""Standard deviations of the earlier sizes beyond which an answer is not taken to grow or shrink any more."""

PRIOR_BATCHES = 2
"""Weight of a prior beside observed batches, as so many of them."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Sums over calls, each with the size of its prompt and an amount; two of them add up.

    Attributes:
        sizes: sum of the sizes.
        amounts: sum of the amounts.
        size_squares: sum of the squares of the sizes.
        amount_squares: sum of the squares of the amounts.
        products: sum of size times amount.
    """

    count: int = 0
    sizes: float = 0.0
    amounts: float = 0.0
    size_squares: float = 0.0
    amount_squares: float = 0.0
    products: float = 0.0

    def __add__(self, other: "Fit") -> "Fit":
        return Fit(*(first + second for first, second in zip(astuple(self), astuple(other), strict=True)))

    @property
    def mean(self) -> float:
        """The average amount; 0 without calls."""
        return self.amounts / self.count if self.count else 0.0

    @property
    def ratio(self) -> float:
        """The amount for each unit of size; 0 without sizes."""
        return self.amounts / self.sizes if self.sizes else 0.0

    def _about_means(self) -> tuple[float, float, float]:
        """The sums of squares of size and amount, and of their products, about their means."""
        mean_size, mean = self.sizes / self.count, self.amounts / self.count
        of_sizes = max(0.0, self.size_squares - self.sizes * mean_size)
        of_amounts = max(0.0, self.amount_squares - self.amounts * mean)
        # Below that it is the rounding of the sums.
        return (of_sizes if of_sizes > 1e-9 * self.size_squares else 0.0), of_amounts, self.products - self.sizes * mean

    def predict(self, count: int, sizes: float, *, reach: float = FURTHEST) -> tuple[float, float]:
        """The total of further calls whose sizes come to a sum, by a line, and its standard deviation.

        ``reach`` is the number of standard deviations beyond which a size has no further effect.
        """
        if not self.count or not count:
            return 0.0, 0.0
        of_sizes, of_amounts, products = self._about_means()
        slope = max(0.0, products / of_sizes) if of_sizes else 0.0
        distance, furthest = sizes / count - self.sizes / self.count, reach * math.sqrt(of_sizes / self.count)
        distance = max(-furthest, min(furthest, distance)) if of_sizes else 0.0
        variance = max(0.0, of_amounts - slope * products) / max(1, self.count - 2)
        spread = count + count * count / self.count + ((count * distance) ** 2 / of_sizes if of_sizes else 0.0)
        return max(0.0, count * (self.mean + slope * distance)), math.sqrt(variance * spread)

    def scale(self, count: int, sizes: float) -> tuple[float, float]:
        """The total of further calls whose sizes come to a sum, in proportion to that, and its standard deviation."""
        if not self.sizes or not count:
            return 0.0, 0.0
        squares = self.amount_squares - 2 * self.ratio * self.products + self.ratio**2 * self.size_squares
        variance = max(0.0, squares) / max(1, self.count - 1)
        return sizes * self.ratio, math.sqrt(variance * (count + count * count / self.count))

    def extend(self, count: int, sizes: float) -> tuple[float, float]:
        """The total of further calls whose sizes come to a sum, by a line without an end, and its standard deviation.

        In proportion to the sizes where only one was observed.
        """
        return self.scale(count, sizes) if self.of_one_size else self.predict(count, sizes, reach=math.inf)

    @property
    def of_one_size(self) -> bool:
        """True if nothing can be learned of the effect of size."""
        return not self.count or not self._about_means()[0]


Total = Callable[[Fit, int, float], tuple[float, float]]


def batch_deviation(batches: Sequence[Fit], prior: float, total: Total) -> float:
    """The standard deviation of a batch's amount about the fit of all, as a share on the scale of logarithms.

    Questions of one batch are alike, so the calls of a batch tell less of another one than their number says.

    Args:
        batches: a fit of each earlier batch.
        prior: the same before any was observed.
        total: ``Fit.predict``, ``Fit.scale`` or ``Fit.extend``.
    """
    whole = sum(batches, Fit())
    logs = []
    for batch in batches:
        expected, _ = total(whole, batch.count, batch.sizes)
        if expected > 0 and batch.amounts > 0:
            logs.append(math.log(batch.amounts / expected))
    return share_deviation([each * each for each in logs], prior)


def share_deviation(squares: Sequence[float], prior: float) -> float:
    """The standard deviation of a share by the squared deviations of observed batches and a prior beside them."""
    weight = PRIOR_BATCHES + max(0, len(squares) - 1)
    return math.sqrt((PRIOR_BATCHES * prior * prior + sum(squares)) / weight)
