"""Says in the words of whoever wrote a value what is wrong with it: no class, pattern or phrase of the validator."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = {
    "missing": "is missing",
    "extra_forbidden": "unknown field; check its spelling",
    "finite_number": "must be a number; NaN and Infinity are none",
    "string_too_short": "must not be empty",
    "string_unicode": "is not valid Unicode; repair the text",
    "timezone_aware": "has no time zone; write it as 2026-11-22T08:00:00+01:00, or with Z at its end for UTC",
    "date_from_datetime_inexact": "must be a day, such as 2026-11-22",
    "recursion_loop": "holds itself",
}
"""Words by the type of a problem, for those that say nothing of the value."""

_KINDS = {
    "string": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number, such as 0.50",
    "dict": "an object",
    "model": "an object",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "datetime": "a time with its zone, such as 2026-11-22T08:00:00Z",
    "date": "a day, such as 2026-11-22",
    "time": "a time of the day, such as 08:00",
    "uuid": "an id in the form 0192f0c1-2d3e-7abc-8def-0123456789ab",
    "url": "an address",
    "path": "a path",
}
"""The kind of value that is expected, by the beginning of a problem's type."""

_BOUNDS = {
    "greater_than_equal": ("ge", "must be at least {}"),
    "greater_than": ("gt", "must be more than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "less_than": ("lt", "must be less than {}"),
    "string_too_long": ("max_length", "may have at most {} characters"),
    "too_long": ("max_length", "may have at most {} entries"),
    "too_short": ("min_length", "must have at least {} entries"),
    "decimal_max_digits": ("max_digits", "may have at most {} digits"),
    "decimal_max_places": ("decimal_places", "may have at most {} digits behind the point"),
    "decimal_whole_digits": ("whole_digits", "may have at most {} digits before the point"),
    "enum": ("expected", "must be one of {}"),
    "literal_error": ("expected", "must be one of {}"),
}
"""The fact of a problem that its words name, by its type."""


_FIELD = re.compile(r"(?!(?:str|int|float|bool|dict|list|tuple|is-instance)\b)\w+")
"""The name of a field, and none of a kind of value."""


def named_problems(problems: Sequence[Mapping[str, Any]], value: Any) -> list[tuple[str, str]]:
    """The problems of a value that was validated, as path and words; those of one place, where several kinds were possible, together.

    Args:
        problems: of the validator, with inputs and contexts.
        value: what was validated.
    """
    words_by_path: dict[str, dict[str, None]] = {}
    for problem in problems:
        path = ".".join(map(str, _path(problem["loc"], value)))
        words_by_path.setdefault(path, {})[problem_words(problem)] = None
    return [(path, _joined([*words])) for path, words in words_by_path.items()]


def _joined(words: Sequence[str]) -> str:
    kinds = [each.removeprefix("must be ") for each in words if each.startswith("must be ")]
    return f"must be {', or '.join(kinds)}" if len(kinds) == len(words) else "; ".join(words)


def _path(location: Sequence[int | str], value: Any) -> Iterator[int | str]:
    """The parts of a place that are keys and positions of the value; the others name a kind of the validator's."""
    for part in location:
        positions = range(len(value)) if isinstance(value, list | tuple) else ()
        if part in (value if isinstance(value, Mapping) else positions):
            value = value[part]
        elif isinstance(value, Mapping) and _FIELD.fullmatch(str(part)):
            # Missing there, or made of other keys.
            value = None
        else:
            continue
        yield part


def problem_words(problem: Mapping[str, Any]) -> str:
    """The words for one problem of the validator; those of a secret come without its input."""
    kind, facts = problem["type"], problem.get("ctx") or {}
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _BOUNDS:
        fact, words = _BOUNDS[kind]
        bound = facts[fact]
        return words.format(f"{bound:,}" if isinstance(bound, int) else bound)
    value_kind = next((_KINDS[name] for name in sorted(_KINDS, key=len, reverse=True) if kind.startswith(name)), None)
    if kind == "string_pattern_mismatch" or value_kind is None:
        if "input" not in problem:
            return "is not in the form that is taken here"
        return (
            f"{_shortened(problem['input'])} is not in the form that is taken here; see 'nightdesk schema JobRequest'"
        )
    return f"must be {value_kind}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


LONGEST = 60
"""Characters of a value in a message."""
