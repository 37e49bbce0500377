"""Reads lists and objects that were printed into one text, as JSON or as Python, pandas and NumPy write them into a cell."""

import ast
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

MOST_CHARACTERS = 4_000_000
"""Of a text that is looked at; a longer one is a text."""

_TEXT = r"(?:'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")"
_TEXTS = re.compile(rf"(?s)\[\s*{_TEXT}(?:\s*,?\s*{_TEXT})*+\s*,?\s*\]")
"""A list of texts; NumPy puts blanks and line breaks between them, which Python reads as one text."""

_EACH = re.compile(rf"(?s){_TEXT}")
_START = re.compile(r"[\[{(]\s*(?:['\"{\[(]|[\]})]|(?:None|nan)\b|[\w.]+\()|[\w.]+\(")
"""What a print of Python begins with."""

_BETWEEN_OBJECTS = re.compile(r"\}\s*\n\s*\{")
_MEMBER = re.compile(r"<[\w.]+: ('[^'<>]*')>")
"""The print of a member of an enum."""


def structure(value: Any) -> Any:
    """A value, read where it is the print of a list or an object."""
    read = structure_of(value) if isinstance(value, str) else None
    return value if read is None else read


def structure_of(text: str) -> list[Any] | dict[str, Any] | None:
    """The list of texts or objects, or the object, that a text as a whole is a print of; None for any other text.

    >>> structure_of("['a' 'b']"), structure_of('["a"]'), structure_of("[1] is a note"), structure_of("[1, 2]")
    (['a', 'b'], ['a'], None, None)
    """
    bare = text.strip()
    if bare[-1:] not in {"]", "}", ")"} or not _START.match(bare) or len(bare) > MOST_CHARACTERS:
        return None
    readers: tuple[Callable[[str], Any], ...] = (_json, _texts, _literal)
    for reader in readers:
        try:
            value = reader(bare)
        except (ValueError, TypeError, ArithmeticError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict):
            return value or []
        if isinstance(value, list) and all(isinstance(each, str | dict | list) or each is None for each in value):
            return value
    return None


def _json(text: str) -> Any:
    """The JSON of programs that write NaN into it, which is null."""
    return json.loads(text, parse_constant=lambda _: None)


def _texts(text: str) -> list[str]:
    if not _TEXTS.fullmatch(text):
        raise ValueError("no list of texts")
    return [ast.literal_eval(each) for each in _EACH.findall(text)]


def _literal(text: str) -> Any:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        # NumPy puts no comma between objects.
        tree = ast.parse(_MEMBER.sub(r"\1", _BETWEEN_OBJECTS.sub("}, {", text)), mode="eval")
    return _value(tree.body)


def _value(node: ast.expr) -> Any:
    """The value of a print; raises ``ValueError`` for anything that is none. Nothing of it is run."""
    match node:
        case ast.Name(id="nan" | "inf" | "NaT") | ast.UnaryOp(operand=ast.Name(id="inf")):
            return None
        case ast.Constant() | ast.UnaryOp():
            return ast.literal_eval(node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [_value(each) for each in elements]
        case ast.Dict(keys=keys, values=values):
            return {str(_value(key)): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.Call(args=values, keywords=fields):
            return _instance(list(map(_value, values)), fields)
    raise ValueError("no print of Python")


def _instance(values: list[Any], fields: list[ast.keyword]) -> Any:
    """The value of a print like ``Document(text='a')``, ``np.str_('a')``, ``array(['a'], dtype=object)`` or ``date(2026, 1, 2)``."""
    match values:
        case []:
            return {each.arg: _value(each.value) for each in fields if each.arg is not None}
        case [value]:
            return value
    return str(datetime(*values))  # noqa: DTZ001 - as it was printed
