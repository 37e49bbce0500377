"""The watchdog trusts a consumer that reads, and pings one that does not."""

from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from worker.process.intake import GuardedChannel, GuardedTransport, consumer_reads
from worker.process.main import WATCH_EVERY_S, Watchdog


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    replies: dict[str, float] = {}
    monkeypatch.setattr(GuardedChannel, "replies", replies)
    return replies


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    pings: list[dict[str, Any]] = []

    def ping(_: object, **options: Any) -> list[Any]:
        pings.append(options)
        return []

    monkeypatch.setattr("celery.app.control.Control.ping", ping)
    return pings


@pytest.mark.parametrize("silent", ["queues", "control"])
def test_a_consumer_with_one_silent_connection_does_not_read(replies: dict[str, float], silent: str) -> None:
    replies.update(queues=monotonic(), control=monotonic())
    assert consumer_reads(WATCH_EVERY_S)
    replies[silent] -= WATCH_EVERY_S
    assert not consumer_reads(WATCH_EVERY_S)
    del replies[silent]
    assert not consumer_reads(WATCH_EVERY_S)


def test_only_a_consumer_that_does_not_read_is_pinged(replies: dict[str, float], pings: list[dict[str, Any]]) -> None:
    watchdog = Watchdog(Celery(set_as_current=False), "redis://127.0.0.1:1/0", "nightdesk@here")
    replies.update(queues=monotonic(), control=monotonic())
    assert watchdog._listens()
    assert pings == []
    replies.clear()
    assert not watchdog._listens()
    assert [ping["destination"] for ping in pings] == [["nightdesk@here"]]


def test_a_channel_of_a_closed_connection_has_lost_it() -> None:
    channel = GuardedChannel.__new__(GuardedChannel)
    channel.connection = SimpleNamespace(client=None)
    with pytest.raises(GuardedTransport.connection_errors, match="was closed"):
        channel._connparams(asynchronous=True)
