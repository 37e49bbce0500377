"""The cost of a call, beside what the price library says of the same model, tokens, tier and moment."""

from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot

from schemas.model_call import Usage
from worker.providers import prices

MODELS = [
    (provider.id, model.id, bool(model.price_variants))
    for provider in get_snapshot().providers
    for model in provider.models
]
TIERS = (None, "default", "batch", "flex", "priority", "scale")


MOMENT = datetime(2026, 11, 23, 17, 30, tzinfo=UTC)


def library_cost(vendor: str, model: str, usage: Usage, tier: str | None, moment: datetime) -> Decimal | None:
    """The library's own sum."""
    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    variant = {"processing": "batch"} if tier == "batch" else {"service_tier": tier or ""}
    context = None if tier in {None, "default"} else variant
    try:
        return calc_price(
            tokens, model, provider_id=vendor, genai_request_timestamp=moment, price_context=context
        ).total_price
    except (LookupError, ValueError):
        return None


def own_cost(vendor: str, model: str, usage: Usage, tier: str | None, moment: datetime) -> Decimal | None:
    """The sum by the remembered rates, in the minute of that moment."""
    rates = prices._rates(vendor, "", model, tier, moment.replace(second=0, microsecond=0))
    return None if rates is None else rates.cost_usd(usage)


def test_every_model_of_the_tables_costs_what_the_library_says() -> None:
    short = Usage(input_tokens=12_345, output_tokens=678, cached_input_tokens=9_000, cache_write_tokens=2_000)
    long = short.model_copy(update={"input_tokens": 300_001})
    for number, (vendor, model, has_variants) in enumerate(MODELS):
        # Each tier has prices of its own at few models; at the others the tiers take turns.
        for tier in TIERS if has_variants else (TIERS[number % len(TIERS)],):
            for usage in (short, long):
                expected = library_cost(vendor, model, usage, tier, MOMENT)
                assert own_cost(vendor, model, usage, tier, MOMENT) == expected, (model, tier)
