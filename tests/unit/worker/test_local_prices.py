from decimal import Decimal

import pytest

from schemas.model_call import Usage
from worker.providers.prices import Prices

USAGE = Usage(input_tokens=1_000_000, output_tokens=0)


@pytest.mark.parametrize(
    "url", ["http://localhost:11434/v1", "http://127.0.0.1:8000/v1", "http://[::1]:8000/v1", "http://gpu-7:8000/v1"]
)
def test_a_model_of_a_server_without_a_domain_has_no_price(url: str) -> None:
    assert Prices(None, url).cost_usd("gpt-4o-mini", None, USAGE, None) is None


def test_a_vendor_known_by_its_domain_has_its_prices() -> None:
    assert Prices(None, "https://api.openai.com/v1").cost_usd("gpt-4o-mini", None, USAGE, None) == Decimal("0.15")
