"""Calls that wait in a lane which this process can't look after: logged once a cause, and reported while they wait."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TypeVar

from schemas.failure import FailureKind
from tasks.errors import ConfigurationError

log = logging.getLogger(__name__)

Remote = TypeVar("Remote")

OVER_S = 300.0
"""Seconds without such calls after which none are reported: a batch is looked for again within five minutes."""

FORGET_S = 6 * 3_600.0
"""Seconds without them after which they are forgotten: each look goes to one of many workers, so one worker's next is long in coming."""


@dataclass(frozen=True, slots=True)
class UnservedCalls:
    """Calls to a provider that wait for a worker with other settings.

    Attributes:
        provider: its name.
        since_s: Unix time of the first look.
        why: the cause, which says what to do.
        lane: the lane in which they wait.
        kind: the cause as a failure.
    """

    provider: str
    since_s: float
    why: str
    lane: str
    kind: str = FailureKind.CONFIGURATION.value


@dataclass(slots=True)
class UnservedLane:
    """The providers whose waiting calls in one lane this process can't look after."""

    lane: str
    clock: Callable[[], float] = monotonic
    _calls: dict[str, tuple[UnservedCalls, float]] = field(default_factory=dict)
    """By provider, with the time of the last look."""
    _closed: set[str] = field(default_factory=set)

    @property
    def providers(self) -> Collection[str]:
        """The providers that could not be opened: other workers may, so what is due is theirs first."""
        return frozenset(self._closed)

    def open(
        self, provider: str, remote_of: Callable[[str], Remote | None], name: str, *, report: bool = True
    ) -> Remote | None:
        """The part of a provider that serves this lane; None, with a note if ``report``: it has none here."""
        why, remote = f"the provider {provider!r} has no {name} with these settings", None
        try:
            remote = remote_of(provider)
        except ConfigurationError as error:
            why = str(error)
        if remote is not None:
            self._closed.discard(provider)
            self.clear(provider)
            return remote
        self._closed.add(provider)
        if report:
            self.note(provider, why)
        return None

    def note(self, provider: str, why: str) -> None:
        """Notes that calls wait for a provider that can't be asked here; a new cause is logged."""
        self._forget()
        entry = self._calls.get(provider)
        if entry is None or entry[0].why != why:
            log.warning(
                "calls to %s wait in the lane %s, and this worker can't look after them: %s", provider, self.lane, why
            )
            entry = UnservedCalls(provider, time(), why, self.lane), 0.0
        self._calls[provider] = entry[0], self.clock()

    def clear(self, provider: str) -> None:
        """Notes that the calls of a provider are looked after."""
        if self._calls.pop(provider, None) is not None:
            log.info("the calls to %s in the lane %s are looked after again", provider, self.lane)

    def all(self) -> list[UnservedCalls]:
        """The calls that wait now, for operators; those that were not seen for a while are left out."""
        self._forget()
        return [calls for calls, at in self._calls.values() if self.clock() - at <= OVER_S]

    def _forget(self) -> None:
        for provider in [name for name, (_, at) in self._calls.items() if self.clock() - at > FORGET_S]:
            del self._calls[provider]
            log.info("no calls to %s wait in the lane %s any more", provider, self.lane)
