"""``nightdesk up``: servers and workers that stay."""

import time
from typing import Annotated, Any

import typer

from worker.cli import options
from worker.cli.messages import tell, warn
from worker.cli.output import write_json
from worker.cli.session import Session, session, stop_workers
from worker.settings import load_settings
from worker.supervise.workers import Supervisor, WorkerSpec, local_model_processes, worker_specs

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
    specs = worker_specs(workers, local=local_model_processes(settings))
    with session(settings, staffs=True, stays=not foreground) as desk:
        ended = desk.supervisor.exited()
        desk.supervisor.clear()
        if workers is not None:
            surplus = desk.supervisor.running().keys() - {spec.name for spec in specs}
            stop_workers(desk.supervisor, sorted(surplus), settings)
        started = desk.staff(specs, ephemeral=foreground)
        late = desk.supervisor.await_ready([spec.name for spec in started], READY_S)
        for name in late:
            warn(f"the worker {name} does not listen yet; its log: {desk.supervisor.log(name)}")
        _tell(desk, {spec.name for spec in started}, ended, as_json=as_json)
        if foreground:
            _stay(desk.supervisor, specs)
    return 0


def _tell(desk: Session, started: set[str], ended: set[str], *, as_json: bool) -> None:
    running = desk.supervisor.running()
    if any(worker_process.settings != desk.supervisor.fingerprint for worker_process in running.values()):
        warn("some workers run with earlier settings; 'nightdesk down' and 'up' apply the present ones")
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "pid": worker_process.pid,
            "queues": list(worker_process.spec.queues),
            "log": str(desk.supervisor.log(name)),
            "started": name in started,
        }
        for name, worker_process in running.items()
    ]
    if as_json:
        write_json({"home": str(desk.state.root), "servers_started": sorted(desk.where.started), "workers": rows})
        return
    for row in rows:
        status = "runs" if row["name"] not in started else "started again" if row["name"] in ended else "started"
        tell(f"{row['name']:<10} {status}, process {row['pid']}, queues {','.join(row['queues'])}, log {row['log']}")


def _stay(supervisor: Supervisor, specs: tuple[WorkerSpec, ...]) -> None:
    """Start workers again that end, until a signal."""
    pauses: dict[str, float] = {}
    due: dict[str, float] = {}
    tell("staying in the foreground; SIGTERM or Ctrl-C stops everything")
    try:
        while True:
            running = supervisor.running()
            now = time.monotonic()
            for spec in specs:
                if spec.name in running:
                    if now > due.get(spec.name, now) + LONGEST_BACKOFF_S:
                        pauses.pop(spec.name, None)
                elif spec.name not in due or now >= due[spec.name]:
                    pause = pauses[spec.name] = min(pauses.get(spec.name, FIRST_BACKOFF_S / 2) * 2, LONGEST_BACKOFF_S)
                    due[spec.name] = now + pause
                    tell(f"{supervisor.exit_report(spec.name)}\nstarting it again")
                    supervisor.start(spec, ephemeral=True)
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        tell("stopping")
