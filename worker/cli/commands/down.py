"""``nightdesk down``: nothing of a home runs any more."""

from worker import local
from worker.cli import options
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.session import state_of, stop_workers
from worker.settings import load_settings
from worker.supervise.workers import supervisors_in

OTHERS_S = 5.0
"""Seconds to wait for commands that are just ending."""


def command(*, as_json: options.Json = False) -> int:
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
