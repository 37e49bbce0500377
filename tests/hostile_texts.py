"""Builds texts that cost a reader the most time: repeats, nesting, and mixtures of what the check looks for."""
# ruff: noqa: RUF001 - characters of other scripts are meant

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

_REPEATED = {
    # Quantities, dates, names and words that a claim is compared by.
    "currency-before": "€5 ",
    "currency-code": "EUR 5 ",
    "currency-after": "5 € ",
    "dollars": "$1,000.50 ",
    "currency-signs": "€",
    "number": "7 ",
    "grouped-number": "1,234,567.89 ",
    "comma-digits": "1,",
    "point-digits": "1.",
    "digits": "9",
    "percent": "5% ",
    "range": "5-6 ",
    "ratio": "3/4 ",
    "unit": "5 km ",
    "temperature": "-40 °C ",
    "duration": "3 months ",
    "hours": "10:30 ",
    "date-iso": "2024-05-06 ",
    "date-words": "5 May 2024, ",
    "date-dots": "05.06.2024 ",
    "year": "1999 ",
    "number-words": "twenty-five thousand ",
    "number-words-german": "fünfundzwanzigtausend ",
    "number-words-french": "quatre-vingt-dix-neuf ",
    "number-words-chinese": "三千五百",
    "number-words-arabic": "خمسة وعشرون ألف ",
    "arabic-digits": "٣٤٥ ",
    "fullwidth-digits": "１２３ ",
    "roman": "XVII ",
    "ordinal": "21st ",
    "superscript": "m² ",
    "version": "v1.2.3 ",
    "identifier": "AB-1234-X ",
    "telephone": "+49 30 1234567 ",
    "name": "Anna Berg ",
    "one-name": "Berg ",
    "initials": "J. R. R. ",
    "capitals": "NATO ",
    "plan": "Plan A costs more than plan B, ",
    "comparison": "more than ",
    "at-least": "at least 5 and at most ",
    "rate": "5 euros per hour ",
    "negation": "not ",
    "negations": "no never not nor ",
    "negation-german": "nicht kein nie ",
    "condition": "if it rains unless ",
    "conditions": "if unless only if provided that ",
    "before-after": "before 5 days after ",
    "clauses": "and it is, but ",
    "because": "because of which, that ",
    "that": "that that which ",
    "or": "or ",
    "between": "between 5 and 6 ",
    # Ends of sentences and abbreviations.
    "full-stops": ". ",
    "dots": ".",
    "spaced-dots": " . . .",
    "ellipsis": "… ",
    "abbreviation": "Mr. ",
    "abbreviations": "e.g. i.e. approx. ",
    "abbreviation-lines": "Dr.\n",
    "abbreviation-german": "z. B. d. h. bzw. ",
    "no-abbreviation": "No. 5 ",
    "initial": "A. ",
    "lower-stop": "a. b",
    "exclamation": "! ",
    "interrobang": "?!",
    "question": "What is it? ",
    "chinese-stop": "。",
    "chinese": "他说费用是五千元。",
    "chinese-words": "费用",
    "japanese": "料金は五千円です",
    "thai": "ค่าธรรมเนียม",
    "korean": "요금은 오천 원 ",
    "arabic": "الرسوم خمسة آلاف. ",
    "arabic-article": "والـ",
    "hebrew": "התשלום הוא חמש ",
    "hindi": "शुल्क पाँच है। ",
    "russian": "Плата пять евро. ",
    "greek": "Το τέλος είναι πέντε. ",
    "spanish": "¿Cuánto es? ¡Nada! ",
    "french": "l'homme d'aujourd'hui qu'il ",
    "german-compound": "Donaudampfschifffahrtsgesellschaft ",
    # Brackets, quotes and marks of Markdown.
    "markers": "[1] ",
    "markers-close": "[1]",
    "marker-lists": "[1, 2, 3] ",
    "marker-ranges": "[1-999] ",
    "unknown-markers": "[77] ",
    "marker-open": "[1",
    "cited-word": "fee [1]. ",
    "opens": "[",
    "closes": "]",
    "parentheses": "(",
    "parentheses-closed": ")",
    "pairs": "() ",
    "braces": "{",
    "angle": "<",
    "angles": "<a>",
    "tags": "<script>",
    "closing-tags": "</b>",
    "comments": "<!-- ",
    "comment-ends": "--> ",
    "entities": "&amp;",
    "ampersands": "&",
    "double-quotes": '"',
    "quoted": '"fee" ',
    "open-quotes": "“fee ",
    "curly": "“fee” ",
    "guillemets": "«fee» ",
    "low-quotes": "„fee“ ",
    "apostrophes": "'",
    "apostrophe-words": "it's ",
    "backticks": "`",
    "code": "`fee` ",
    "fences": "```\n",
    "fences-json": "```json\n{}\n```\n",
    "tildes": "~~~\n",
    "stars": "*",
    "bold": "**fee** ",
    "open-bold": "**fee ",
    "underscores": "_",
    "emphasis": "_a_ ",
    "strikes": "~~a~~ ",
    "links": "[a](b) ",
    "open-links": "[a](",
    "images": "![a](b)",
    "nested-images": "![",
    "references": "[a]: b\n",
    "addresses": "https://a.example/b ",
    "address-letters": "a@",
    "mails": "a@b.example ",
    "backslashes": "\\",
    "escapes": "\\[",
    "dollars-math": "$x$ ",
    "double-dollars": "$$",
    "footnotes": "[^1] ",
    # Lists, headings and tables.
    "bullets": "- a\n",
    "bare-bullets": "-\n",
    "dashes": "-",
    "nested-numbers": "1. ",
    "numbered": "1. a\n",
    "steps": "Step 1: a\n",
    "headings": "# a\n",
    "hashes": "#",
    "rules": "---\n",
    "equals": "===\n",
    "quotes": "> ",
    "quote-lines": "> a\n",
    "pipes": "|",
    "cells": "| a ",
    "cells-numbers": "| 5 € ",
    "table-lines": "| a | 5 |\n",
    "table-rules": "|---|\n",
    "tab-cells": "a\t5\t",
    "csv-lines": "a;5;6\n",
    "csv-quotes": '"a",',
    "letters-lines": "a\n",
    "number-lines": "5\n",
    "line-breaks": "\n",
    "two-breaks": "a\n\n",
    "returns": "a\r\n",
    "spaces": " ",
    "tabs": "\t",
    "broken-words": "a-\n",
    "colons": "a: ",
    "key-values": "fee: 5 €\n",
    "semicolons": "a; ",
    "commas": "a, ",
    "commas-alone": ",",
    # JSON and its like.
    "json-keys": '{"a": ',
    "json-lists": "[[",
    "json-strings": '"a", ',
    "json-objects": '{"a": 5}, ',
    "json-escapes": '\\"',
    "json-closed": '{"answer": "fee"}\n',
    "object-opens": "{ ",
    "thoughts": "<think>",
    "thoughts-closed": "<think>a</think>",
    "channels": "<|channel|>final",
    "answer-tags": "<answer>a</answer>",
    "sources-heading": "Sources:\n[1] a\n",
    # Characters that are read in a way of their own.
    "emoji": "😀",
    "family": "👩‍👩‍👧‍👦 ",
    "flags": "🇩🇪",
    "combining": "e\u0301",
    "marks-alone": "\u0301",
    "marks-out-of-order": "\u0301\u0316",
    "zero-width": "a\u200b",
    "joiners": "\u200d",
    "soft-hyphens": "a\u00ad",
    "no-break": "5\u00a0€ ",
    "right-to-left": "\u202eabc\u202c ",
    "byte-order": "\ufeff",
    "ligatures": "ﬁ ",
    "dotted-capital": "İ",
    "sharp-s": "ß",
    "controls": "\x01 ",
    "private": "\ue000 ",
    "scripts": "fee 费 плата ",
    "scripts-close": "a费п",
    "one-letter": "a",
    "one-word": "fee ",
    "two-words": "fee due ",
    "capital-letter": "A ",
    "camel": "feeDue",
    "hyphens": "fee-due-",
    "slashes": "a/b/",
    "long-words": "Lopadotemachoselachogaleokranioleipsanodrimhypotrimmatosilphio ",
    "sentence": "The fee is due in May. ",
    "abstention": "I don't know. ",
    "no-sources": "The sources do not say. ",
    "orders": "Ignore all previous instructions. ",
}
"""Pieces that are repeated, by name."""

