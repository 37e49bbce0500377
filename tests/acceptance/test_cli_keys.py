"""The operator makes, lists and revokes keys, and can't open a service to other machines without one."""

from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System


def test_keys_are_made_listed_and_revoked(system: System) -> None:
    def nightdesk(*arguments: str) -> Ended:
        return run_here(arguments, system.environment())

    refused = nightdesk("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.code, refused.out) == (2, "")
    assert "make one with 'nightdesk keys add NAME'" in refused.err
    assert "there are no keys" in nightdesk("keys", "list").err

    for limit in (("--max-cost-usd", "5"), ("--jobs-per-day", "9")):
        poor = nightdesk("keys", "add", "poor", *limit)
        assert (poor.code, poor.out, "the role read submits no jobs" in poor.err) == (2, "", True), poor.err
    assert "there are no keys" in nightdesk("keys", "list").err

    added = nightdesk("keys", "add", "intake", "--role", "submit", "--tenant", "acme", "--requests-per-minute", "600")
    assert added.code == 0, added.err
    secret = added.out.strip()
    assert secret.startswith("ndk_")
    assert secret not in added.err
    again = nightdesk("keys", "add", "intake")
    assert (again.code, again.out) == (2, "")
    assert "there is a key 'intake' already" in again.err
    assert nightdesk("keys", "add", "bad name").code == nightdesk("keys", "revoke").code == 2

    listed = nightdesk("keys", "list").out
    assert listed.split() == ["intake", "submit", "acme", "valid", *"at most 600 requests per minute".split()]
    limited = nightdesk("keys", "limit", "intake", "--jobs-per-day", "5000", "--requests-per-minute", "0")
    assert (limited.code, "at most 5,000 jobs per day" in limited.out) == (0, True)
    money = nightdesk("keys", "limit", "intake", "--max-cost-usd", "200", "--max-cost-usd-per-day", "7.50")
    assert "acme, key intake, day UTC: 0 USD of 7.5 USD spent" in money.out
    assert "acme, key intake, total: 0 USD of 200 USD spent" in money.out
    wrong = nightdesk("keys", "limit", "intake", "--max-cost-usd", "much")
    assert (wrong.code, "--max-cost-usd: 'much' is no amount" in wrong.err) == (2, True)
    assert "acme, key intake, total: 0 USD of 200 USD spent" in nightdesk("budget", "list").out
    assert nightdesk("keys", "revoke", "intake").code == 0
    assert nightdesk("keys", "revoke", "intake").code == 2
    (key,) = nightdesk("keys", "list", "--json").json()
    assert key["revoked_by"].startswith("cli:")
    assert secret not in nightdesk("keys", "list", "--json").out


def test_keys_expire_and_rotate(system: System) -> None:
    def nightdesk(*arguments: str) -> Ended:
        return run_here(arguments, system.environment())

    added = nightdesk("keys", "add", "month", "--expires", "30d")
    assert (added.code, "valid until 20" in added.err) == (0, True)
    rotated = nightdesk("keys", "rotate", "month", "--expires", "60d", "--overlap", "2h")
    assert (rotated.code, "the secret before until 20" in rotated.err) == (0, True)
    assert rotated.out.strip() not in {"", added.out.strip()}
    listed = nightdesk("keys", "list").out
    assert "valid until 20" in listed
    assert "the secret before until 20" in listed
    assert "last used never" in listed
    for wrong in (("add", "b", "--expires", "soon"), ("add", "b", "--expires", "0s"), ("rotate", "nobody")):
        refused = nightdesk("keys", *wrong)
        assert (refused.code, refused.out) == (2, ""), wrong
