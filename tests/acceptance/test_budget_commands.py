"""An operator bounds a tenant's day; the jobs that meet the end of the money say why they wait, and go on when it is raised."""

from decimal import Decimal

from schemas.states import Step
from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System, questions
from tests.builders import make_attempt
from tests.contract.situations import LEASE
from worker.ledger.postgres import PostgresLedger


def test_a_budget_is_set_met_and_raised(system: System) -> None:
    def nightdesk(*arguments: str) -> Ended:
        return run_here(arguments, system.environment())

    assert "there are no budgets" in nightdesk("budget", "list").err
    wrong = [
        nightdesk("budget", "set", "tonight", "5"),
        nightdesk("budget", "set", "day UTC"),
        nightdesk("budget", "remove"),
    ]
    assert [each.code for each in wrong] == [2, 2, 2]
    assert "'tonight' is no period: give 'day Europe/Berlin', or hours" in wrong[0].err
    listed = nightdesk("budget", "set", "day  Europe/Berlin", "0.30")
    assert listed.out.startswith("default, day Europe/Berlin: 0 USD of 0.3 USD spent, next period from 20"), listed.err

    batch_id, _ = system.submit(questions(3))
    system.with_ledger(call_all)

    status = " ".join(nightdesk("status", str(batch_id)).out.split())
    assert "the tenant default has a budget of 0.3 USD for 'day Europe/Berlin' and no room in it" in status
    assert "0.25 USD reserved for calls under way): its jobs go on by themselves, at the latest on 20" in status
    assert "nightdesk budget set 'day Europe/Berlin' USD --tenant default" in status
    assert "2 jobs of the tenant held for money" in nightdesk("budget", "list", "--tenant", "default").out

    nightdesk("budget", "set", "day Europe/Berlin", "20")
    assert system.scalar("SELECT count(*) FROM job WHERE state = 'available'") == 2
    assert nightdesk("budget", "remove", "day Europe/Berlin").code == 0
    assert nightdesk("budget", "remove", "day Europe/Berlin").code == 2


async def call_all(ledger: PostgresLedger) -> None:
    """A worker's calls, each of which may cost 25 cents."""
    leased = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 10)
    await ledger.attempts.open_attempts([make_attempt(job, reserved_usd=Decimal("0.25")) for job in leased])
