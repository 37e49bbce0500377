"""Fit a job's sources into its budget: best first, each once, the last one cut at a sentence end."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.job import JobRequest, SourceContext
from schemas.prompt import LeftOut, LeftOutReason, SourcePart
from tasks.context.duplicates import Shown
from tasks.context.order import by_relevance, ranked
from tasks.context.tokens import ESTIMATED, Counter, exact_counter, quarter_tokens
from tasks.text.sentences import sentence_spans

NEAR_BUDGET = 0.85
"""Share of the budget from which an estimate is not good enough and the model's own tokenizer is asked (0.4 ms for
20 KB): what is estimated to fill less fits anyway."""

_LEAST_TRIMMED = 200
"""Characters; a source of which less would be left is left out."""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Packed:
    """What is shown of the sources.

    Attributes:
        parts: a span of each shown source, in the order of their numbers.
        left_out: the others, by index, each with its reason.
        source_tokens: of the parts.
        counter: what counted them.
        searchable: the shown sources' whole contents as ``duplicates.searchable`` makes them, by index.
    """

    parts: tuple[SourcePart, ...]
    left_out: tuple[LeftOut, ...]
    source_tokens: int
    counter: Counter
    searchable: Mapping[int, str]


def pack(request: JobRequest, model: str | None = None) -> Packed:
    """Choose what is shown of the sources within ``max_context_tokens``, counted for ``model`` where it is known."""
    sources = request.context
    budget = request.config.max_context_tokens
    counter = _counter(sources, budget, model or request.config.model)
    shown = Shown()
    parts: dict[int, SourcePart] = {}
    left_out: list[LeftOut] = []
    left = budget * 4 if counter is ESTIMATED else budget
    total = left
    full = False
    for index in ranked(sources):
        content = sources[index].content
        if full:
            left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BUDGET))
            continue
        repeats = shown.add(index, content, sources[index].metadata)
        if repeats is not None:
            reason = LeftOutReason.DUPLICATE if repeats[1] else LeftOutReason.NEAR_DUPLICATE
            left_out.append(LeftOut(source_index=index, reason=reason, of=repeats[0]))
            continue
        cost = _cost(content, counter, shown.beyond_ascii[index])
        end = len(content)
        if cost > left:
            full = True
            end, cost = _trimmed(content, cost, left, counter)
            if end < _LEAST_TRIMMED and (parts or not end):
                shown.remove(index)
                left_out.append(LeftOut(source_index=index, reason=LeftOutReason.BUDGET))
                continue
        parts[index] = SourcePart(source_index=index, start=0, end=end)
        left -= cost
    used = total - left
    return Packed(
        parts=tuple(parts[index] for index in by_relevance(sources, list(parts))),
        left_out=tuple(sorted(left_out, key=lambda one: one.source_index)),
        source_tokens=-(-used // 4) if counter is ESTIMATED else used,
        counter=counter,
        searchable=shown.searchable,
    )


def _counter(sources: tuple[SourceContext, ...], budget: int, model: str | None) -> Counter:
    exact = exact_counter(model)
    if exact is None:
        return ESTIMATED
    estimated = sum(quarter_tokens(source.content) for source in sources)
    return exact if estimated > NEAR_BUDGET * budget * 4 else ESTIMATED


def _cost(content: str, counter: Counter, beyond_ascii: int | None = None) -> int:
    """Tokens of a content, or quarter tokens where they are estimated, so that nothing is lost by rounding."""
    return quarter_tokens(content, beyond_ascii) if counter is ESTIMATED else counter.count(content)


def _trimmed(content: str, cost: int, left: int, counter: Counter) -> tuple[int, int]:
    """Where to cut a source that costs more than is left, and what it costs then."""
    limit = len(content) * left // cost
    for _ in range(_TRIES):
        end = _sentence_end(content, limit)
        cost = _cost(content[:end], counter)
        if cost <= left:
            return end, cost
        # Its beginning is denser than the whole.
        limit = min(end - 1, end * left // cost)
    return 0, 0


def _sentence_end(text: str, limit: int) -> int:
    """The last sentence end at or before ``limit``; ``limit`` itself when the first sentence is longer."""
    # A little beyond the limit, so that a sentence that ends exactly there is seen whole.
    ends = [span.end for span in sentence_spans(text[: limit + 200]) if span.end <= limit]
    return ends[-1] if ends else limit