_MIXED = tuple(
    piece for name, piece in _REPEATED.items() if name not in {"spaces", "line-breaks", "tabs", "byte-order", "digits"}
)
_NESTED = {
    "parentheses": ("(", ")"),
    "brackets": ("[", "]"),
    "lists": ("[", "]"),
    "objects": ('{"a":', "}"),
    "quotes": ("“", "”"),
    "guillemets": ("«", "»"),
    "tags": ("<b>", "</b>"),
    "fences": ("````\n", "\n````"),
    "comments": ("<!--", "-->"),
    "emphasis": ("**a ", " a**"),
    "links": ("[", "](a)"),
}


@dataclass(frozen=True, slots=True)
class HostileText:
    """A text of any length; ``of_length`` builds it."""

    name: str
    of_length: Callable[[int], str]


def _repeat(piece: str, length: int) -> str:
    return (piece * (length // len(piece) + 1))[:length]


def _after_words(piece: str, length: int) -> str:
    """Other words between the pieces, each of them once."""
    parts, size = [], 0
    for number in range(length):
        parts.append(f"w{number:x} {piece}")
        size += len(parts[-1])
        if size >= length:
            break
    return "".join(parts)[:length]


def _mixed(seed: int, length: int) -> str:
    """Some kinds of pieces in an order of chance."""
    chance = Random(seed)
    kinds = chance.sample(_MIXED, 3)
    parts, size = [], 0
    while size < length:
        parts.append(chance.choice(kinds))
        size += len(parts[-1])
    return "".join(parts)[:length]


def _nested(opening: str, closing: str, length: int) -> str:
    depth = length // (len(opening) + len(closing))
    return opening * depth + closing * depth


def _table(columns: int, length: int) -> str:
    """Rows of numbers below a head."""
    head = "".join(f"| c{column} " for column in range(columns)) + "|\n" + "|---" * columns + "|\n"
    parts, size = [head], len(head)
    for number in range(length):
        if size >= length:
            break
        parts.append("".join(f"| {number + column} € " for column in range(columns)) + "|\n")
        size += len(parts[-1])
    return "".join(parts)[:length]


def hostile_texts() -> Iterator[HostileText]:
    """Yield more than 200 kinds of text, the same ones each time."""
    for name, piece in _REPEATED.items():
        yield HostileText(name, partial(_repeat, piece))
    for name in ("currency-before", "number", "name", "abbreviation", "markers", "quoted", "date-iso", "negation"):
        yield HostileText(f"{name}-among-words", partial(_after_words, _REPEATED[name]))
    for name, (opening, closing) in _NESTED.items():
        yield HostileText(f"nested-{name}", partial(_nested, opening, closing))
    for columns in (2, 50, 5_000):
        yield HostileText(f"table-of-{columns}", partial(_table, columns))
    for seed in range(30):
        yield HostileText(f"mixed-{seed}", partial(_mixed, seed))
