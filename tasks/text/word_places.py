"""Finds the passages of a source that hold some words."""

from bisect import insort
from collections.abc import Iterable
from itertools import chain

from tasks.text.sentences import BREAK, number_tokens, numbers_of_token
from tasks.text.wording import stem_of

_MARK = frozenset({BREAK})
Postings = dict[str, list[int]]
"""The passages of each word, in order."""


def postings_of(searched: frozenset[str], stems: Iterable[str], numbers: Iterable[str]) -> Postings:
    """The passages of each of the searched stems among the stems and numbers of a source, with ``BREAK`` between passages."""
    searched |= _MARK
    postings: Postings = {}
    piece = 0
    for stem in filter(searched.__contains__, stems):
        if stem == BREAK:
            piece += 1
        elif (pieces := postings.get(stem)) is None:
            postings[stem] = [piece]
        elif pieces[-1] != piece:
            pieces.append(piece)
    piece = 0
    for number in filter(searched.__contains__, numbers):
        if number == BREAK:
            piece += 1
        elif piece not in (pieces := postings.setdefault(number, [])):
            # A number word may stand further on.
            insort(pieces, piece)
    return postings


def number_stems(latin: bytes) -> tuple[str, ...]:
    """The stems of the numbers of ``latin_of_spans``, with ``BREAK`` between spans."""
    return tuple(chain.from_iterable(map(_NUMBER_STEMS.__getitem__, number_tokens(latin))))


class _NumberStems(dict[bytes, tuple[str, ...]]):
    """Cache of the stems of the numbers in each token of digits and marks, per process."""

    def __missing__(self, token: bytes) -> tuple[str, ...]:
        stems = tuple(map(stem_of, numbers_of_token(token.decode("ascii"))))
        if len(token) <= _LONGEST_TOKEN:
            if len(self) >= _MOST_TOKENS:
                self.clear()
            self[token] = stems
        return stems


_MOST_TOKENS = 50_000
_LONGEST_TOKEN = 20
"""Most tokens in the cache, and the characters of the longest: 10 MB in all."""
_NUMBER_STEMS = _NumberStems()
