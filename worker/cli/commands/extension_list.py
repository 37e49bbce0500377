"""``nightdesk extensions``: the prompts that jobs can name, and where each comes from."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from worker.cli import options
from worker.cli.console import console
from worker.cli.exits import OK
from worker.cli.terminal import write_json
from worker.operations.extensions import Extension, prompts
from worker.settings import load_settings


def extensions(as_json: options.Json = False) -> int:
    """List the prompt templates that a job can name, with version, hash, and the file of those that are your own.

    Templates of your own are checked: one that can't be used is named with its file and line.
    """
    load_settings()
    listing = list(prompts())
    if as_json:
        write_json([asdict(extension) for extension in listing])
    else:
        _show(listing)
    return OK


def _show(listing: Sequence[Extension]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("prompt", "version", "hash", "from"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "from")
    for each in listing:
        table.add_row(each.name, each.version, (each.sha256 or "")[:12], Text(each.origin or "Nightdesk"))
    console().print(table)
