"""An operator releases held jobs: what the order names goes on, and nothing else, here or in other batches."""

from uuid import UUID

import pytest

from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System, questions

REASONS = ["budget", "key_budget", "lane_paused", "price_unknown", "tenant_budget", "unknown_outcome"]

HOLD = """
    UPDATE job SET state = 'scheduled', held_reason = (%s::text[])[position + 1] WHERE batch_id = %s RETURNING held_reason
"""
PAUSE_LANE = """
    INSERT INTO lane_pause (provider, lane, model, kind, why) VALUES ('openai', 'standard', '', 'quota', 'no money')
    RETURNING provider
"""


@pytest.fixture
def batches(system: System) -> list[UUID]:
    """Two batches, each with a job for each reason of a hold, while a lane is paused."""
    ids = [system.submit(questions(len(REASONS)))[0] for _ in range(2)]
    for batch_id in ids:
        assert len(system.rows(HOLD, REASONS, batch_id)) == len(REASONS)
    assert system.rows(PAUSE_LANE)
    return ids


def release(system: System, *arguments: object) -> Ended:
    done = run_here(["release", *map(str, arguments)], system.environment())
    assert done.code == 0, done.err
    return done


def holds(system: System, batch_id: UUID) -> list[str]:
    statement = "SELECT held_reason FROM job WHERE batch_id = %s AND held_reason IS NOT NULL ORDER BY position"
    return [reason for (reason,) in system.rows(statement, batch_id)]


def lanes(system: System) -> int:
    return int(system.scalar("SELECT count(*) FROM lane_pause"))


def test_a_new_ceiling_releases_what_the_ceiling_held_alone(system: System, batches: list[UUID]) -> None:
    first, second = batches
    paused = system.rows("UPDATE batch SET paused = true WHERE id = %s RETURNING id", first)
    done = release(system, first, "--max-cost-usd", "5")
    assert "the batch's ceiling is 5 USD now" in done.err
    # In a batch that is paused a job goes on only when the batch does.
    assert holds(system, first) == ["batch_paused", *REASONS[1:]]
    assert system.rows("SELECT id FROM batch WHERE paused") == paused
    assert (holds(system, second), lanes(system)) == (REASONS, 1)


def test_a_release_without_a_reason_pays_nothing_twice_and_touches_no_other_batch(
    system: System, batches: list[UUID]
) -> None:
    first, second = batches
    done = release(system, first)
    assert "4 jobs released" in done.err
    assert holds(system, first) == ["lane_paused", "unknown_outcome"]
    # What still waits is told, with its command.
    assert f"nightdesk release {first} --reason lane_paused" in done.err
    assert f"nightdesk release {first} --reason unknown_outcome" in done.err
    assert (holds(system, second), lanes(system)) == (REASONS, 1)

    release(system, first, "--reason", "unknown_outcome")
    assert holds(system, first) == ["lane_paused"]
