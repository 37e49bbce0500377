"""Tells the sentences of an answer that can be checked from those that cannot, with the reason."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from dataclasses import dataclass

from tasks.text.evidence import content_words
from tasks.text.sentences import words
from tasks.text.wording import is_courtesy, is_denial


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence ``[start, end)`` of the response.

    ``citations`` are positions in the processed answer's citations; ``unknown`` are cited numbers without a source.
    """

    start: int
    end: int
    citations: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


DENIAL = "it only says that the sources do not answer"
"""The reason for a sentence that only reports a gap in the sources."""
_RULE = re.compile(r"[\s|:\-=_*`#~+]*\Z")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*\n]{1,80}\*\*:?\s*\Z|__[^_\n]{1,80}__:?\s*\Z)")
_LIST_MARKER = re.compile(r"\s*(?:>\s*)?(?:[-*+•]\s+|\(?(?:\d{1,3}|[a-zA-Z])[.)]\s+)?")
_LONGEST_LEAD_IN = 15
"""Words; a longer line that ends with a colon is a statement."""
_CLOSING = " \"'”’»)*_"


def without_list_marker(text: str) -> str:
    """The sentence without its list marker."""
    marker = _LIST_MARKER.match(text)
    return text[marker.end() :] if marker else text


def why_not_checkable(text: str) -> str | None:
    """The reason that a sentence (without citation markers) cannot be checked; None if it can be checked."""
    stripped = text.strip()
    ending = stripped.rstrip(_CLOSING)[-1:]
    reasons = (
        ("no words", lambda: _RULE.match(stripped)),
        ("a question", lambda: ending in {"?", "？", "؟"}),
        ("a heading", lambda: _HEADING.match(stripped)),
        ("the lead-in to what follows", lambda: ending in {":", "："} and len(stripped.split()) <= _LONGEST_LEAD_IN),
        ("a courtesy", lambda: is_courtesy(stripped)),
        (DENIAL, lambda: is_denial(stripped)),
        ("no word of content", lambda: not content_words(words(without_list_marker(stripped)))),
    )
    return next((reason for reason, applies in reasons if applies()), None)
