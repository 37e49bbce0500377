"""``nightdesk schema``: the wire contract as JSON Schemas."""

from typing import Annotated

import typer

from tasks.errors import InputError
from worker.cli.contract import MODELS, json_schema
from worker.cli.output import write_json


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help=f"One of {', '.join(MODELS)}.")] = None,
) -> int:
    """Write the JSON Schema of one part of the wire contract, or of all by name."""
    if name is not None and name not in MODELS:
        raise InputError(f"there is no schema {name!r}; choose from {', '.join(MODELS)}")
    write_json(json_schema(name) if name else {each: json_schema(each) for each in MODELS})
    return 0
