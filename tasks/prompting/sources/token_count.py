"""Counts tokens: exactly for OpenAI's models if their tokenizer is installed, else by an estimate per script."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

ESTIMATE = "estimate"
"""Value of ``MessagesSnapshot.counted_by`` for an estimate."""


def quarter_tokens(text: str, beyond_ascii: int | None = None) -> int:
    """Estimated quarter tokens: 1 for an ASCII character, 2 for one of two bytes in UTF-8, 4 for a longer one.

    Checked against OpenAI's vocabularies o200k and cl100k (characters per token): English 5.3 and 5.3, German 4.6 and
    3.3, Spanish 4.3 and 3.7 (here: some 3.9); Arabic 3.2 and 1.4, Russian 4.1 and 2.2 (here 2); Chinese 1.4 and 0.9,
    Japanese 1.3 and 0.9, Hindi 3.7 and 1.1, Thai 2.2 and 1.0 (here 1). Prose is overestimated on purpose, because
    other makers' tokenizers use shorter tokens; tables of numbers are underestimated (1.4 characters a token against 4).

    Args:
        text: the text to count.
        beyond_ascii: its number of characters beyond ASCII, if already counted.
    """
    characters = len(text)
    if text.isascii():
        return characters
    beyond_first = len(text.encode(errors="surrogatepass")) - characters
    if beyond_ascii is None:
        beyond_ascii = characters - len(text.encode("ascii", "ignore"))
    return characters + 2 * beyond_first - beyond_ascii


def estimate(text: str) -> int:
    """Estimated tokens of a text, rounded up."""
    return -(-quarter_tokens(text) // 4)


@dataclass(frozen=True, slots=True)
class Counter:
    """A token counter with its name."""

    name: str
    count: Callable[[str], int]


ESTIMATED = Counter(ESTIMATE, estimate)

_CL100K = re.compile(r"(?:gpt-4(?!o|\.1|\.5)|gpt-3\.5)")
_O200K = re.compile(r"(?:gpt-|chatgpt-|o\d)")


def exact_counter(model: str | None) -> Counter | None:
    """The tokenizer of an OpenAI model if the extra ``tokens`` is installed; None otherwise."""
    name = (model or "").rpartition("/")[2].lower()
    if _CL100K.match(name):
        return _load_vocabulary("cl100k_base")
    return _load_vocabulary("o200k_base") if _O200K.match(name) else None


@cache
def _load_vocabulary(vocabulary: str) -> Counter | None:
    """Loads a vocabulary once per process (45 ms, some 60 MB) from the package, without a download."""
    try:
        openai = import_module("rs_bpe.bpe").openai
    except ImportError:
        return None
    return Counter(vocabulary, getattr(openai, vocabulary)().count)
