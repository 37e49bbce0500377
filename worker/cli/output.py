"""Writes what programs read to standard output."""

import sys
from typing import Any

import orjson


def write_json(value: Any) -> None:
    """One indented JSON document; decimals become strings, as in the wire contract."""
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def write_line(text: str) -> None:
    """One line, for shells."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
