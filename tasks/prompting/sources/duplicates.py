"""Finds sources that repeat another source of the prompt, fast enough for every job."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tasks.text.language import language_tables, word_set
from tasks.text.sentences import words

CONTAINED = 0.85
"""Least share of a near-duplicate's runs of three words that the other source contains."""
MOST_NEW_WORDS = 0.05
"""Greatest share of a near-duplicate's words that the other source lacks."""
LEAST_WORDS = 8
"""Words; in a shorter source one different word is too much."""

DISTINCTIVE_METADATA = ("title", "product_name", "document_type", "date")
"""The same words under another title, product or date mean something else: the prompt gets both sources."""

_CUTS = ("v", "k", "p", "в", "的", "。", "ق", "ا", "ن", "の", "र", "อ")  # noqa: RUF001 - Arabic alef
"""Letters of medium frequency. One of them splits the text into pieces, so that a change affects only its own piece."""
_PIECE = 250
"""Greatest average length of a piece, in characters, for its letter to be the separator."""
_LEAST_PIECE = 12
_FEW_PIECES = 6
_SHARED = 0.5
"""Least share of equal pieces for a comparison word by word; near-duplicates have far more."""
_PROBE = 16
_FOREIGN = 0.25
"""Share of characters beyond ASCII above which a text is compared in its own script."""
_MOST_COMPARED = 3
"""Most sources to compare word by word, those with most equal pieces first."""

_AS_WRITTEN = re.compile(r"[^\W\d_]+")


def search_text(text: str) -> str:
    """A text in lower case with ``?`` for each character beyond ASCII: ten times as fast as the real lower case."""
    return text.lower() if text.isascii() else text.encode("ascii", "replace").decode().lower()


@cache
def _decisive() -> re.Pattern[str]:
    """Words that near-duplicates share exactly: figures, number words and negations of five languages."""
    characters = "".join(table.get("decisive_characters", "") for table in language_tables().values())
    return re.compile(rf"\d|\b(?:{'|'.join(word_set('decisive'))})\b|[{characters}]")


class ShownSources:
    """The sources of the prompt so far; each new source is compared with them."""

    def __init__(self) -> None:
        self.search_texts: dict[int, str] = {}
        """The contents in the form of ``search_text``, by source index."""
        self.beyond_ascii: dict[int, int] = {}
        """Number of characters beyond ASCII, by source index."""
        self._plain: dict[int, str] = {}
        self._separator = ""
        self._whole: dict[str, list[int]] = {}
        self._pieces: dict[int, set[str]] = {}
        self._all_pieces: set[str] = set()
        self._sources: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._words: dict[int, tuple[list[str], frozenset[tuple[str, ...]]]] = {}

    def add(self, index: int, content: str, metadata: Mapping[str, Any]) -> tuple[int, bool] | None:
        """Adds a source unless it repeats one of the sources so far.

        Returns: the index of the repeated source, and True for an exact repetition; None if the source was added.
        """
        folded = search_text(content)
        replaced = 0 if content.isascii() else folded.count("?")
        is_foreign = replaced > _FOREIGN * len(content)
        plain = (content.lower() if is_foreign else folded).replace("\n", " ")
        whole = content.strip()
        pieces = self._cut_up(plain)
        for other in self._whole.get(whole, ()):
            if self._agree(metadata, other):
                return other, True
        candidates = [other for other in self._candidates(plain, pieces) if self._agree(metadata, other)]
        tokens = words(content) if candidates else []
        for other in candidates[:_MOST_COMPARED]:
            if (exactly := self._compare(content, tokens, other)) is not None:
                return other, exactly
        self.search_texts[index] = folded
        self.beyond_ascii[index] = replaced - content.count("?") if replaced else 0
        self._plain[index] = plain
        self._sources[index] = content, metadata
        self._whole.setdefault(whole, []).append(index)
        self._pieces[index] = pieces
        self._all_pieces |= pieces
        return None

    def remove(self, index: int) -> None:
        """Removes a source that does not fit into the prompt."""
        for place in (self.search_texts, self.beyond_ascii, self._plain, self._pieces, self._sources, self._words):
            place.pop(index, None)

    def _cut_up(self, plain: str) -> set[str]:
        if not self._separator:
            least = max(1, len(plain) // _PIECE)
            self._separator = next((separator for separator in _CUTS if plain.count(separator) >= least), _CUTS[0])
        return {piece for piece in plain.split(self._separator) if len(piece) >= _LEAST_PIECE}

    def _candidates(self, plain: str, pieces: set[str]) -> Sequence[int]:
        """The sources that this one may repeat, those with most equal pieces first."""
        if len(pieces) >= _FEW_PIECES:
            least = _SHARED * len(pieces)
            if len(self._all_pieces & pieces) < least:
                return ()
            common = ((len(other_pieces & pieces), index) for index, other_pieces in self._pieces.items())
            return [index for count, index in sorted(common, key=lambda vote: (-vote[0], vote[1])) if count >= least]
        last = max(0, len(plain) - _PROBE)
        probes = {plain[start : start + _PROBE] for start in (0, last // 2, last)}
        return [index for index, other in self._plain.items() if any(probe in other for probe in probes)]

    def _agree(self, metadata: Mapping[str, Any], index: int) -> bool:
        if index not in self._sources:
            return False
        other_metadata = self._sources[index][1]
        if not metadata or not other_metadata:
            return True
        pairs = ((metadata.get(key), other_metadata.get(key)) for key in DISTINCTIVE_METADATA)
        return all(value == other_value for value, other_value in pairs if value and other_value)

    def _compare(self, content: str, tokens: Sequence[str], index: int) -> bool | None:
        if index not in self._words:
            other_tokens = words(self._sources[index][0])
            self._words[index] = (
                other_tokens,
                frozenset(zip(other_tokens, other_tokens[1:], other_tokens[2:], strict=False)),
            )
        other_tokens, runs = self._words[index]
        if tokens == other_tokens and (tokens or content == self._sources[index][0]):
            return True
        return False if _adds_nothing(content, tokens, other_tokens, runs) else None


def _adds_nothing(
    content: str, tokens: Sequence[str], other_tokens: Sequence[str], other_runs: frozenset[tuple[str, ...]]
) -> bool:
    """Tells whether a text adds nothing to another one, as far as its words tell.

    A new figure, negation or name is an addition: two policies that differ only in an amount, a "not" or the product's
    name are two sources.
    """
    if len(tokens) < LEAST_WORDS:
        return False
    runs = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    new_runs = [run for run in runs if run not in other_runs]
    if len(new_runs) > (1 - CONTAINED) * len(runs):
        return False
    if any(_decisive().search(word) for run in new_runs for word in run):
        return False
    new = set(tokens) - set(other_tokens)
    if len(new) > MOST_NEW_WORDS * len(tokens):
        return False
    as_written = {word.lower(): word for word in _AS_WRITTEN.findall(content)}
    return all(as_written.get(word, word.upper()).islower() for word in new)
