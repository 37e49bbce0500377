"""Find sources that say again what another shown source says, cheaply enough to be done for every job."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.text.sentences import words

CONTAINED = 0.85
"""Share of a source's runs of three words that must stand in another for it to be a near-duplicate of that one."""
MOST_NEW_WORDS = 0.05
"""Most words, as a share, that a near-duplicate may have and the other not."""
LEAST_WORDS = 8
"""Words; of a shorter source one word is too much to differ."""

TELLING_METADATA = ("title", "product_name", "document_type", "date")
"""The same words under another title, product or date say something else: such sources are both shown."""

_CUTS = ("v", "k", "p", "в", "的", "。", "ق", "ا", "ن", "の", "र", "อ")  # noqa: RUF001 - Arabic alef
"""Letters of middling frequency. Text is cut at one of them into pieces that a change elsewhere leaves alone."""
_PIECE = 250
"""Most characters a piece may have on average for its letter to be taken."""
_LEAST_PIECE = 12
_FEW_PIECES = 6
_SHARED = 0.5
"""Share of equal pieces from which two sources are compared word by word; near-duplicates have far more."""
_PROBE = 16
_FOREIGN = 0.25
"""Share of characters beyond ASCII from which a text is compared in its own script."""
_MOST_COMPARED = 3
"""Sources to which one is compared word by word, those with most pieces in common first."""

_DECISIVE = re.compile(
    r"\d"
    r"|\b(?:not?|never|none|nor|without|except|unless|only|zero|one|two|three|four|five|six|seven|eight|nine|ten|half|twice"
    r"|nicht|kein\w*|nie|ohne|außer|nur|null|eine?[mnrs]?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|halb"
    r"|ninguna?|nunca|sin|salvo|solo|sólo|cero|una?|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|medio"
    r"|لا|لم|لن|ليس|غير|دون|إلا|فقط|صفر|واحد|اثنان|ثلاثة|أربعة|خمسة|ستة|سبعة|ثمانية|تسعة|عشرة)\b"
    r"|[零〇一二两兩三四五六七八九十百千万萬半不没沒未非无無别除仅只]",
)
"""What may never differ: figures, number words and negations, of English, German, Spanish, Arabic and Chinese."""
_AS_WRITTEN = re.compile(r"[^\W\d_]+")


def searchable(text: str) -> str:
    """A text in lower case with ``?`` for each character beyond ASCII: ten times as fast as its real lower case."""
    return text.lower() if text.isascii() else text.encode("ascii", "replace").decode().lower()


class Shown:
    """The sources shown so far; each further one is compared to them."""

    def __init__(self) -> None:
        self.searchable: dict[int, str] = {}
        """The shown contents as ``searchable`` makes them, by source index."""
        self.beyond_ascii: dict[int, int] = {}
        """How many of their characters are not ASCII."""
        self._plain: dict[int, str] = {}
        self._cut = ""
        self._whole: dict[str, list[int]] = {}
        self._pieces: dict[int, set[str]] = {}
        self._known: set[str] = set()
        self._given: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._words: dict[int, tuple[list[str], frozenset[tuple[str, ...]]]] = {}

    def add(self, index: int, content: str, metadata: Mapping[str, Any]) -> tuple[int, bool] | None:
        """Take note of a source that is to be shown, unless it repeats one that is.

        Returns: the index of the source that it repeats and whether it does so word by word; None: it was taken.
        """
        found = searchable(content)
        replaced = 0 if content.isascii() else found.count("?")
        is_foreign = replaced > _FOREIGN * len(content)
        plain = (content.lower() if is_foreign else found).replace("\n", " ")
        whole = content.strip()
        pieces = self._cut_up(plain)
        for other in self._whole.get(whole, ()):
            if self._agree(metadata, other):
                return other, True
        candidates = [other for other in self._candidates(plain, pieces) if self._agree(metadata, other)]
        mine = words(content) if candidates else []
        for other in candidates[:_MOST_COMPARED]:
            if (exactly := self._compare(content, mine, other)) is not None:
                return other, exactly
        self.searchable[index] = found
        self.beyond_ascii[index] = replaced - content.count("?") if replaced else 0
        self._plain[index] = plain
        self._given[index] = content, metadata
        self._whole.setdefault(whole, []).append(index)
        self._pieces[index] = pieces
        self._known |= pieces
        return None

    def remove(self, index: int) -> None:
        """Forget a source that was not shown after all."""
        for place in (self.searchable, self.beyond_ascii, self._plain, self._pieces, self._given, self._words):
            place.pop(index, None)

    def _cut_up(self, plain: str) -> set[str]:
        if not self._cut:
            least = max(1, len(plain) // _PIECE)
            self._cut = next((cut for cut in _CUTS if plain.count(cut) >= least), _CUTS[0])
        return {piece for piece in plain.split(self._cut) if len(piece) >= _LEAST_PIECE}

    def _candidates(self, plain: str, pieces: set[str]) -> Sequence[int]:
        """The sources shown that this one may repeat, those with most pieces in common first."""
        if len(pieces) >= _FEW_PIECES:
            least = _SHARED * len(pieces)
            if len(self._known & pieces) < least:
                return ()
            common = ((len(theirs & pieces), index) for index, theirs in self._pieces.items())
            return [index for count, index in sorted(common, key=lambda vote: (-vote[0], vote[1])) if count >= least]
        last = max(0, len(plain) - _PROBE)
        probes = {plain[start : start + _PROBE] for start in (0, last // 2, last)}
        return [index for index, other in self._plain.items() if any(probe in other for probe in probes)]

    def _agree(self, metadata: Mapping[str, Any], index: int) -> bool:
        if index not in self._given:
            return False
        theirs = self._given[index][1]
        if not metadata or not theirs:
            return True
        pairs = ((metadata.get(key), theirs.get(key)) for key in TELLING_METADATA)
        return all(mine == other for mine, other in pairs if mine and other)

    def _compare(self, content: str, mine: Sequence[str], index: int) -> bool | None:
        if index not in self._words:
            theirs = words(self._given[index][0])
            self._words[index] = theirs, frozenset(zip(theirs, theirs[1:], theirs[2:], strict=False))
        theirs, runs = self._words[index]
        if mine == theirs and (mine or content == self._given[index][0]):
            return True
        return False if _adds_nothing(content, mine, theirs, runs) else None


def _adds_nothing(content: str, mine: Sequence[str], theirs: Sequence[str], known: frozenset[tuple[str, ...]]) -> bool:
    """Whether a text says nothing that another does not, as far as its words tell.

    Nothing decisive and no name may be new: two policies that differ in a figure, a "not" or the product's name are
    two sources, however alike.
    """
    if len(mine) < LEAST_WORDS:
        return False
    runs = list(zip(mine, mine[1:], mine[2:], strict=False))
    new_runs = [run for run in runs if run not in known]
    if len(new_runs) > (1 - CONTAINED) * len(runs):
        return False
    if any(_DECISIVE.search(word) for run in new_runs for word in run):
        return False
    new = set(mine) - set(theirs)
    if len(new) > MOST_NEW_WORDS * len(mine):
        return False
    as_written = {word.lower(): word for word in _AS_WRITTEN.findall(content)}
    return all(as_written.get(word, word.upper()).islower() for word in new)
