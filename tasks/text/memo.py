"""Remembers what was read of a word: a look in a table in place of a call, which is the fastest that Python has."""

from collections.abc import Callable, Sized
from typing import TypeVar

Word = TypeVar("Word", bound=Sized)
Meaning = TypeVar("Meaning")

LONGEST = 40
"""Characters of the longest word that is remembered."""


class Memo(dict[Word, Meaning]):
    """The meaning of each word that was looked up, forgotten when there are too many.

    Args:
        read: the reader of a word.
        most: words that are remembered.
    """

    def __init__(self, read: Callable[[Word], Meaning], most: int) -> None:
        super().__init__()
        self._read = read
        self._most = most

    def __missing__(self, word: Word) -> Meaning:
        meaning = self._read(word)
        if len(word) <= LONGEST:
            if len(self) >= self._most:
                self.clear()
            self[word] = meaning
        return meaning
