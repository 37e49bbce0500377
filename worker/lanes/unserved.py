"""Calls that wait in a lane which this process can't look after: logged once a cause, and reported while they wait."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TypeVar

from schemas.failure import FailureKind
from tasks.errors import ConfigurationError

log = logging.getLogger(__name__)

Remote = TypeVar("Remote")

OVER_S = 300.0
"""Seconds without such calls after which none are reported: a batch is looked for again within five minutes."""


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
    closed: set[str] = field(default_factory=set)
    """The providers that could not be opened: other workers may, so what is due is theirs first."""
    _calls: dict[str, tuple[UnservedCalls, float]] = field(default_factory=dict)
    """By provider, with the time of the last look."""

    def open(
        self, provider: str, remote_of: Callable[[str], Remote | None], name: str, *, report: bool = True
    ) -> Remote | None:
        """The part of a provider that serves this lane; None, logged and reported if ``report``: it has none here."""
        why, remote = f"the provider {provider!r} has no {name} with these settings", None
        try:
            remote = remote_of(provider)
        except ConfigurationError as error:
            why = str(error)
        if remote is not None:
            self.closed.discard(provider)
            self._calls.pop(provider, None)
            return remote
        self.closed.add(provider)
        if report:
            calls, _ = self._calls.get(provider, (None, 0.0))
            if calls is None or calls.why != why:
                log.warning(
                    "calls to %s wait in the lane %s, and this worker can't look after them: %s",
                    provider,
                    self.lane,
                    why,
                )
                calls = UnservedCalls(provider, time(), why, self.lane)
            self._calls[provider] = calls, monotonic()
        return None

    def all(self) -> list[UnservedCalls]:
        """The calls that wait now, for operators; those that were not seen for a while are left out."""
        return [calls for calls, at in self._calls.values() if monotonic() - at <= OVER_S]
