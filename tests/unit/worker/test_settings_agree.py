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


def test_batches_are_kept_longer_than_their_rows() -> None:
    settings = Settings(prune_rows_after_days=7, prune_batches_after_days=30, check_processes=3)
    assert settings.prune_rows_after is not None
    assert settings.prune_batches_after is not None
    assert settings.prune_batches_after > settings.prune_rows_after
    assert settings.check_processes == 3
