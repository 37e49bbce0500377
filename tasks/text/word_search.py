"""Searches texts for words and patterns with Rust's regular expressions; it loads no table of a language."""

import re
from collections.abc import Callable
from functools import cached_property

from pydantic_core import SchemaValidator, core_schema

_AT_ONCE = 10
"""Words per pattern; for more than ten single characters Rust builds a set and uses no vector instructions."""


class WordSearch:
    """A case-sensitive search for any of several words.

    Rust's regular expressions search for several words at once with vector instructions, and pydantic, a dependency
    already, contains them: 2 us for eight words in 20 KB, where ``in`` takes 9 us per word.

    Args:
        words: literal words.
        patterns: regular expressions in Rust's syntax, or their function, called for the first search; each is fast if
            it contains one of few literal words.
    """

    def __init__(self, *words: str, patterns: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()) -> None:
        self._words = words
        self._patterns = patterns

    @cached_property
    def _validators(self) -> list[SchemaValidator]:
        patterns = self._patterns() if callable(self._patterns) else self._patterns
        groups = (self._words[start : start + _AT_ONCE] for start in range(0, len(self._words), _AT_ONCE))
        return [
            SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
            for pattern in (*("|".join(map(re.escape, group)) for group in groups), *patterns)
        ]

    def __call__(self, text: str) -> bool:
        """Tells whether the text contains any of the words."""
        for validator in self._validators:
            if validator.isinstance_python(text):
                return True
        if text.isascii():
            return False
        try:
            # Python caches the UTF-8 form with the text, so this only copies it.
            text.encode()
        except UnicodeEncodeError:
            # An unpaired surrogate has no UTF-8 form, and pydantic finds no word in such a text.
            return self(text.encode(errors="replace").decode())
        return False


class AsciiSearch:
    """A search for a pattern in ASCII text alone; any other text may hold it.

    Where many alternatives begin at any place, Rust takes a twentieth of the time of Python's engine. Its patterns are kept
    small by ASCII's classes of characters; assertions, which it lacks, are left out, and the case of letters does not
    count, so that it finds too much and never too little.

    Args:
        pattern: the function that makes the pattern for Python, called for the first search.
    """

    def __init__(self, pattern: Callable[[], str]) -> None:
        self._pattern = pattern

    @cached_property
    def _validator(self) -> SchemaValidator:
        pattern = _ASSERTION.sub("", self._pattern())
        for python, rust in _FOR_ASCII:
            pattern = pattern.replace(python, rust)
        # Both sides in lower case: a pattern that disregards case takes Rust 130 ms to compile, this one 4.
        pattern = _CAPITALS.sub(lambda capitals: capitals[0].lower(), pattern.removeprefix("(?i)"))
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))

    def may_match(self, text: str) -> bool:
        """Tells whether the pattern may match within a text."""
        return not text.isascii() or self._validator.isinstance_python(text.lower())


_CAPITALS = re.compile(r"(?<!\\)[A-Z]")
_ASSERTION = re.compile(r"\(\?(?:[=!]|<[=!])[^()]*\)")
_FOR_ASCII = (
    ("[^", "[^[:^ascii:]"),
    (r"\w", "[0-9A-Za-z_]"),
    (r"\W", "[^0-9A-Za-z_[:^ascii:]]"),
    (r"\d", "[0-9]"),
    (r"\b", r"(?-u:\b)"),
    (r"\Z", r"\z"),
)
