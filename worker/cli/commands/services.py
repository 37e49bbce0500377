"""``nightdesk up``, ``down``, ``migrate``, ``worker`` and ``serve``: the servers, workers and schema of a home."""

import threading
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tasks.masking import hide
from worker import local
from worker.cli import options
from worker.cli.help import option
from worker.cli.session import Session, session, stop_workers
from worker.cli.terminal import tell, warn, write_json, write_line
from worker.process.logs import configure_logging, secrets_of
from worker.settings import Settings, load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import Keeper, keeping, local_model_processes, mark_ready, supervisors_in, worker_specs
from worker.wiring import endpoints

READY_S = 30.0
"""Seconds a worker may take until it listens; a slower one is reported, not a failure."""


def up(
    workers: Annotated[
        int | None,
        option(
            "Workers: one that checks, the others call; without those of the local model and of urgent jobs. Default: one "
            "that checks, and one that calls for each two cores.",
            metavar="N",
            min=1,
            max=256,
        ),
    ] = None,
    foreground: Annotated[
        bool,
        option("Stay, restart workers that end, stop all on SIGTERM.", "--foreground"),
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
    with session() as opened:
        assert opened.migrated is not None
        before, after = opened.migrated
    if as_json:
        write_json({"before": before, "after": after})
    elif before == after:
        tell(f"the database is at revision {after} already")
    else:
        tell(f"migrated the database from {before or 'empty'} to {after}")
    return 0


def worker(
    queues: Annotated[
        str | None,
        option(
            "Queues to serve, separated by commas: generate, check, local, submit; or urgent alone; default: all but "
            "urgent, and local only where NIGHTDESK_LOCAL_MODEL is set."
        ),
    ] = None,
    record: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run one worker process in the foreground.

    It ends on SIGTERM or Ctrl-C, after the calls in flight. `generate` makes the provider calls, `check` checks the
    answers, `local` those of jobs that want the local model, `submit` accepts jobs over Redis. With `urgent` it does all but
    `local` for urgent jobs, and nothing else, so that they wait for no others.
    """
    # Celery takes longer to load than all else, and the other commands do without.
    from celery import signals  # noqa: PLC0415

    from worker.process.main import run_worker  # noqa: PLC0415

    settings = load_settings()
    served = _all(settings) if queues is None else list(filter(None, map(str.strip, queues.split(","))))

    def ready(**_: Any) -> None:
        assert record is not None
        mark_ready(record)

    if record is not None:
        # Its name also makes the process recognisable by its command line.
        signals.worker_ready.connect(ready, weak=False)
    return run_worker(settings, endpoints(settings), served)


def _all(settings: Settings) -> list[str]:
    from worker.process.celery_app import QUEUES  # noqa: PLC0415
    from worker.process.main import LOCAL_QUEUE  # noqa: PLC0415

    return [queue for queue in QUEUES if queue != LOCAL_QUEUE or settings.local_model is not None]


PORT = 8080


def serve(
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0: any that is free.", min=0, max=65_535)] = PORT,
    *,
    workers: options.Workers = False,
) -> int:
    """Answer over HTTP in the foreground: submit jobs and batches, poll them, read results.

    It ends on SIGTERM or Ctrl-C, after the requests under way. Workers do the jobs: those of 'nightdesk up', or any
    that use the same database; with --workers some are started for as long as this runs, and again when one ends.
    """
    # Their frameworks take a second to load: the help does without.
    server: Any = import_module("worker.http.server")
    settings = load_settings()
    access: Any = import_module("worker.http.authentication")
    listener = server.listen(host, port)
    with listener, session(settings, writes=settings.embedded(), staffs=workers) as opened:
        hide(secrets_of(settings, opened.where))
        configure_logging(settings.log_level, log_format=settings.log_format)
        needs_no_key = opened.on_ledger(lambda ledger: access.check_reach(ledger.api_keys, host))
        started = opened.staff_if_missing() if workers else []
        app = import_module("worker.http.app").make_application(
            settings, opened.where, loopback=access.is_loopback(host)
        )
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"
        try:
            with keeping(Keeper(opened.supervisor, started, tell)):
                server.serve(app, settings, listener, lambda: _greet(opened, address, needs_no_key=needs_no_key))
        except KeyboardInterrupt:
            # The signal that ended it, raised again once everything is closed.
            tell("stopped")
    return 0


def _greet(opened: Session, address: str, *, needs_no_key: bool) -> None:
    write_line(address)
    tell(f"listening on {address}; pages for people: {address}/view/; what it can do: {address}/openapi.json")
    if needs_no_key:
        tell("there are no keys: whatever runs on this machine may do everything ('nightdesk keys add' ends that)")
    if opened.settings.embedded() and not opened.supervisor.running():
        tell("no worker runs: 'nightdesk up' starts them")
