import pytest

from worker.limits.rates import LONGEST_PAUSE_S, read


def test_openai_names_its_limits_of_requests_and_of_all_tokens() -> None:
    limits = read({"X-RateLimit-Limit-Requests": "5000", "x-ratelimit-limit-tokens": "450000"})
    assert limits.limits == (5_000, 0, 0, 450_000)
    assert limits.pause_s == 0


def test_anthropic_names_input_and_output_apart() -> None:
    limits = read(
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-input-tokens-limit": "30000",
            "anthropic-ratelimit-output-tokens-limit": "8000",
        }
    )
    assert limits.limits == (50, 30_000, 8_000, 0)


@pytest.mark.parametrize(
    ("reset", "pause_s"),
    [
        ("12ms", 0.012),
        ("0m50s", 50),
        ("1.5s", 1.5),
        ("20", 20),
        ("2h", LONGEST_PAUSE_S),
        ("soon", 0),
        ("", 0),
        ("-3", 0),
    ],
)
def test_nothing_left_is_a_pause_until_the_reset(reset: str, pause_s: float) -> None:
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": reset}
    assert read(headers).pause_s == pytest.approx(pause_s)


def test_a_reset_may_be_a_moment_by_the_clock_of_the_provider() -> None:
    headers = {
        "date": "Sun, 22 Nov 2026 12:00:00 GMT",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-22T12:00:20Z",
    }
    assert read(headers).pause_s == 20


def test_something_left_is_no_pause_whatever_the_reset() -> None:
    headers = {"x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12ms"}
    assert read(headers) == read({})


@pytest.mark.parametrize("value", ["many", "nan", "-5", "inf", ""])
def test_malformed_headers_count_as_absent(value: str) -> None:
    assert read({"x-ratelimit-limit-requests": value}).limits == (0, 0, 0, 0)
