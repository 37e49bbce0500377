"""The life of a job as a table: groups partition the states, and every verb of the table is a verb of the ledger."""

from schemas.states import FINAL_STATES, TRANSITIONS, JobState
from worker.ledger.actions import PostgresActions
from worker.ledger.answer_cache import PostgresAnswerCache
from worker.ledger.attempts import PostgresAttempts
from worker.ledger.duties import PostgresDuties
from worker.ledger.queue import PostgresQueue
from worker.ledger.submission import PostgresSubmission

STORES = (PostgresActions, PostgresAnswerCache, PostgresAttempts, PostgresDuties, PostgresQueue, PostgresSubmission)


def test_only_an_operator_moves_a_job_from_a_final_state() -> None:
    verbs = [verbs for (old, _), verbs in TRANSITIONS.items() if old in FINAL_STATES]
    assert frozenset().union(*verbs) == {"retry", "recheck"}


def test_every_active_state_can_be_cancelled_and_can_expire() -> None:
    for state in set(JobState) - FINAL_STATES:
        assert "cancel" in TRANSITIONS[state, JobState.CANCELLED]
        assert "expire" in TRANSITIONS[state, JobState.EXPIRED]


def test_every_state_has_a_transition_in_and_out() -> None:
    assert {new for _, new in TRANSITIONS} | {JobState.AVAILABLE} == set(JobState)
    assert {old for old, _ in TRANSITIONS} == set(JobState)


def test_the_verbs_are_those_of_the_ledger() -> None:
    # Parking is a verb of the store of provider batches; a hold is written with the batch's pause.
    verbs = set().union(*TRANSITIONS.values()) - {"park", "hold"}

    assert [verb for verb in sorted(verbs) if not any(hasattr(store, verb) for store in STORES)] == []
