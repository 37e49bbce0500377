"""The promise of ``calibrate --alpha``: of what words support, at most so many are false, or nothing is written."""

import pytest

from schemas.job import JobRequest
from tasks.calibration.guarantee import guarantee, labels_needed, tail
from tasks.calibration.recalibration import LabelledAnswer
from tasks.errors import InputError
from tasks.grounding.model import shipped

COPY = "The night desk of the harbour opens at nine in the evening."


def labels(right: int, wrong: int) -> list[LabelledAnswer]:
    """Claims that stand word for word in their source, of which a strict person accepts the first only."""
    return [
        LabelledAnswer(JobRequest(query="q", response=f"{COPY[:-1]} {at}.", context=[f"{COPY[:-1]} {at}."]), at < right)
        for at in range(right + wrong)
    ]


@pytest.mark.parametrize(("alpha", "needed"), [(0.05, 59), (0.1, 29), (0.01, 299)])
def test_so_many_supported_claims_are_the_fewest_that_can_promise_anything(alpha: float, needed: int) -> None:
    assert labels_needed(alpha) == needed
    assert tail(needed, 0, alpha) <= 0.05 < tail(needed - 1, 0, alpha)
    with pytest.raises(
        InputError, match=f"words support {needed - 1} of {needed - 1} labelled claims: at least {needed}"
    ):
        guarantee(labels(needed - 1, 0), alpha, "2026-11-26")


def test_enough_right_claims_keep_all_that_words_support() -> None:
    promised = guarantee(labels(120, 1), 0.05, "2026-11-26")
    assert (promised.supported, promised.wrong, promised.coverage) == (121, 1, 1.0)
    assert promised.calibration.supported_at == pytest.approx(shipped().supported_at, abs=0.0001)
    assert promised.calibration.knots == shipped().knots


def test_no_threshold_is_promised_where_the_surest_are_too_often_wrong() -> None:
    with pytest.raises(InputError, match=r"of 120 labelled claims that words support, 12 are false"):
        guarantee(labels(108, 12), 0.05, "2026-11-26")
