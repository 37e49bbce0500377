"""``nightdesk up``, ``down`` and ``migrate``: the servers, workers and schema of a home."""

import threading
from typing import Annotated, Any

import typer

from worker import local
from worker.cli import options
from worker.cli.session import Session, session, stop_workers
from worker.cli.terminal import tell, warn, write_json
from worker.settings import load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import Keeper, local_model_processes, supervisors_in, worker_specs

READY_S = 30.0
"""Seconds a worker may take until it listens; a slower one is reported, not a failure."""


def up(
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            help="Workers: one that checks, the others call; without those of the local model and of urgent jobs. Default: one "
            "that checks, and one that calls for each two cores.",
        ),
    ] = None,
    foreground: Annotated[
        bool,
        typer.Option("--foreground", help="Stay, restart workers that end, stop all on SIGTERM."),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Start the embedded servers and the workers in the background, and bring the schema up to date.

    Calling it again starts what is missing or has ended. One worker checks answers, in a process for each core, the others make the calls;
    where NIGHTDESK_LOCAL_MODEL is set, NIGHTDESK_LOCAL_MODEL_PROCESSES more run the model, and
    NIGHTDESK_URGENT_PROCESSES more take urgent jobs alone.
    'nightdesk down' stops everything.
    """
    settings = load_settings()
    specs = worker_specs(
        settings.slots, workers, local=local_model_processes(settings), urgent=settings.urgent_processes
    )
    with session(settings, staffs=True, stays=not foreground) as opened:
        ended = opened.supervisor.exited()
        opened.supervisor.clear()
        if workers is not None:
            surplus = opened.supervisor.running().keys() - {spec.name for spec in specs}
            stop_workers(opened.supervisor, sorted(surplus), settings)
        started = opened.staff(specs, ephemeral=foreground)
        late = opened.supervisor.await_ready([spec.name for spec in started], READY_S)
        for name in late:
            warn(f"the worker {name} does not listen yet; its log: {opened.supervisor.log(name)}")
        _report(opened, {spec.name for spec in started}, ended, as_json=as_json)
        if foreground:
            tell("staying in the foreground; SIGTERM or Ctrl-C stops everything")
            try:
                Keeper(opened.supervisor, specs, tell).keep(threading.Event())
            except KeyboardInterrupt:
                tell("stopping")
    return 0


def _report(opened: Session, started: set[str], ended: set[str], *, as_json: bool) -> None:
    running = opened.supervisor.running()
    if difference := opened.supervisor.difference():
        warn(difference)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "pid": worker_process.pid,
            "queues": list(worker_process.spec.queues),
            "log": str(opened.supervisor.log(name)),
            "started": name in started,
        }
        for name, worker_process in running.items()
    ]
    if as_json:
        write_json({"home": str(opened.state.root), "servers_started": sorted(opened.where.started), "workers": rows})
        return
    for row in rows:
        status = "runs" if row["name"] not in started else "started again" if row["name"] in ended else "started"
        tell(f"{row['name']:<10} {status}, process {row['pid']}, queues {','.join(row['queues'])}, log {row['log']}")


OTHERS_S = 5.0
"""Seconds to wait for commands that are just ending."""


def down(*, as_json: options.Json = False) -> int:
    """Stop the workers of this home, after their calls in flight, then its embedded servers."""
    settings = load_settings()
    state = state_of(settings)
    workers: list[str] = []
    servers: frozenset[str] = frozenset()
    if state.root.is_dir():
        state.create()
        with state.exclusive_use(OTHERS_S):
            for supervisor in supervisors_in(state):
                names = sorted(supervisor.running())
                workers += names
                stop_workers(supervisor, names, settings)
                supervisor.clear()
            servers = local.stop(state.root)
            state.mark_servers(ephemeral=False)
    if as_json:
        write_json({"home": str(state.root), "workers": workers, "servers": sorted(servers)})
    else:
        stopped = [*workers, *sorted(servers)]
        tell(f"stopped {', '.join(stopped)}" if stopped else f"nothing of {state.root} was running")
    return 0


def migrate(*, as_json: options.Json = False) -> int:
    """Bring the database to the schema of this version. Calling it again changes nothing."""
    with session(load_settings()) as opened:
        assert opened.migrated is not None
        before, after = opened.migrated
    if as_json:
        write_json({"before": before, "after": after})
    elif before == after:
        tell(f"the database is at revision {after} already")
    else:
        tell(f"migrated the database from {before or 'empty'} to {after}")
    return 0
