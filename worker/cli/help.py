"""Describes options and arguments for the help, under the subjects that Typer shows as panels."""

from typing import Any

import typer

FILES, MONEY, ANSWER, CHECK = "Files", "Money", "Answer, of jobs that set none", "Check, of jobs that set none"
NIGHT, TERMINAL = "Night: when calls are made, and which first", "Terminal and workers"


def option(text: str, *names: str, metavar: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """Describes an option, under a subject; without names it has those of its parameter."""
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, **more)


def argument(text: str, metavar: str | None = None) -> Any:
    """Describes an argument."""
    return typer.Argument(help=text, metavar=metavar)
