"""The commands, one module each; only the one that is asked for is imported, none for the help: each starts quickly."""

from importlib import import_module
from typing import NoReturn

import typer

COMMANDS = {
    "run": "answer the questions of files, from start to finish",
    "check": "check answers that already exist against their sources",
    "demo": "answer the example questions and show what comes out",
    "up": "start the embedded servers and the workers in the background",
    "down": "stop the workers and the embedded servers",
    "worker": "run one worker process in the foreground",
    "submit": "hand in the questions of files and return at once",
    "status": "how batches stand",
    "watch": "follow a batch or a job until it is final",
    "results": "the results of a batch, as JSON lines",
    "show": "everything known of one job",
    "release": "let held jobs of a batch go on",
    "cancel": "cancel a batch or a job",
    "retry": "run final jobs again",
    "recheck": "check stored answers again, without paying for their generation",
    "erase": "remove the content of jobs for good",
    "prune": "remove the content of old jobs, or the jobs",
    "calibrate": "fit the check to your own labels",
    "doctor": "what is wrong, and what to do about it",
    "migrate": "bring the database to this version's schema",
    "schema": "the JSON Schemas of what goes in and comes out",
}
"""Name and purpose of every command, in the order of the help."""


def load(arguments: list[str]) -> typer.Typer:
    """The application with the command that ``arguments`` ask for; the others are there by name and purpose alone."""
    app = typer.Typer(
        help="Answers questions in bulk, from sources, with every claim checked.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    # A callback keeps "nightdesk run" a command of an application, also when it is the only one loaded.
    app.callback()(_nothing)
    # No option of the application takes a value: the first word is the command.
    asked = next((word for word in arguments if not word.startswith("-")), "")
    for name, purpose in COMMANDS.items():
        command = import_module(f"{__name__}.{name}").command if name == asked else _not_loaded
        app.command(name, short_help=purpose)(command)
    return app


def _not_loaded() -> NoReturn:
    raise AssertionError("only the command that the arguments name is run")


def _nothing() -> None:
    """Answers questions in bulk, from sources, with every claim checked."""
