"""Finds what else of a job could be its sources or its question, where neither is under a known name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tasks.errors import InputError
from tasks.raw_jobs.names import field_of, is_field, plain
from tasks.raw_jobs.printed import structure

_REFERENCE = re.compile(
    r"answer|respon|predict|completion|(^|_)output(_|$)|truth|expected|ideal|label|target|solution|gold|critique|^references?$|"
    r"(^|_)(gt|true)(_|$)|_ids?$"
)
"""What somebody takes for right is no source, as an answer from it would copy it; nor are answers of models, and ids."""

_WRONG = re.compile(r"(^|_)neg(ative)?s?(_|$)|wrong|distract|irrelevan")
"""Passages that do not answer, for tests."""

_ABOUT_QUESTIONS = re.compile(r"(.*_)?questions?(_\w{1,2}|_type|_template)?")
"""Names of other questions, and of facts about one."""

_PASSAGE = re.compile(r"(context|document|passage|chunk|evidence|result|page_content)s?$")
"""What ends so is no answer, inside of one, too, nor if it is what somebody takes for right."""

_WORD = re.compile(r"[!-~]{0,2048}")
"""A value, an id or an address; other scripts write sentences without blanks."""

_SENTENCE_END = re.compile(r"[.!?\u3002\uff01\uff1f\u061f\u0964]\W*\Z")

_DIALOGUE = frozenset({"query", "response", "conversation_history"})
"""Fields that ask or answer."""

_SMALL = 10
"""Times smaller than the largest: hardly what is looked for."""

_LONG = 100
"""Characters of a text that can be a source; a list of texts may be shorter."""

MOST_NAMED = 20


def text_size(value: Any) -> int:
    """The characters of all texts in a value, however deep it is nested."""
    return sum(len(text) for _, text in texts_in(value))


def texts_in(value: Any) -> Iterator[tuple[str, str]]:
    """All texts in a value, each behind the nearest name around it."""
    remaining = [("", value)]
    while remaining:
        name, each = remaining.pop()
        if isinstance(each, str):
            yield name, each
        elif isinstance(each, dict):
            remaining += each.items()
        elif isinstance(each, list):
            remaining += [(name, inner) for inner in each]


def is_of_dialogue(name: str) -> bool:
    """Tells the name, or path of names, of a question, of an answer, or of what somebody takes for right.

    >>> is_of_dialogue("answers.text"), is_of_dialogue("answers.documents")
    (True, False)
    """
    form, last = plain(name), name.rpartition(".")[2]
    if _PASSAGE.search(form):
        return False
    return bool(field_of(last) in _DIALOGUE or _REFERENCE.search(form) or _ABOUT_QUESTIONS.fullmatch(form))


def reads_like_a_text(text: str) -> bool:
    """Tells what can be a source from names and values."""
    return (len(text) > _LONG and not _WORD.fullmatch(text)) or _SENTENCE_END.search(text) is not None


def possible_sources(values: Mapping[str, Any]) -> list[str]:
    """The keys of jobs without sources, each with a value, that could hold these, the likeliest first."""
    sizes = {
        # A list is rather the sources than a text is.
        key: sum(map(len, texts)) * (_SMALL if isinstance(structure(each), list) else 1)
        for key, each in values.items()
        if not is_field(field_of(key))
        and not is_of_dialogue(key)
        and any(
            map(
                reads_like_a_text,
                texts := [text for name, text in texts_in(structure(each)) if not is_of_dialogue(name)],
            )
        )
    }
    least = max(sizes.values(), default=0) / _SMALL
    likely = (key for key in sizes if sizes[key] >= least)
    return sorted(likely, key=lambda key: (_WRONG.search(plain(key)) is not None, -sizes[key]))


def possible_questions(values: Mapping[str, Any]) -> list[str]:
    """The keys that could hold the question, the likeliest first."""
    texts = {
        key: text
        for key, each in values.items()
        if isinstance(each, str)
        and not _WORD.fullmatch(text := each.strip())
        and (len(text) <= 3 * _LONG or _asks(text))
        and not _REFERENCE.search(plain(key))
        and not is_field(field_of(key))
    }
    return sorted(texts, key=lambda key: (not _asks(texts[key]), len(texts[key])))


def _asks(text: str) -> bool:
    return text.endswith(("?", "\uff1f", "\u061f"))


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
