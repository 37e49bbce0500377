"""Formats citations in each style: the name of a source, its marker and its line in the list of sources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.generation import CitationStyle
from schemas.job import SourceContext

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""Characters that Markdown can parse as mark-up in a title: all but an underscore inside a word."""


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a source in the answer, and its place in the document as far as the metadata has it."""

    name: str
    section: str | None = None
    article: str | int | None = None
    page: str | int | None = None

    def __str__(self) -> str:
        parts = [self.name if self.section is None else f"{self.name} - {self.section}"]
        if self.article is not None:
            numbered = isinstance(self.article, int) or self.article[:1].isdigit()
            parts.append(f"art. {self.article}" if numbered else str(self.article))
        if self.page is not None:
            parts.append(f"p. {self.page}")
        return ", ".join(parts)

    def json_entry(self) -> dict[str, str | int]:
        """Entry of the list of sources in JSON."""
        facts = {"title": self.name, "section": self.section, "article": self.article, "page": self.page}
        return {key: value for key, value in facts.items() if value is not None}


def name_of(source: SourceContext) -> str:
    """Name of a source: its title, else product and kind of document, else its path; empty without any."""
    about = source.metadata
    names = (about.get("title"), _product(about), about.get("source_path"))
    return next((name for value in names if (name := one_line(value))), "")


def label(source: SourceContext, number: int) -> Label:
    """The label of a source; its number replaces a missing name."""
    about = source.metadata
    if not about:
        return Label(f"source {number}")
    article = scalar(about.get("article"))
    page = scalar(about.get("page"))
    return Label(
        name=name_of(source) or f"source {number}",
        section=one_line(section_path(about)) or None,
        article=article if isinstance(article, int) else one_line(article) or None,
        page=page if isinstance(page, int) else one_line(page) or None,
    )


def _product(about: Mapping[str, Any]) -> str:
    return " ".join(str(about[key]) for key in ("product_name", "document_type") if about.get(key))


def one_line(value: Any) -> str:
    """A value as text without line breaks, runs of white space and control characters; empty for None."""
    if value is None:
        return ""
    text = str(value)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())


def scalar(value: Any) -> str | int | None:
    """A page or article as a number or text; the entries of a list are joined."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def section_path(about: Mapping[str, Any]) -> str | None:
    """The section of a source from its metadata, as a path from the widest to the narrowest; None without one."""
    for key in ("section", "section_hierarchy"):
        value = about.get(key)
        if isinstance(value, list | tuple):
            value = " > ".join(str(part) for part in value if part not in (None, ""))
        if value not in (None, ""):
            return str(value)
    return None


def marker(style: CitationStyle, rank: int, source: Label, *, markdown: bool) -> str:
    """The marker of a source in running text; for Markdown the title is escaped."""
    match style:
        case CitationStyle.SOURCE:
            return f"[Source {rank}]"
        case CitationStyle.INLINE:
            return f"(Source: {escape_markdown(str(source)) if markdown else source})"
        case CitationStyle.FOOTNOTE:
            return str(rank).translate(SUPERSCRIPTS)
        case _:
            return f"[{rank}]"


def reference(style: CitationStyle, rank: int, source: Label, *, markdown: bool) -> str:
    """The line of a source in the list of sources; it begins with the marker."""
    named = escape_markdown(str(source)) if markdown else str(source)
    lead = f"[{rank}]" if style is CitationStyle.INLINE else marker(style, rank, source, markdown=markdown)
    return f"{lead} {named}"


def escape_markdown(text: str) -> str:
    """Markdown that displays exactly this text."""
    return _MARKUP.sub(lambda match: f"\\{match.group()}", text)
