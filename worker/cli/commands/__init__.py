"""The commands; only the module of the one that is called is imported, none for the help: each starts quickly."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from worker.cli.help import GroupedCommands, GroupedOptions

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "From questions to answers": {
        "demo": ("example_run", "answer the example questions and show the results"),
        "estimate": ("cost_estimate", "tokens, cost and time of files, before any call"),
        "run": ("run_commands", "answer the questions of files, from start to finish"),
        "check": ("run_commands", "check answers that already exist against their sources"),
        "results": ("stored_results", "the results of a batch, as JSON lines"),
        "report": ("stored_results", "a batch on one page: plots, cost, the worst answers"),
    },
    "Batches and jobs": {
        "submit": ("run_commands", "hand in the questions of files and return at once"),
        "status": ("batch_list", "how batches stand"),
        "watch": ("live_view", "follow a batch or a job until it is final"),
        "show": ("job_details", "everything known of one job"),
        "pause": ("job_commands", "begin no further call of a batch"),
        "release": ("job_commands", "let a paused batch, or jobs that are held, go on"),
        "cancel": ("job_commands", "cancel a batch or a job"),
        "retry": ("job_commands", "run final jobs again"),
    },
    "Compare, and teach the check": {
        "compare": ("comparisons", "two batches over the same questions, or two jobs"),
        "replay": ("comparisons", "send stored messages again and compare the answers"),
        "recheck": ("second_check", "check stored answers again, without paying for their generation"),
        "label": ("answer_labels", "say whether an answer or a claim is supported; export"),
        "calibrate": ("calibration_fit", "fit the check to your own labels"),
    },
    "Services": {
        "up": ("services", "start the embedded servers and the workers in the background"),
        "down": ("services", "stop the workers and the embedded servers"),
        "worker": ("services", "run one worker process in the foreground"),
        "serve": ("services", "answer over HTTP: submit, poll, results"),
        "doctor": ("diagnosis", "what is wrong, and what to do about it"),
        "migrate": ("services", "bring the database to this version's schema"),
    },
    "For an operator": {
        "keys": ("spending_limits", "keys of callers over HTTP, and what each may spend"),
        "budget": ("spending_limits", "what a tenant may spend in a day or a night"),
        "erase": ("removal_commands", "remove the content of jobs for good"),
        "prune": ("removal_commands", "remove the content of old jobs, or the jobs"),
        "clean": ("removal_commands", "what takes how much disk, and giving it back"),
        "schema": ("contract", "the JSON Schemas of jobs and results"),
    },
}
"""Module and purpose of every command, by subject, in the order of the help."""

NAMES = tuple(name for commands in COMMANDS.values() for name in commands)

_OTHER_WORDS = {"list": ("status",), "labels": ("label",), "resume": ("release", "--reason", "batch_paused")}
"""What commands were called before."""


def with_own_name(arguments: list[str]) -> list[str]:
    """A command line with the name of its command in place of an earlier one."""
    return [*_OTHER_WORDS.get(arguments[0], arguments[:1]), *arguments[1:]] if arguments else arguments


def load(arguments: list[str]) -> typer.Typer:
    """The application with the command that ``arguments`` ask for; the others are there by name and purpose alone."""
    app = typer.Typer(
        cls=GroupedCommands,
        help="Answers questions in bulk, from sources, with every claim checked.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    # A callback keeps "nightdesk run" a command of an application, also when it is the only one loaded.
    app.callback()(_application)
    # No option of the application takes a value: the first word is the command.
    called = next((word for word in _completed_words() or arguments if not word.startswith("-")), "")
    for subject, commands in COMMANDS.items():
        for name, (module, purpose) in commands.items():
            command = _command(module, name) if name == called else _not_loaded
            app.command(name, cls=GroupedOptions, short_help=purpose, rich_help_panel=subject)(command)
    return app


def _command(module: str, name: str) -> Callable[..., int]:
    command: Callable[..., int] = getattr(import_module(f"{__name__}.{module}"), name)
    return command


def _not_loaded() -> NoReturn:
    raise AssertionError("only the command that the arguments name is run")


def _completed_words() -> list[str]:
    """The words after ``nightdesk`` on the line that a shell asks to complete; none when it asks for nothing."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    return line.split()[1:] if "_NIGHTDESK_COMPLETE" in os.environ else []


def _print_version(value: bool) -> None:
    if value:
        # Every command would pay for the import.
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"nightdesk {version('nightdesk')}")
        raise typer.Exit


def _application(
    _version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Answers questions in bulk, from sources, with every claim checked."""
