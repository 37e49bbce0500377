"""Finds what else of a job could be its sources or its question, where neither is under a known name."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tasks.errors import InputError
from tasks.raw_jobs.names import field_of, is_field, plain
from tasks.raw_jobs.printed import structure

_REFERENCE = re.compile(
    r"answer|truth|expected|label|target|solution|respon|predict|completion|critique|^references?$|(^|_)gt(_|$)|_ids?$"
)
"""What somebody takes for right is no source, as an answer from it would copy it; nor are answers of models, and ids."""

_ABOUT_QUESTIONS = re.compile(r"(.*_)?questions?(_type|_template)?")
"""Names of other questions, and of facts about one."""

_WORD = re.compile(r"[!-~]{0,2048}")
"""A value, an id or an address; other scripts write sentences without blanks."""

_SMALL = 10
"""Times smaller than the largest: hardly what is looked for."""

_LONG = 100
"""Characters of a text that can be a source; a list of texts may be shorter."""

MOST_NAMED = 20


def text_size(value: Any) -> int:
    """The characters of all texts in a value, however deep it is nested."""
    size, remaining = 0, [value]
    while remaining:
        each = remaining.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            remaining += each.values()
        elif isinstance(each, list):
            remaining += each
    return size


def possible_sources(values: Mapping[str, Any], elsewhere: Collection[str] = ()) -> list[str]:
    """The keys that could hold the sources, the likeliest first.

    Args:
        values: keys of jobs without sources, each with a value.
        elsewhere: keys that are taken for something else.
    """
    sizes = {
        # A list is rather the sources than a text is.
        key: size * (_SMALL if isinstance(structure(each), list) else 1)
        for key, each in values.items()
        if key not in elsewhere
        and not is_field(field_of(key))
        and not _REFERENCE.search(plain(key))
        and not _ABOUT_QUESTIONS.fullmatch(plain(key))
        and (size := text_size(structure(each)))
        and not (isinstance(each, str) and _WORD.fullmatch(each.strip()))
    }
    least = max(sizes.values(), default=0) / _SMALL
    return sorted((key for key in sizes if sizes[key] >= least), key=lambda key: -sizes[key])


def possible_questions(values: Mapping[str, Any]) -> list[str]:
    """The keys that could hold the question, the likeliest first."""
    texts = {
        key: each.strip()
        for key, value in values.items()
        if isinstance(each := value[0] if isinstance(value, list) and value else value, str)
        and not _WORD.fullmatch(each.strip())
        and (len(each) <= 3 * _LONG or _asks(each))
        and not _REFERENCE.search(plain(key))
        and not is_field(field_of(key))
    }
    return sorted(texts, key=lambda key: (not _asks(texts[key]), len(texts[key])))


def _asks(text: str) -> bool:
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def require_sources(values: Mapping[str, Any], jobs: int) -> None:
    """Raises ``InputError`` where jobs without sources have what could be them under another name.

    Args:
        values: keys of the jobs, each with a value.
        jobs: their number.
    """
    names = [
        name
        for name in possible_sources(values)
        if text_size(each := structure(values[name])) > _LONG or isinstance(each, list)
    ]
    if names:
        raise InputError(
            f"{'none of the jobs has' if jobs > 1 else 'the job has no'} sources, and without them there is no answer: send them "
            f"under this name. Left over is {listed(names)}; where that is no source, send 'context': []",
            field="context",
        )


def listed(names: Iterable[str]) -> str:
    """The names in quotation marks, as far as a message has room."""
    return shortened([*map(repr, names)])


def shortened(names: Sequence[str]) -> str:
    """The names as far as a message has room, and the number of the others."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f", and {more:,} more" if more > 0 else "")
