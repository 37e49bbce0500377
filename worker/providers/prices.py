"""Prices one call with the maintained price tables of ``genai-prices``; what has no price there has none here."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Literal
from urllib.parse import urlsplit

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price

from schemas.model_call import Usage

BYTES_PER_TOKEN = 2
"""For worst-case estimates only: English has about 4.5 bytes a token in current tokenizers, CJK and tables down to 2."""

USUAL_BYTES_PER_TOKEN = 3.5
"""For likely costs: a prompt in a European language has more, so that its cost is rather overestimated."""

_STEP = 512
"""Tokens; estimates are rounded up to it, so that neighbouring jobs share one look-up."""

_UNPRICED_TIERS = frozenset({None, "default", "standard", "auto"})


PriceList = Literal["openai", "openai-decisions", "anthropic"]


class Prices:
    """The prices at one endpoint.

    Args:
        vendor: whose list prices apply, in the words of ``genai-prices``, or None to find out by the base URL (``None`` prices when the URL is of no known vendor:
            a model of the same name may cost something else, or nothing, on one's own server).
        base_url: the endpoint.
    """

    def __init__(self, vendor: PriceList | None, base_url: str) -> None:
        self._vendor = vendor
        # Without a user's credentials: this goes into a cache's key.
        parts = urlsplit(base_url)
        self._url = f"{parts.scheme}://{parts.hostname}{parts.path}"

    def reserve_usd(self, model: str, prompt_bytes: int, max_tokens: int, tier: str | None) -> Decimal | None:
        """The most that a call may cost: every byte budgeted, all of it written to the cache, the answer at its limit.

        None: the price is unknown.
        """
        tokens = ceil(prompt_bytes / BYTES_PER_TOKEN / _STEP) * _STEP
        return _reserve(self._vendor, self._url, model, tokens, max_tokens, tier)

    def expected_usd(self, model: str, prompt_bytes: int, max_tokens: int, tier: str | None) -> Decimal | None:
        """The likely cost of a call with nothing cached whose answer fills its limit; None: the price is unknown."""
        usage = Usage(input_tokens=ceil(prompt_bytes / USUAL_BYTES_PER_TOKEN), output_tokens=max_tokens)
        return _calculated(self._vendor, self._url, model, usage, tier)

    def cost_usd(self, requested: str, returned: str | None, usage: Usage | None, tier: str | None) -> Decimal | None:
        """The cost of a call. A model that answered in another's place is priced by its own name, or not at all."""
        if usage is None:
            return None
        cost = _calculated(self._vendor, self._url, returned or requested, usage, tier)
        if cost is None and returned and returned.startswith(requested):
            cost = _calculated(self._vendor, self._url, requested, usage, tier)
        return cost


@lru_cache(maxsize=4096)
def _reserve(  # noqa: PLR0917 - the key of a cache
    vendor: str | None, url: str, model: str, tokens: int, max_tokens: int, tier: str | None
) -> Decimal | None:
    usages = (
        Usage(input_tokens=tokens, output_tokens=max_tokens),
        Usage(input_tokens=tokens, output_tokens=max_tokens, cache_write_tokens=tokens),
    )
    costs = [cost for usage in usages if (cost := _calculated(vendor, url, model, usage, tier)) is not None]
    return max(costs, default=None)


def _calculated(vendor: str | None, url: str, model: str, usage: Usage, tier: str | None) -> Decimal | None:
    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    context = None if tier in _UNPRICED_TIERS else _context(tier or "")
    now = datetime.now(UTC)
    try:
        price = (
            calc_price(priced, model, provider_id=vendor, genai_request_timestamp=now, price_context=context)
            if vendor
            else calc_price(priced, model, provider_api_url=url, genai_request_timestamp=now, price_context=context)
        )
    except (LookupError, ValueError):
        return None
    return price.total_price


def _context(tier: str) -> dict[str, str]:
    return {"processing": "batch"} if tier == "batch" else {"service_tier": tier}
