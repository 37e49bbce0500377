"""Errors pass between processes as they are."""

import pickle
from uuid import uuid4

import pytest

from schemas.failure import FailureKind
from tasks import errors
from tasks.errors import NightdeskError
from tasks.ports import Refused

EXAMPLES = [
    errors.InputError("must be a string", field="query"),
    errors.IdempotencyConflict("was used before", field="key"),
    errors.JobsRefused([Refused(3, "query: must be a string", "query", "c3", "line 4")]),
    errors.QueueFull("acme", 10, 7),
    errors.KeyLimitReached("intake", "10 jobs a day", 3_600),
    errors.NotFound(f"no job {uuid4()}"),
    errors.LedgerUnavailable("away"),
    errors.ProviderError(FailureKind.RATE_LIMITED, "slow down", status_code=429, retry_after_s=3),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: NightdeskError) -> None:
    received = pickle.loads(pickle.dumps(error))

    assert type(received) is type(error)
    assert str(received) == str(error)
    assert vars(received) == vars(error)
