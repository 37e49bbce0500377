"""Indexes a source by passages: which of them hold a word or a number."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from schemas.job import SHOWN_METADATA
from tasks.text.memo import Memo
from tasks.text.sentences import (
    BREAK,
    Passage,
    latin_of_spans,
    letters_of,
    number_tokens,
    numbers_of_token,
    passage_spans,
    words,
    words_of_spans,
)
from tasks.text.time_limit import ensure_time
from tasks.text.wording import content_words, stem_of

Postings = dict[str, list[int]]
"""The passages of each word, in order."""


class SourceIndex:
    """The passages of a source in order, with the stems of their words and of their numbers, each read when it is needed.

    Args:
        content: the source.
    """

    def __init__(self, content: str) -> None:
        self.spans = passages_of(content)
        self._content = content
        self._latin = latin_of_spans(content, self.spans)

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The stems of all words, with ``BREAK`` between passages; beyond Latin letters those of the numbers, too."""
        if self._latin is None:
            return tuple(map(stem_of, words_of_spans(self._content, self.spans)))
        return tuple(map(stem_of, letters_of(self._latin).decode("latin-1").split()))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The stems of its numbers, with ``BREAK`` between passages; empty for a source with other than Latin letters."""
        if self._latin is None:
            return ()
        return tuple(chain.from_iterable(map(_NUMBER_STEMS.__getitem__, number_tokens(self._latin))))

    def postings(self, vocabulary: frozenset[str]) -> Postings:
        """Inverted index of the vocabulary: for each of its words in the source the passages, in order."""
        searched = vocabulary | _MARK
        numbers = self.numbers if any(stem[0] <= _DIGIT_END for stem in vocabulary) else ()
        postings: Postings = {}
        for stems in (self.stems, numbers):
            piece = 0
            for stem in filter(searched.__contains__, stems):
                if stem == BREAK:
                    piece += 1
                elif (pieces := postings.get(stem)) is None:
                    postings[stem] = [piece]
                elif pieces[-1] < piece:
                    pieces.append(piece)
                elif pieces[-1] > piece and pieces[at := bisect_left(pieces, piece)] != piece:
                    # A number word stands further on than the number.
                    pieces.insert(at, piece)
        return postings


_DIGIT_END = "9"


# ---- words and numbers ------------------------------------------------------------------------------------------------

_MARK = frozenset({BREAK})


def _stems_of_token(token: bytes) -> tuple[str, ...]:
    return tuple(map(stem_of, numbers_of_token(token.decode("ascii"))))


_MOST_TOKENS = 50_000
"""Most tokens in the cache: 10 MB in all."""
_NUMBER_STEMS = Memo(_stems_of_token, _MOST_TOKENS)


# ---- caches --------------------------------------------------------------------------------------------------------

_CACHED_CHARACTERS = 8_000
"""Longest content whose index is cached for the next job; bounds the memory of the cache."""


def index_source(content: str) -> SourceIndex:
    """Indexes a source by passages; short sources are cached, because neighbouring questions share chunks."""
    return _cached_index(content) if len(content) <= _CACHED_CHARACTERS else SourceIndex(content)


def passages_of(content: str) -> tuple[Passage, ...]:
    """The passages of a source; those of a short one are cached, those of a long one for the time of a check."""
    if len(content) <= _CACHED_CHARACTERS:
        return _cached_passages(content)
    if (memory := _MEMORY.get()) is None:
        return passage_spans(content)
    if content not in memory.passages:
        memory.passages[content] = passage_spans(content)
    return memory.passages[content]


_cached_passages = lru_cache(maxsize=512)(passage_spans)


_cached_index = lru_cache(maxsize=512)(SourceIndex)


def forget() -> None:
    """Empties the caches, for measurements."""
    for cache in (_cached_index, _cached_passages, text_stems):
        cache.cache_clear()


def metadata_stems(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The content words of the metadata in the prompt: a statement may name a source's title, article or date."""
    values = [metadata.get(key) for key in SHOWN_METADATA] if metadata else ()
    return _NO_WORDS.union(*[text_stems(str(value)) for value in values if value is not None])


@lru_cache(maxsize=4096)
def text_stems(text: str) -> frozenset[str]:
    """The content words of a short text; cached, because the chunks of a document share its title."""
    return content_words(words(text))


_NO_WORDS = frozenset[str]()


# ---- one check -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CheckMemory:
    """Memory of one check: the indexes and passages of long sources, its latest search, and how each search is let go."""

    indexes: dict[str, SourceIndex] = field(default_factory=dict)
    passages: dict[str, tuple[Passage, ...]] = field(default_factory=dict)
    search: object = None
    at_end: list[Callable[[], None]] = field(default_factory=list)


_MEMORY: ContextVar[CheckMemory | None] = ContextVar("memory of one check", default=None)


def check_memory() -> CheckMemory | None:
    """The memory of the check that runs; None outside of one."""
    return _MEMORY.get()


@contextmanager
def shared_indexes() -> Iterator[None]:
    """Index each source once for all searches of the block, and search once for the words of all its statements."""
    memory = CheckMemory()
    token = _MEMORY.set(memory)
    try:
        yield
    finally:
        _MEMORY.reset(token)
        for release in memory.at_end:
            release()


def index_in_time(content: str) -> SourceIndex:
    """Indexes a source once for a check, within its time."""
    ensure_time()
    memory = _MEMORY.get()
    if memory is None or len(content) <= _CACHED_CHARACTERS:
        return index_source(content)
    if content not in memory.indexes:
        memory.indexes[content] = SourceIndex(content)
    return memory.indexes[content]
