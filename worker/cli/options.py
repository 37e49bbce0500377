"""Options that several commands share."""

from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import InputError

Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary; errors are still told.")]
Files = Annotated[
    list[str], typer.Argument(metavar="FILE", help="JSON lines, one job a line; .gz is read; - is standard input.")
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="OUT", help="Where the results go, as JSON lines; - is standard output."),
]
BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id, as 'submit' and 'status' tell it.")]
Name = Annotated[str | None, typer.Option(help="A name for the batch, for people.")]
Key = Annotated[
    str | None, typer.Option(help="Submitting the same files with the same key again finds the same batch.")
]
Strict = Annotated[bool, typer.Option(help="Submit nothing when a line is not valid.")]
MaxCost = Annotated[
    str | None, typer.Option("--max-cost-usd", metavar="USD", help="Ceiling on what the batch may cost.")
]


def batch_id(text: str) -> UUID:
    """Read a batch id; raises ``InputError``."""
    try:
        return UUID(text)
    except ValueError:
        raise InputError(f"{text!r} is not a batch id; 'nightdesk status' lists them") from None


def said_of_batch(name: str | None, key: str | None, max_cost_usd: str | None) -> dict[str, str]:
    """What the options say of a batch, as ``BatchRequest`` takes it."""
    given = {"name": name, "key": key, "max_cost_usd": max_cost_usd}
    return {option: value for option, value in given.items() if value is not None}
