import pytest

from worker.limits.permit_queue import Estimate
from worker.limits.rates import rates_of
from worker.provider_settings import LimitSettings, ProviderKind, ProviderSettings
from worker.settings import Settings


def test_a_models_limits_go_before_its_providers_and_those_before_the_defaults() -> None:
    provider = ProviderSettings(
        kind=ProviderKind.OPENAI,
        limits=LimitSettings(input_tokens_per_minute=500, max_concurrency=7),
        model_limits={"big": LimitSettings(max_concurrency=2)},
    )
    settings = Settings(requests_per_minute=60, input_tokens_per_minute=100, providers={"p": provider})
    assert rates_of(settings, "other", "m").most == (60, 100, 0, 0)
    assert rates_of(settings, "p", "small").most == (60, 500, 0, 0)
    assert (rates_of(settings, "p", "small").concurrency, rates_of(settings, "p", "big").concurrency) == (7, 2)
    assert rates_of(settings, "p", "big").most == (60, 500, 0, 0)


def test_without_settings_nothing_is_limited() -> None:
    assert not rates_of(Settings(), "openai", "m").any


def test_an_estimate_is_what_calls_used_on_average() -> None:
    estimate = Estimate()
    assert (estimate.input_tokens(300), estimate.output_tokens(1_024)) == (100, 1_024)
    estimate.learn(400, 100, 50)
    assert (estimate.input_tokens(800), estimate.output_tokens(1_024)) == (200, 50)
    estimate.learn(400, 200, 150)
    assert (estimate.input_tokens(400), estimate.output_tokens(1_024)) == pytest.approx((110, 60))
    assert estimate.output_tokens(40) == 40
    estimate.learn(0, 0, 0)
    assert estimate.input_tokens(400) == pytest.approx(110)
