"""Fits a job's sources into its token budget: best first, without duplicates, the last one cut at a sentence end."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import zip_longest
from typing import Any

from schemas.base import share_field_names
from schemas.job import JobRequest, SourceContext
from schemas.model_call import LeftOut, LeftOutReason, SourcePart
from tasks.text.language import language_tables, word_set
from tasks.text.sentences import sentence_spans, words

# ---- duplicates -------------------------------------------------------------------------------------------------------

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
MOST_SEARCHED = 100
"""Sources, the best, among which a near-duplicate is looked for: among all of 2,000 it would take seconds of the workers' loop."""

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
        self._sources: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._words: dict[int, list[str]] = {}

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
        self._sources[index] = content, metadata
        self._whole.setdefault(whole, []).append(index)
        if len(self._plain) < MOST_SEARCHED:
            self._plain[index] = plain
            self._pieces[index] = pieces
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
            common = ((len(other & pieces), index) for index, other in self._pieces.items())
            votes = sorted(common, key=lambda vote: (-vote[0], vote[1]))
            return [index for count, index in votes if count >= _SHARED * len(pieces)]
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
            self._words[index] = words(self._sources[index][0])
        other_tokens = self._words[index]
        if tokens == other_tokens and (tokens or content == self._sources[index][0]):
            return True
        return False if _adds_nothing(content, tokens, other_tokens) else None


def _adds_nothing(content: str, tokens: Sequence[str], other_tokens: Sequence[str]) -> bool:
    """Tells whether a text adds nothing to another one, as far as its words tell.

    A new figure, negation or name is an addition: two policies that differ only in an amount, a "not" or the product's
    name are two sources.
    """
    new = set(tokens).difference(other_tokens)
    if len(tokens) < LEAST_WORDS or len(new) > MOST_NEW_WORDS * len(tokens):
        return False
    runs, other_runs = _runs(tokens), frozenset(_runs(other_tokens))
    new_runs = [run for run in runs if run not in other_runs]
    if len(new_runs) > (1 - CONTAINED) * len(runs):
        return False
    if any(_decisive().search(word) for run in new_runs for word in run):
        return False
    as_written = {word.lower(): word for word in _AS_WRITTEN.findall(content)}
    return all(as_written.get(word, word.upper()).islower() for word in new)


