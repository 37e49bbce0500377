"""Tell of a text whether any of many words stands in it, at some 10 GB a second."""

import re

from pydantic_core import SchemaValidator, core_schema

_AT_ONCE = 10
"""Words; of more than ten single characters Rust makes a set, which it looks for without vector instructions."""


class Among:
    """Whether any of the words stands in a text, as it is written.

    Rust's regular expressions look for several words at once with vector instructions, and pydantic, which is there
    anyway, has them: 2 us for eight words in 20 KB, where ``in`` takes 9 us a word.

    Args:
        words: what to look for.
        patterns: what to look for as expressions in Rust's syntax, each quick where it holds one of few words.
    """

    def __init__(self, *words: str, patterns: tuple[str, ...] = ()) -> None:
        groups = (words[start : start + _AT_ONCE] for start in range(0, len(words), _AT_ONCE))
        self._any_of = [
            SchemaValidator(core_schema.str_schema(pattern=one, regex_engine="rust-regex"))
            for one in (*("|".join(map(re.escape, group)) for group in groups), *patterns)
        ]

    def __call__(self, text: str) -> bool:
        """Look at a text."""
        if any(one.isinstance_python(text) for one in self._any_of):
            return True
        if text.isascii():
            return False
        try:
            # By now Python has kept the UTF-8 with the text, so that this only copies it.
            text.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair has none, and what is no text holds no word, says pydantic.
            return self(text.encode(errors="replace").decode())
        return False
