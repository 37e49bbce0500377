"""``nightdesk extensions``: the prompts that jobs can name, the plugins of the settings, and where each comes from."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from worker.cli import options
from worker.cli.console import console, table_of
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.terminal import write_json
from worker.operations.extensions import Extension, plugins, prompts
from worker.settings import load_settings


def extensions(as_json: options.Json = False) -> int:
    """List prompts, and providers and checkers of your own, with the file or package that each comes from.

    Each is loaded: one that can't be used is named with the reason, and the exit code is 1.
    """
    settings = load_settings()
    listing = [*prompts(), *plugins(settings)]
    if as_json:
        write_json([asdict(extension) for extension in listing])
    else:
        _show(listing)
    return INCOMPLETE if any(extension.problem for extension in listing) else OK


def _show(listing: Sequence[Extension]) -> None:
    table = table_of("kind", "name", "version", "hash", "from", whole={"kind", "name", "version", "hash"})
    for each in listing:
        origin = each.problem or each.origin or "Nightdesk"
        unused = "" if each.in_use else " (installed; no setting names it)"
        table.add_row(each.kind, each.name, each.version or "", (each.sha256 or "")[:12], Text(origin + unused))
    console().print(table)
