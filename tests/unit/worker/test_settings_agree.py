"""Settings that must agree with one another, and their bounds."""

from typing import Any

import pytest
from pydantic import ValidationError

from worker.settings import Settings


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prune_batches_after_days": 30}, "needs prune_rows_after_days"),
        ({"prune_rows_after_days": 30, "prune_batches_after_days": 7}, "at least as many days"),
        ({"check_processes": 0}, "greater than or equal to 1"),
    ],
)
def test_a_setting_that_can_not_hold_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Settings(**changes)


@pytest.mark.parametrize("name", sorted(name for name in Settings.model_fields if name.endswith(("_s", "_days"))))
@pytest.mark.parametrize("value", ["1e300", "inf"])
def test_a_time_that_no_clock_holds_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"NIGHTDESK_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REQUESTS_PER_MINUTE", "inf"),
        ("TENANT_SHARES", '{"acme": Infinity}'),
        ("PROMPTS", '{"grounded": {"1": Infinity}}'),
        ("PROVIDERS", '{"openai": {"limits": {"requests_per_minute": Infinity}}}'),
    ],
)
def test_a_rate_or_weight_without_end_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"NIGHTDESK_{name}", value)
    with pytest.raises(ValidationError, match="finite"):
        Settings()


def test_batches_are_kept_longer_than_their_rows() -> None:
    settings = Settings(prune_rows_after_days=7, prune_batches_after_days=30, check_processes=3)
    assert settings.prune_rows_after is not None
    assert settings.prune_batches_after is not None
    assert settings.prune_batches_after > settings.prune_rows_after
    assert settings.check_processes == 3
