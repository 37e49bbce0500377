"""Parsing of ages, and the selection that must be explicit before a removal."""

from datetime import timedelta

import pytest

from tasks.errors import InputError
from worker.cli.commands.removal_commands import erase, prune
from worker.cli.options import age


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90d", timedelta(days=90)),
        ("12w", timedelta(weeks=12)),
        ("36h", timedelta(hours=36)),
        (" 30m ", timedelta(minutes=30)),
        ("0s", timedelta(0)),
    ],
)
def test_an_age_is_a_number_with_its_unit(text: str, expected: timedelta) -> None:
    assert age(text) == expected


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5d", "90 days", "1y", "9999999d"])
def test_an_invalid_age_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="90d, 12w, 36h"):
        age(text)


def test_erase_takes_exactly_one_selection() -> None:
    with pytest.raises(InputError, match="give one of"):
        erase()
    with pytest.raises(InputError, match="give one of"):
        erase(job=["019a0000-0000-7000-8000-000000000000"], tenant="a")
    with pytest.raises(InputError, match="not a job id"):
        erase(job=["first"])


def test_prune_takes_a_batch_or_a_tenant_but_not_both() -> None:
    with pytest.raises(InputError, match="not both"):
        prune(older_than="1d", batch="019a0000-0000-7000-8000-000000000000", tenant="a")
