"""The remedy for failed jobs is a command that runs them again, or the one that gives them back as input."""

from uuid import UUID

import pytest

from schemas.failure import FailureKind as K
from worker.operations.overview import remedy

BATCH = UUID(int=7)


@pytest.mark.parametrize("kind", [kind for kind in K if kind is not K.INTERNAL])
def test_each_cause_but_a_defect_names_retry(kind: K) -> None:
    assert f"nightdesk retry {BATCH} --cause {kind.value}" in remedy(BATCH, kind)


@pytest.mark.parametrize("kind", [K.INVALID_REQUEST, K.CONTEXT_EXCEEDED, K.NOT_FOUND])
def test_jobs_that_need_a_change_come_back_as_input(kind: K) -> None:
    assert f"nightdesk results {BATCH} --failed -o failed.jsonl" in remedy(BATCH, kind)