def _runs(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    """The runs of three words of a text."""
    return list(zip(tokens, tokens[1:], tokens[2:], strict=False))


# ---- token counts -----------------------------------------------------------------------------------------------------

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


# ---- the selection ----------------------------------------------------------------------------------------------------


def rank_sources(sources: Sequence[SourceContext]) -> list[int]:
    """The indexes of the sources, best first.

    Sources with a relevance score come first, by falling score; ties and sources without a score stay in the order of
    the request. Several sub-queries alternate, the best source of each first, so that a small budget still has the
    best source of each sub-query.
    """
    queries = dict.fromkeys(source.sub_query for source in sources)
    if len(queries) < 2:  # noqa: PLR2004 - one group is no group
        return by_relevance(sources, range(len(sources)))
    groups: dict[str | None, list[int]] = {query: [] for query in queries}
    for index, source in enumerate(sources):
        groups[source.sub_query].append(index)
    turns = zip_longest(*(by_relevance(sources, group) for group in groups.values()))
    return [index for turn in turns for index in turn if index is not None]


def by_relevance(sources: Sequence[SourceContext], indexes: Sequence[int]) -> list[int]:
    """The indexes by their sources' relevance, highest first; stable, with sources without a score last."""
    return sorted(indexes, key=lambda index: _rank(sources[index].relevance_score))


def _rank(score: float | None) -> tuple[bool, float]:
    return (score is None, -(score or 0.0))


def sub_queries(sources: Sequence[SourceContext]) -> tuple[str, ...]:
    """The sub-queries of the sources, each once, in order of first appearance."""
    return tuple(dict.fromkeys(query for source in sources if (query := (source.sub_query or "").strip())))


NEAR_BUDGET = 0.85
"""Share of the budget above which the model's own tokenizer replaces the estimate (0.4 ms for 20 KB); sources below it
fit in any case."""

_WORD = re.compile(r"\w")

_LEAST_TRIMMED = 200
"""Characters; a source whose trimmed part is shorter is omitted."""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The selection of sources for a prompt.

    Attributes:
        parts: a span of each source in the prompt, in the order of their numbers.
        left_out: the omitted sources, by index, each with its reason.
        source_tokens: tokens of the parts.
        counter: the token counter.
        search_texts: the whole contents of the sources in the prompt in the form of ``search_text``, by index.
    """

    parts: tuple[SourcePart, ...]
    left_out: tuple[LeftOut, ...]
    source_tokens: int
    counter: Counter
    search_texts: Mapping[int, str]


def pack(request: JobRequest, model: str | None = None) -> SourceSelection:
    """Selects sources within ``max_context_tokens``, counted with the tokenizer of ``model`` if there is one."""
    sources = request.context
    budget = request.config.max_context_tokens
    counter = _counter(sources, budget, model or request.config.model)
    selection = ShownSources()
    parts: dict[int, SourcePart] = {}
    left_out: list[LeftOut] = []
    remaining = budget * 4 if counter is ESTIMATED else budget
    total = remaining
    full = False
    for index in rank_sources(sources):
        content = sources[index].content
        if full:
            left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BUDGET))
            continue
        if not _WORD.search(content):
            left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BLANK))
            continue
        repeats = selection.add(index, content, sources[index].metadata)
        if repeats is not None:
            reason = LeftOutReason.DUPLICATE if repeats[1] else LeftOutReason.NEAR_DUPLICATE
            left_out.append(LeftOut(source_index=index, reason=reason, of=repeats[0]))
            continue
        cost = _cost(content, counter, selection.beyond_ascii[index])
        end = len(content)
        if cost > remaining:
            full = True
            end, cost = _trim(content, cost, remaining, counter)
            if end < _LEAST_TRIMMED and (parts or not end):
                selection.remove(index)
                left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BUDGET))
                continue
        parts[index] = share_field_names(SourcePart(source_index=index, start=0, end=end))
        remaining -= cost
    used = total - remaining
    return SourceSelection(
        parts=tuple(parts[index] for index in by_relevance(sources, list(parts))),
        left_out=tuple(sorted(left_out, key=lambda omission: omission.source_index)),
        source_tokens=-(-used // 4) if counter is ESTIMATED else used,
        counter=counter,
        search_texts=selection.search_texts,
    )


def _counter(sources: tuple[SourceContext, ...], budget: int, model: str | None) -> Counter:
    exact = exact_counter(model)
    if exact is None:
        return ESTIMATED
    estimated = sum(quarter_tokens(source.content) for source in sources)
    return exact if estimated > NEAR_BUDGET * budget * 4 else ESTIMATED


def _cost(content: str, counter: Counter, beyond_ascii: int | None = None) -> int:
    """Tokens of a content; quarter tokens for an estimate, so that rounding loses nothing."""
    return quarter_tokens(content, beyond_ascii) if counter is ESTIMATED else counter.count(content)


def _trim(content: str, cost: int, budget: int, counter: Counter) -> tuple[int, int]:
    """The end and the cost of a source trimmed to the remaining budget."""
    limit = len(content) * budget // cost
    for _ in range(_TRIES):
        end = _sentence_end(content, limit)
        cost = _cost(content[:end], counter)
        if cost <= budget:
            return end, cost
        # The beginning has more tokens per character than the whole.
        limit = min(end - 1, end * budget // cost)
    return 0, 0


def _sentence_end(text: str, limit: int) -> int:
    """The last sentence end at or before ``limit``; ``limit`` itself when the first sentence is longer."""
    # A margin beyond the limit lets a sentence that ends exactly there be complete.
    ends = [span.end for span in sentence_spans(text[: limit + 200]) if span.end <= limit]
    return ends[-1] if ends else limit
