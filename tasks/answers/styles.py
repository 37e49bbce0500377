"""Describes each citation style; its name is in ``schemas/generation.py``, and ``docs/extend.md`` says what else a new one takes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from schemas.generation import CitationStyle, Style

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Manner:
    """The manner of a citation style.

    Attributes:
        about: its description for the page of formats.
        mark: the marker in running text, of the number of a source and its title.
        names: True where the marker is the title, which the list of sources does not repeat.
        raised: True for superscripts: they stand behind punctuation, and their notes are no list.
        listed: True where an answer ends with its sources without being asked.
    """

    about: str
    mark: Callable[[int, str], str]
    names: bool = False
    raised: bool = False
    listed: bool = False


# By type as well: a marker of your own may be spelt like the name of a style.
@lru_cache(maxsize=32, typed=True)
def manner_of(style: Style) -> Manner:
    """The manner of a style."""
    if not isinstance(style, CitationStyle):

        def mark(number: int, title: str) -> str:
            return style.replace("{index}", str(number)).replace("{title}", title)

        return Manner("a marker of your own", mark, names="{title}" in style)
    match style:
        case CitationStyle.SOURCE:
            return Manner("numbers in words", lambda number, _: f"[Source {number}]")
        case CitationStyle.NUMBERED:
            return Manner("numbers in the order of first appearance", _in_brackets)
        case CitationStyle.INLINE:
            about = "title (or product and kind of document, or path), section path, article and page"
            return Manner(about, lambda _, title: f"(Source: {title})", names=True)
        case CitationStyle.FOOTNOTE:
            about = "superscripts behind the punctuation, with a note each"
            return Manner(about, lambda number, _: str(number).translate(SUPERSCRIPTS), raised=True, listed=True)
        case CitationStyle.ENDNOTE:
            return Manner("numbers, with a list of the sources", _in_brackets, listed=True)
        case _:
            assert_never(style)


def _in_brackets(number: int, _title: str) -> str:
    return f"[{number}]"
