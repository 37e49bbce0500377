"""The console that things for people are written to, and text and times that are fit to be written there."""

import os
from collections.abc import Collection, Mapping
from datetime import datetime

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from worker.cli.terminal import LOG_COLUMNS, printable, text_columns, wrap


def console() -> Console:
    """Standard output: colours on a terminal only, within its rows; elsewhere COLUMNS wide, or 80 as a mail or a ticket."""
    out = Console(highlight=False, emoji=False)
    # Not the width of a terminal that only reads commands or shows messages.
    out.width = text_columns(out.width) if out.is_terminal else _columns()
    return out


def table_of(*headings: str, right: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """A table without lines, and without a head where no column has a heading; ``whole`` columns break no cell."""
    table = Table(box=None, pad_edge=False, show_header=any(headings))
    for heading in headings:
        justify: JustifyMethod = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, no_wrap=heading in whole, overflow="fold")
    return table


def facts_of(facts: Mapping[str, str]) -> Table:
    """A table of labels and values, without those that are empty."""
    table = table_of("", "")
    for label, value in facts.items():
        if value:
            table.add_row(safe(label, "dim"), safe(value))
    return table


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else LOG_COLUMNS


def safe(text: str, style: str = "") -> Text:
    """Text from outside, of the same length, that can't steer the terminal and holds no markup."""
    return Text(printable(text), style=style)


def write_text(out: Console, text: str) -> None:
    """Writes a message at word ends, with ids and commands whole, so that they can be copied."""
    out.print(Text(wrap(printable(text), out.width)), soft_wrap=True)


def moment(at: datetime | None) -> str:
    """A time for people, in local time, with its zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if at else ""
