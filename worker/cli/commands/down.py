"""``nightdesk down``: nothing of a home runs any more."""

from worker import local
from worker.cli import options
from worker.cli.crew import crews_in
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.session import place_of, stop_workers
from worker.settings import load_settings

OTHERS_S = 5.0
"""Seconds to wait for commands that are just ending."""


def command(*, as_json: options.Json = False) -> int:
    """Stop the workers of this home, after their calls in flight, then its embedded servers."""
    settings = load_settings()
    place = place_of(settings)
    workers: list[str] = []
    servers: frozenset[str] = frozenset()
    if place.root.is_dir():
        place.create()
        with place.alone(OTHERS_S):
            for crew in crews_in(place):
                names = sorted(crew.running())
                workers += names
                stop_workers(crew, names, settings)
                crew.clear()
            servers = local.stop(place.root)
            place.mark_servers(passing=False)
    if as_json:
        write_json({"home": str(place.root), "workers": workers, "servers": sorted(servers)})
    else:
        stopped = [*workers, *sorted(servers)]
        tell(f"stopped {', '.join(stopped)}" if stopped else f"nothing of {place.root} was running")
    return 0
