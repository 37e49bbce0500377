"""The pure parts of the adapters: masking, prices, citable pieces, strict schemas, and what models take."""

from decimal import Decimal
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from schemas.model_call import Usage
from tasks.prompting.messages import ANSWER_SCHEMA
from worker.providers.anthropic import pieces
from worker.providers.failures import mask, retry_after_s
from worker.providers.openai import is_strict
from worker.providers.prices import Prices
from worker.providers.vendor_models import DEFAULT_MODELS, why_no_sampling
from worker.providers.whole_calls import KEPT_S, POOL

SECRET = "abcdefghijklmnopqrst"
OPENAI = Prices("openai", "https://api.openai.com/v1")


@given(st.text(), st.integers(0, 12), st.integers(8, 20), st.text())
def test_no_part_of_a_secret_of_eight_characters_stays(before: str, start: int, length: int, after: str) -> None:
    part = SECRET[start : start + length]
    masked = mask(f"{before}{part}{after}", [SECRET])
    assert not any(SECRET[at : at + 8] in masked for at in range(len(SECRET) - 7))


@pytest.mark.parametrize("key", ["sk-proj-****wxyz", "sk-ant-api03-abc", "Bearer something", "short"])
def test_short_secrets_and_texts_like_keys_are_redacted(key: str) -> None:
    assert mask(f"provided: {key} here", ["short"]) == "provided: [masked] here"


@given(st.text(alphabet="ab .!?\n\t。Ä", max_size=400))
def test_pieces_join_to_the_source_and_each_has_words(text: str) -> None:
    chunks = pieces(text)
    assert "".join(chunks) == text
    assert not text.strip() or all(piece.strip() for piece in chunks)


def test_default_models_have_prices() -> None:
    for vendor, model in DEFAULT_MODELS.items():
        prices = Prices(vendor.replace("_", "-"), "")  # type: ignore[arg-type]
        assert prices.cost_usd(model, model, Usage(input_tokens=1000, output_tokens=100), None)


def test_a_dated_name_of_the_model_asked_for_costs_the_same() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    for returned in ("gpt-5.4-mini", "gpt-5.4-mini-2026-03-17", "gpt-5.4-mini-2099-01-01"):
        assert OPENAI.cost_usd("gpt-5.4-mini", returned, usage, "default") == Decimal("0.75")


def test_tiers_and_long_prompts_have_their_own_price() -> None:
    short, long = Usage(input_tokens=100_000), Usage(input_tokens=300_000)
    prices = [OPENAI.cost_usd("gpt-6-luna", None, usage, tier) for usage in (short, long) for tier in (None, "flex")]
    assert prices == [Decimal("0.01"), Decimal("0.005"), Decimal("0.06"), Decimal("0.03")]


def test_a_server_of_ones_own_has_no_price() -> None:
    usage = Usage(input_tokens=10)
    assert Prices(None, "http://127.0.0.1:8000/v1").cost_usd("gpt-6-luna", None, usage, None) is None
    assert Prices(None, "http://127.0.0.1:8000/v1").reserve_usd("gpt-6-luna", 10, 10, None) is None
    assert Prices(None, "https://api.groq.com/openai/v1").cost_usd("llama-3.3-70b-versatile", None, usage, None)


@given(st.integers(1, 200_000), st.integers(1, 20_000), st.integers(0, 100), st.integers(0, 100))
def test_no_call_costs_more_than_its_reserve(size: int, most: int, cached: int, cache_writes: int) -> None:
    tokens = -(-size // 2)
    usage = Usage(
        input_tokens=tokens,
        output_tokens=most,
        cached_input_tokens=tokens * cached // 300,
        cache_write_tokens=tokens * cache_writes // 300,
    )
    cost, reserve = OPENAI.cost_usd("gpt-6-luna", None, usage, None), OPENAI.reserve_usd("gpt-6-luna", size, most, None)
    assert cost is not None
    assert reserve is not None
    assert cost <= reserve


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (ANSWER_SCHEMA, True),
        ({"type": "string"}, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object"}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, False),
    ],
)
def test_a_schema_becomes_strict_where_possible(schema: Any, expected: bool) -> None:  # noqa: FBT001 - an expectation
    assert is_strict(schema) is expected


@pytest.mark.parametrize(
    ("model", "effort", "accepts"),
    [
        ("gpt-6-luna", None, False),
        ("gpt-6-luna", "none", True),
        ("gpt-5.6-terra", "low", False),
        ("gpt-5-mini", "none", False),
        ("o3", None, False),
        ("gpt-4.1-mini", None, True),
        ("of-ones-own", None, True),
        ("gpt-oss-120b", None, True),
    ],
)
def test_the_temperature_is_sent_only_to_models_that_accept_it(model: str, effort: str | None, accepts: bool) -> None:  # noqa: FBT001 - an expectation
    assert (why_no_sampling(model, effort) is None) is accepts


def test_a_retry_date_in_the_past_means_no_wait() -> None:
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_s({"retry-after": "Wed, 99 Oct 2015"}) is None


def test_a_free_connection_is_given_up_before_its_server_closes_it() -> None:
    assert POOL.keepalive_expiry == KEPT_S <= uvicorn.Config("any:app").timeout_keep_alive - 1
