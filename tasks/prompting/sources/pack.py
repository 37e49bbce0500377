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
from tasks.text.sentences import sentence_spans

# ---- duplicates -------------------------------------------------------------------------------------------------------

MANY_SOURCES = 100
"""Sources from which on a prompt takes milliseconds, however short they are."""

DISTINCTIVE_METADATA = ("title", "product_name", "document_type", "date")
"""The same words under another title, product or date mean something else: the prompt gets both sources."""


def search_text(text: str) -> str:
    """A text in lower case with ``?`` for each character beyond ASCII: ten times as fast as the real lower case."""
    return text.lower() if text.isascii() else text.encode("ascii", "replace").decode().lower()


def _agree(metadata: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tells whether two sources name no different document."""
    pairs = ((metadata.get(key), other.get(key)) for key in DISTINCTIVE_METADATA)
    return all(value == there for value, there in pairs if value and there)


# ---- token counts -----------------------------------------------------------------------------------------------------

ESTIMATE = "estimate"
"""Value of ``MessagesSnapshot.counted_by`` for an estimate."""


def quarter_tokens(text: str) -> int:
    """Estimated quarter tokens: 1 for an ASCII character, 2 for one of two bytes in UTF-8, 4 for a longer one.

    Checked against OpenAI's vocabularies o200k and cl100k (characters per token): English 5.3 and 5.3, German 4.6 and
    3.3, Spanish 4.3 and 3.7 (here: some 3.9); Arabic 3.2 and 1.4, Russian 4.1 and 2.2 (here 2); Chinese 1.4 and 0.9,
    Japanese 1.3 and 0.9, Hindi 3.7 and 1.1, Thai 2.2 and 1.0 (here 1). Prose is overestimated on purpose, because
    other makers' tokenizers use shorter tokens; tables of numbers are underestimated (1.4 characters a token against 4).
    """
    characters = len(text)
    if text.isascii():
        return characters
    beyond_first = len(text.encode(errors="surrogatepass")) - characters
    return characters + 2 * beyond_first - (characters - len(text.encode("ascii", "ignore")))


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
    search_texts: dict[int, str] = {}
    indexes: dict[str, list[int]] = {}
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
        same = indexes.setdefault(" ".join(content.split()).lower(), [])
        repeated = next((at for at in same if _agree(sources[index].metadata, sources[at].metadata)), None)
        if repeated is not None:
            left_out.append(LeftOut(source_index=index, reason=LeftOutReason.DUPLICATE, of=repeated))
            continue
        cost = _cost(content, counter)
        end = len(content)
        if cost > remaining:
            full = True
            end, cost = _trim(content, cost, remaining, counter)
            if end < _LEAST_TRIMMED and (parts or not end):
                left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BUDGET))
                continue
        same.append(index)
        search_texts[index] = search_text(content)
        parts[index] = share_field_names(SourcePart(source_index=index, start=0, end=end))
        remaining -= cost
    used = total - remaining
    return SourceSelection(
        parts=tuple(parts[index] for index in by_relevance(sources, list(parts))),
        left_out=tuple(sorted(left_out, key=lambda omission: omission.source_index)),
        source_tokens=-(-used // 4) if counter is ESTIMATED else used,
        counter=counter,
        search_texts=search_texts,
    )


def _counter(sources: tuple[SourceContext, ...], budget: int, model: str | None) -> Counter:
    exact = exact_counter(model)
    if exact is None:
        return ESTIMATED
    estimated = sum(quarter_tokens(source.content) for source in sources)
    return exact if estimated > NEAR_BUDGET * budget * 4 else ESTIMATED


def _cost(content: str, counter: Counter) -> int:
    """Tokens of a content; quarter tokens for an estimate, so that rounding loses nothing."""
    return quarter_tokens(content) if counter is ESTIMATED else counter.count(content)


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
