"""The remedy for failed jobs is a command that runs them again, or the correction of their lines."""

from uuid import UUID

import pytest

from schemas.failure import FailureKind as K
from worker.operations.overview import remedy

BATCH = UUID(int=7)


@pytest.mark.parametrize("kind", [kind for kind in K if kind is not K.INTERNAL])
def test_each_cause_but_a_defect_names_retry(kind: K) -> None:
    assert f"nightdesk retry {BATCH} --cause {kind.value}" in remedy(BATCH, kind)


@pytest.mark.parametrize("kind", [K.INVALID_REQUEST, K.CONTEXT_EXCEEDED, K.NOT_FOUND])
def test_jobs_that_need_a_change_are_corrected_in_their_file(kind: K) -> None:
    assert "correct the lines in their file and run it again" in remedy(BATCH, kind)
