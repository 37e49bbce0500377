"""Fits a job's sources into its token budget: best first, without duplicates, the last one cut at a sentence end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from schemas.job import JobRequest, SourceContext
from schemas.prompt import LeftOut, LeftOutReason, SourcePart
from tasks.prompting.sources.duplicates import ShownSources
from tasks.prompting.sources.token_count import ESTIMATED, Counter, exact_counter, quarter_tokens
from tasks.text.sentences import sentence_spans


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
        search_texts: the whole contents of the sources in the prompt in the form of ``duplicates.search_text``, by index.
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
        parts[index] = SourcePart(source_index=index, start=0, end=end)
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
