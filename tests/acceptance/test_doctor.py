"""The doctor of the command line, over workers that come and die."""

from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System


def doctor(system: System, *options: str) -> Ended:
    return run_here(["doctor", *options], system.environment())


def checks(system: System) -> list[str]:
    return [finding["check"] for finding in doctor(system, "--json").json()["findings"]]


def test_an_unreachable_ledger_ends_with_its_own_code(system: System) -> None:
    system.database_url = "postgresql://someone:s3cret-canary@127.0.0.1:1/nowhere"
    done = doctor(system)
    assert done.code == 3
    assert "can't be reached" in done.out
    assert "s3cret-canary" not in done.out + done.err
    assert "Traceback" not in done.err
