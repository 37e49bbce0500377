"""``nightdesk serve``: the HTTP service in the foreground, until SIGTERM."""

from importlib import import_module
from typing import Annotated, Any

import typer

from worker.cli import options
from worker.cli.session import Session, session
from worker.cli.terminal import tell, write_line
from worker.process.logs import configure_logging, passwords_of
from worker.settings import load_settings
from worker.supervise.service_address import forget_service, note_service
from worker.supervise.workers import Keeper, keeping

PORT = 8080


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: any that is free.")] = PORT,
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
        configure_logging(settings.log_level, passwords_of(opened.where.database_url, opened.where.redis_url))
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
        finally:
            forget_service(settings.home)
    return 0


def _greet(opened: Session, address: str, *, needs_no_key: bool) -> None:
    note_service(opened.settings.home, address)
    write_line(address)
    tell(f"listening on {address}; pages for people: {address}/view/; what it can do: {address}/openapi.json")
    if needs_no_key:
        tell("there are no keys: whatever runs on this machine may do everything ('nightdesk keys add' ends that)")
    if opened.settings.embedded() and not opened.supervisor.running():
        tell("no worker runs: 'nightdesk up' starts them")
