"""Writes the help in groups: the options and commands that everybody needs first, the others under their subject."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

ARGUMENTS, OPTIONS = "Arguments", "Options"
FILES, MONEY, ANSWER, CHECK = "Files", "Money", "Answer, of jobs that set none", "Check, of jobs that set none"
NIGHT, TERMINAL = "Night: when calls are made, and which first", "Terminal and workers"

_IN_ORDER = (ARGUMENTS, OPTIONS, FILES, MONEY, ANSWER, CHECK, NIGHT, TERMINAL)
"""Subjects of options; one without a subject is of those that everybody needs, which come first."""


def option(text: str, *names: str, metavar: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """Describes an option, under a subject; without names it has those of its parameter."""
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, **more)


def argument(text: str, metavar: str | None = None, **more: Any) -> Any:
    """Describes an argument."""
    return typer.Argument(help=text, metavar=metavar, **more)


class GroupedOptions(TyperCommand):
    """A command whose options stand under the subjects that their ``rich_help_panel`` names."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, then a section for each subject."""
        _write_groups(
            formatter,
            (
                # A range as people write one.
                (
                    ARGUMENTS if each.param_type_name == "argument" else panel_of(each),
                    (names.replace(" range>", ">"), text.replace("<=x<=", " to ")),
                )
                for each in self.get_params(ctx)
                for names, text in filter(None, (each.get_help_record(ctx),))
            ),
        )


class GroupedCommands(TyperGroup):
    """The application, its commands under the subjects that their ``rich_help_panel`` names."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each subject."""
        commands = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        width = formatter.width - 6 - max(map(len, commands))
        _write_groups(
            formatter,
            ((panel_of(command), (name, command.get_short_help_str(width))) for name, command in commands.items()),
        )


def panel_of(item: Any) -> str:
    """The subject under which an option or a command stands."""
    return getattr(item, "rich_help_panel", None) or OPTIONS


def _write_groups(formatter: Any, records: Iterable[tuple[str, tuple[str, str]]]) -> None:
    groups: dict[str, list[tuple[str, str]]] = {subject: [] for subject in _IN_ORDER}
    for group, record in records:
        groups.setdefault(group, []).append(record)
    for title, rows in groups.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
