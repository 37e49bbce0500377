"""Callers of the HTTP service while no key exists: who is local, and how a ledger that hangs is asked."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from fastapi import Request

from schemas.access import Role
from tasks.errors import LedgerUnavailable
from worker.http import authentication
from worker.http.authentication import Access, require_local
from worker.http.problems import Problem
from worker.ledger.database import Database
from worker.ledger.stored_keys import ApiKey, ApiKeys, Use
from worker.operations.api_keys import hash_of


class LostKeys(ApiKeys):
    """One key in a ledger that can be lost."""

    def __init__(self) -> None:
        super().__init__(Database("postgresql://nobody@127.0.0.1:1/none"))
        self.is_lost = False
        self.key: ApiKey | None = ApiKey(
            uuid4(), "scraper", "default", Role.METRICS, *[None] * 5, datetime.now(UTC), "ada", *[None] * 6
        )

    async def exist(self) -> bool:
        return await self.by_hash(hash_of("ndk_known")) is not None

    async def by_hash(self, key_hash: bytes) -> Use | None:
        if self.is_lost:
            raise LedgerUnavailable("the ledger is away")
        return Use(self.key) if self.key and key_hash == hash_of("ndk_known") else None

    async def note_use(self, use: Use) -> None:
        if self.is_lost:
            raise LedgerUnavailable("the ledger is away")


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at keys are good for no time, so that each call asks the ledger."""
    monkeypatch.setattr(authentication, "VALID_S", -1.0)


@pytest.mark.usefixtures("no_wait")
async def test_without_the_ledger_a_scraper_is_let_in_that_was_let_in_before() -> None:
    keys = LostKeys()
    access = Access(keys, "default", loopback=False)
    scraper, other = (request("desk", authorization=f"Bearer ndk_{name}") for name in ("known", "other"))
    keys.is_lost = True
    with pytest.raises(LedgerUnavailable):
        await access.caller_as_known(scraper)
    keys.is_lost = False
    assert (await access.caller_as_known(scraper)).name == "scraper"
    keys.is_lost = True
    assert (await access.caller_as_known(scraper)).role is Role.METRICS
    with pytest.raises(LedgerUnavailable):
        await access.caller_as_known(other)
    with pytest.raises(Problem):
        await access.caller_as_known(request("desk"))
    with pytest.raises(LedgerUnavailable):
        await access.caller(scraper)
    access._answered_at += authentication.KNOWN_S
    with pytest.raises(LedgerUnavailable):
        await access.caller_as_known(scraper)
    keys.is_lost, keys.key = False, None
    with pytest.raises(Problem):
        await access.caller_as_known(scraper)
    keys.is_lost = True
    with pytest.raises(LedgerUnavailable):
        await access.caller_as_known(scraper)


@pytest.mark.usefixtures("no_wait")
async def test_without_keys_and_ledger_only_this_machine_is_let_in() -> None:
    keys = LostKeys()
    keys.key = None
    access = Access(keys, "default", loopback=True)
    keys.is_lost = True
    assert (await access.caller_as_known(request("localhost"))).name == "local"
    for stranger in (request("evil.com"), request("localhost", origin="http://evil.example")):
        with pytest.raises(Problem):
            await access.caller_as_known(stranger)


def request(*hosts: str, **headers: str) -> Request:
    """A request with headers as they came over the wire."""
    pairs = [("host", host) for host in hosts] + list(headers.items())
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    scope = {
        "type": "http", "scheme": "http", "method": "GET", "path": "/v1/batches", "query_string": b"",
        "server": ("127.0.0.1", 8080), "headers": raw,
    }  # fmt: skip
    return Request(scope)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]"])
def test_a_loopback_host_may_call_without_a_key(host: str) -> None:
    require_local(request(host))
    require_local(request(host, origin=f"http://{host}"))
    with pytest.raises(Problem) as refused:
        require_local(request(host, origin="http://evil.example"))
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "hosts",
    [
        (), ("",), ("[",), ("[]",), ("localhost@evil.com",), ("evil.com:",), ("evil.com",), ("localhost:",),
        ("localhost/evil.com",), ("localhost evil.com",), ("localhost\n",), ("::1",), ("[::1",), ("127.0.0.1.evil.com",),
        ("localhost", "evil.com"), ("localhost", "localhost"),
    ],
)  # fmt: skip
def test_a_host_that_is_not_surely_loopback_is_refused(hosts: tuple[str, ...]) -> None:
    with pytest.raises(Problem) as refused:
        require_local(request(*hosts))
    assert refused.value.status == 421
