"""Numbers for people: amounts that can be read, and costs that are never 0 for want of a price."""

from decimal import Decimal

import pytest

from schemas.batch import MOST_UNPRICED
from tests.unit.worker.test_cli_waiting import status
from worker.operations.counts import amount, cost, spent_of


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "0"), (Decimal("0E-8"), "0"), (7.43e-05, "0.0000743"), ("0.0001026", "0.000103"), (Decimal("0.00000001"), "0.00000001"),
        (0.2895, "0.29"), ("0.9996", "1"), (7, "7"), ("9.999", "10"), (Decimal("3.373"), "3.37"), (-1234.5, "-1,234.50"),
    ],
)  # fmt: skip
def test_an_amount_has_digits_that_count_and_no_power_of_ten(usd: Decimal | float | str, text: str) -> None:
    assert amount(usd) == text


def test_an_unknown_cost_is_never_0() -> None:
    assert cost(None) == "unknown"
    unknown = {"spent_usd": None, "unpriced_jobs": 1}
    assert (
        spent_of(status({"completed": 42}, priced_usd=Decimal("0.00281"), **unknown))
        == "0.00281 USD and 1 job of unknown price"
    )
    assert spent_of(status({"completed": 1}, **unknown)) == "unknown for 1 job"
    many = status({"completed": 4000}, spent_usd=None, unpriced_jobs=MOST_UNPRICED)
    assert spent_of(many) == "unknown for 1,000 jobs or more"
    assert spent_of(status({}, spent_usd=None)) == "unknown for removed jobs"
    assert spent_of(status({"completed": 2}, spent_usd=Decimal("0.5"))) == "0.5 USD"
