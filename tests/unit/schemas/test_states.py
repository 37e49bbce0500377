"""The life of a job as a table."""

from schemas.states import FINAL_STATES, TRANSITIONS, JobState


def test_a_job_can_be_cancelled_and_can_expire_until_it_is_final_and_then_only_run_again() -> None:
    for state, following in TRANSITIONS.items():
        ends = {JobState.CANCELLED, JobState.EXPIRED}
        assert following == {JobState.SCHEDULED} if state in FINAL_STATES else ends <= following
    assert TRANSITIONS.keys() == set(JobState)
