"""``nightdesk up``: servers and workers that stay."""

import time
from typing import Annotated, Any

import typer

from worker.cli import options
from worker.cli.crew import Crew, Post, local_processes, posts
from worker.cli.messages import tell, warn
from worker.cli.output import write_json
from worker.cli.session import Session, session, stop_workers
from worker.settings import load_settings

READY_S = 30.0
"""Seconds a worker may take until it listens; slower is told, not a failure."""

LOOK_EVERY_S = 1.0
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
"""Pause before a worker that ended is started again; doubles each time, and begins anew once it has lived as long."""


def command(
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            help="Worker processes, but for those of the local model; default: one per core, at least two.",
        ),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, start again what ends, and stop everything on SIGTERM.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Start the embedded servers and the workers in the background, and bring the schema up to date.

    Calling it again starts what is missing or has ended. One worker makes the provider calls, the others check;
    where NIGHTDESK_LOCAL_MODEL is set, NIGHTDESK_LOCAL_MODEL_PROCESSES more run the model.
    'nightdesk down' stops everything.
    """
    settings = load_settings()
    wanted = posts(workers, local=local_processes(settings))
    with session(settings, staffs=True, stays=not foreground) as desk:
        ended = desk.crew.ended()
        desk.crew.clear()
        if workers is not None:
            surplus = desk.crew.running().keys() - {post.name for post in wanted}
            stop_workers(desk.crew, sorted(surplus), settings)
        started = desk.staff(wanted, passing=foreground)
        late = desk.crew.await_ready([post.name for post in started], READY_S)
        for name in late:
            warn(f"the worker {name} does not listen yet; its log: {desk.crew.log(name)}")
        _tell(desk, {post.name for post in started}, ended, as_json=as_json)
        if foreground:
            _stay(desk.crew, wanted)
    return 0


def _tell(desk: Session, started: set[str], ended: set[str], *, as_json: bool) -> None:
    running = desk.crew.running()
    if any(hand.settings != desk.crew.fingerprint for hand in running.values()):
        warn("some workers run with earlier settings; 'nightdesk down' and 'up' apply the present ones")
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "pid": hand.pid,
            "queues": list(hand.post.queues),
            "log": str(desk.crew.log(name)),
            "started": name in started,
        }
        for name, hand in running.items()
    ]
    if as_json:
        write_json({"home": str(desk.place.root), "servers_started": sorted(desk.where.started), "workers": rows})
        return
    for row in rows:
        said = "runs" if row["name"] not in started else "started again" if row["name"] in ended else "started"
        tell(f"{row['name']:<10} {said}, process {row['pid']}, queues {','.join(row['queues'])}, log {row['log']}")


def _stay(crew: Crew, wanted: tuple[Post, ...]) -> None:
    """Start workers again that end, until a signal."""
    pauses: dict[str, float] = {}
    due: dict[str, float] = {}
    tell("staying in the foreground; SIGTERM or Ctrl-C stops everything")
    try:
        while True:
            running = crew.running()
            now = time.monotonic()
            for post in wanted:
                if post.name in running:
                    if now > due.get(post.name, now) + LONGEST_BACKOFF_S:
                        pauses.pop(post.name, None)
                elif post.name not in due or now >= due[post.name]:
                    pause = pauses[post.name] = min(pauses.get(post.name, FIRST_BACKOFF_S / 2) * 2, LONGEST_BACKOFF_S)
                    due[post.name] = now + pause
                    tell(f"{crew.last_words(post.name)}\nstarting it again")
                    crew.start(post, passing=True)
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        tell("stopping")
