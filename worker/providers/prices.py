"""Prices one call: by the prices of the settings, else by the maintained tables of ``genai-prices``, else not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from schemas.model_call import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice, TieredPrices

    from worker.provider_settings import TokenPrice

ANY_MODEL = "*"
"""Stands for every model that the prices of the settings do not name."""

BYTES_PER_TOKEN = 2
"""For worst-case estimates only: English has about 4.5 bytes a token in current tokenizers, CJK and tables down to 2."""

USUAL_BYTES_PER_TOKEN = 3.5
"""For likely costs: a prompt in a European language has more, so that its cost is rather overestimated."""

PRICE_TIERS: dict[str, str] = {"provider_batch": "batch", "background": "background", "background_2h": "background_2h"}
"""The tier by which the calls of a lane are priced; those of the lane ``standard`` have the tier that was asked for."""

_UNPRICED_TIERS = frozenset({None, "default", "standard", "auto"})


PriceList = Literal["openai", "openai-decisions", "anthropic", "azure", "aws", "google"]


class Prices:
    """The prices at one endpoint.

    Args:
        vendor: whose list prices apply, in the words of ``genai-prices``, or None to find out by the base URL (``None`` prices when the URL is of no known vendor:
            a model of the same name may cost something else, or nothing, on one's own server).
        base_url: the endpoint.
        own: prices of the settings by model; they go before all tables.
    """

    def __init__(self, vendor: PriceList | None, base_url: str, own: "Mapping[str, TokenPrice] | None" = None) -> None:
        self._vendor = vendor
        self._own = own or {}
        # Without a user's credentials: this goes into a cache's key.
        parts = urlsplit(base_url)
        self._url = f"{parts.scheme}://{parts.hostname}{parts.path}"

    def reserve_usd(self, model: str, prompt_bytes: int, max_tokens: int, tier: str | None) -> Decimal | None:
        """The most that a call may cost: every byte budgeted, all of it written to the cache, the answer at its limit.

        None: the price is unknown.
        """
        tokens = ceil(prompt_bytes / BYTES_PER_TOKEN)
        usages = [
            Usage(input_tokens=tokens, output_tokens=max_tokens, cache_write_tokens=writes) for writes in (0, tokens)
        ]
        return max((cost for usage in usages if (cost := self._usd(model, usage, tier)) is not None), default=None)

    def expected_usd(self, model: str, prompt_bytes: int, max_tokens: int, tier: str | None) -> Decimal | None:
        """The likely cost of a call with nothing cached whose answer fills its limit; None: the price is unknown."""
        usage = Usage(input_tokens=ceil(prompt_bytes / USUAL_BYTES_PER_TOKEN), output_tokens=max_tokens)
        return self._usd(model, usage, tier)

    def cost_usd(self, requested: str, returned: str | None, usage: Usage | None, tier: str | None) -> Decimal | None:
        """The cost of a call. A model that answered in another's place is priced by its own name, or not at all.

        Prices of the settings hold for the name asked for, too: a gateway answers by names that its users don't know.
        """
        if usage is None:
            return None
        if (own := self._own.get(returned or "") or self._own_price(requested)) is not None:
            return _own_cost(own, usage, tier)
        cost = self._usd(returned or requested, usage, tier)
        if cost is None and returned and returned.startswith(requested):
            cost = self._usd(requested, usage, tier)
        return cost

    def _usd(self, model: str, usage: Usage, tier: str | None) -> Decimal | None:
        if (own := self._own_price(model)) is not None:
            return _own_cost(own, usage, tier)
        return _calculated(self._vendor, self._url, model, usage, tier)

    def _own_price(self, model: str) -> "TokenPrice | None":
        return self._own.get(model) or self._own.get(ANY_MODEL)


def _own_cost(price: "TokenPrice", usage: Usage, tier: str | None) -> Decimal | None:
    share = price.batch if tier == PRICE_TIERS["provider_batch"] else LANE_SHARES.get(tier or "", 1)
    rates = _Rates(price.input, price.output, price.cached, price.cache_write, requests=None)
    cost = rates.cost_usd(usage)
    return None if cost is None else cost * share


LANE_SHARES = {"background": Decimal("0.6"), "background_2h": Decimal("0.7")}
"""Share of the standard price by completion window: OpenAI's guide to background mode, "completion windows" (2026-11).

The price tables do not have them.
"""


def _calculated(vendor: str | None, url: str, model: str, usage: Usage, tier: str | None) -> Decimal | None:
    if tier in LANE_SHARES:
        standard = _calculated(vendor, url, model, usage, None)
        return None if standard is None else standard * LANE_SHARES[tier]
    # The tables name dates and whole minutes of a day; within a minute no price changes.
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    rates = _rates(vendor, url, model, tier, minute)
    return rates.cost_usd(usage) if rates is not None else None


_Rate: TypeAlias = "Decimal | TieredPrices | None"


@dataclass(frozen=True, slots=True)
class _Rates:
    """The prices of a model that the tokens of ours have: the library's arithmetic without its search for them each time.

    A token that is no cached one where cached ones have a price of their own is priced as input. The length of the whole
    input decides the step of a price with steps, for all tokens.
    """

    input: _Rate
    output: _Rate
    cache_read: _Rate
    cache_write: _Rate
    requests: _Rate

    def cost_usd(self, usage: Usage) -> Decimal | None:
        """The cost of a call; None for tokens that do not add up."""
        whole, reads, writes = usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens
        fresh = whole
        if self.input is not None:
            fresh -= (reads if self.cache_read is not None else 0) + (writes if self.cache_write is not None else 0)
        if min(whole, reads, writes, usage.output_tokens, fresh) < 0:
            return None
        cost = Decimal(0)
        for rate, count in (
            (self.input, fresh),
            (self.output, usage.output_tokens),
            (self.cache_read, reads),
            (self.cache_write, writes),
        ):
            if rate is not None and count:
                cost += _at(rate, whole) * count / 1_000_000
        return cost if self.requests is None else cost + _at(self.requests, whole) / 1000


def _at(rate: "Decimal | TieredPrices", input_tokens: int) -> Decimal:
    if isinstance(rate, Decimal):
        return rate
    return next((tier.price for tier in reversed(rate.tiers) if input_tokens > tier.start), rate.base)


@lru_cache(maxsize=1024)
def _rates(vendor: str | None, url: str, model: str, tier: str | None, minute: datetime) -> _Rates | None:
    if vendor is None and not _may_be_listed(url):
        return None
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415 - with the tables

    context = None if tier in _UNPRICED_TIERS else _context(tier or "")
    try:
        provider, entry = load_tables().find_provider_model(model, None, vendor or None, None if vendor else url)
        # The variants of a model that is listed under another provider do not hold here.
        listed = any(entry is each for each in provider.models)
        price = entry.get_prices(minute, context if listed else None)
        # The library refuses prices that do not fit together; it looks at them only when it computes.
        price.calc_price(PricedUsage(input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0))
    except (LookupError, ValueError):
        return None
    return _Rates(
        input=_rate(price, "input_mtok"),
        output=_rate(price, "output_mtok"),
        cache_read=_rate(price, "cache_read_mtok"),
        cache_write=_rate(price, "cache_write_mtok"),
        requests=_rate(price, "requests_kcount"),
    )


def load_tables() -> "DataSnapshot":
    """The prices of all vendors; the first time they take a fifth of a second to load."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - most processes ask for no price

    return get_snapshot()


@lru_cache(maxsize=64)
def _may_be_listed(url: str) -> bool:
    """False for an address without a domain: such as localhost, or that of a machine, where no vendor serves."""
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return "." in host
    return False


def _rate(price: "ModelPrice", key: str) -> _Rate:
    rate: _Rate = price.__dict__.get(key)
    return rate


def _context(tier: str) -> dict[str, str]:
    return {"processing": "batch"} if tier == "batch" else {"service_tier": tier}
