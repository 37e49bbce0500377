"""Opens what a command works with: servers, schema, workers; closes what it opened, unless others still use it."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tasks.errors import NotFound
from worker import local
from worker.cli.crew import Crew, Hand, Post, checking_posts, crew_of, crews_in, local_processes, posts
from worker.cli.exits import WorkerFailed
from worker.cli.messages import tell, warn
from worker.cli.place import Place
from worker.ledger.database import STATEMENT_S
from worker.ledger.migrate import migrate
from worker.ledger.postgres import PostgresLedger
from worker.local.process import send_signal
from worker.settings import Settings
from worker.wiring import Endpoints, embedded, endpoints

STOP_MARGIN_S = 10.0
"""Seconds a worker may take to end beyond what its calls in flight may."""

QUIET_STOP_S = 3.0
"""Seconds of waiting for workers to end that need no word."""


@dataclass(slots=True)
class Session:
    """What runs while a command works."""

    settings: Settings
    place: Place
    where: Endpoints
    crew: Crew
    migrated: tuple[str | None, str] | None = None
    """The schema's revision before and after, when this session brought it up to date."""

    def ledger(self, *, statement_s: float = STATEMENT_S) -> PostgresLedger:
        """A ledger to be opened on the loop that uses it."""
        return PostgresLedger(self.where.database_url, statement_s=statement_s)

    def restart_servers(self) -> None:
        """Start embedded servers that died; raises ``LocalServerError``."""
        if embedded(self.settings):
            endpoints(self.settings)

    def staff(self, wanted: Iterable[Post], *, passing: bool) -> list[Post]:
        """Start the workers that are missing; returns those started."""
        return [post for post in wanted if self.crew.start(post, passing=passing)]

    def staff_if_missing(self, *, check_only: bool = False) -> list[Post]:
        """Start workers for as long as this command lasts, unless each step has one already."""
        running = self.crew.running().values()
        if any(hand.settings != self.crew.fingerprint for hand in running):
            warn(
                "the workers that run were started with other settings, and keep them; "
                "'nightdesk down' and 'nightdesk up' apply the present ones"
            )
        local = local_processes(self.settings)
        needed = {"check"} | (set() if check_only else {"generate"}) | ({"local"} if local else set())
        if needed <= {queue for hand in running for queue in hand.post.queues}:
            return []
        return self.staff(checking_posts(local=local) if check_only else posts(local=local), passing=True)


def place_of(settings: Settings) -> Place:
    """The home of these settings."""
    return Place(settings.home.expanduser().absolute())


@contextmanager
def session(settings: Settings, *, writes: bool = True, staffs: bool = False, stays: bool = False) -> Iterator[Session]:
    """Hold a home's servers open.

    Args:
        settings: name the servers, or let them be the embedded ones.
        writes: bring the schema up to date, and make a home that isn't there. A command that only reads leaves both.
        staffs: the command may start workers.
        stays: what is started stays when the command ends; else the last command that uses it stops it.

    Raises: ConfigurationError, LedgerUnavailable, SchemaMismatch, LocalServerError, NotFound.
    """
    place = place_of(settings)
    ours = embedded(settings)
    if ours and not writes and not place.has_servers:
        raise NotFound(
            f"there is no ledger in {place.root} yet: 'nightdesk run' or 'up' makes one (see NIGHTDESK_HOME)"
        )
    # With servers of somebody else's, a command that starts nothing needs no home: it may have nowhere to write.
    with _held(settings, place) if ours or staffs else nullcontext():
        where = endpoints(settings)
        if ours and stays:
            place.mark_servers(passing=False)
        elif where.started == {"postgres", "valkey"}:
            # One server alone that was started again belongs to whoever has the other running.
            place.mark_servers(passing=True)
        migrated = migrate(where.database_url) if writes or where.started else None
        opened = Session(settings, place, where, crew_of(settings, place), migrated)
        if stays:
            opened.crew.keep()
        yield opened


@contextmanager
def _held(settings: Settings, place: Place) -> Iterator[None]:
    """Use a home; the last user stops what was started for passing commands."""
    place.create()
    with place.used() as use:
        try:
            yield
        finally:
            if use.is_last():
                _close(settings, place)


def _close(settings: Settings, place: Place) -> None:
    for crew in crews_in(place):
        passing = [hand.post.name for hand in crew.running().values() if hand.passing]
        stop_workers(crew, passing, settings)
    if place.servers_are_passing:
        local.stop(place.root)
        place.mark_servers(passing=False)


def stop_workers(crew: Crew, names: list[str], settings: Settings) -> None:
    """Stop workers once their calls in flight have ended; Ctrl-C, or too long a wait, cuts those off."""
    asked = crew.ask_to_end(names)
    try:
        left = crew.await_end(asked, QUIET_STOP_S)
        if left:
            tell(f"waiting for the calls in flight of {_named(left)}; Ctrl-C cuts them off")
            left = crew.await_end(left, settings.drain_s + STOP_MARGIN_S)
    except KeyboardInterrupt:
        tell("cutting off the calls in flight")
        left = crew.await_end(asked, 0)
    for hand in left:
        send_signal(hand.process, signal.SIGKILL)
    killed, left = left, crew.await_end(left, STOP_MARGIN_S)
    if killed:
        warn(f"{_named(killed)} had to be killed: calls in flight count as unknown, their jobs go on in a minute")
    if left:
        raise WorkerFailed(f"{_named(left)} can't be killed")


def _named(hands: list[Hand]) -> str:
    return ", ".join(f"{hand.post.name} (process {hand.pid})" for hand in hands)
