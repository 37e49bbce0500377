"""Tells whether the evidence of an answer is about the subject of its question."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import itemgetter, or_

from schemas.job import SourceContext
from tasks.questions.subject import EXPECTED, Masks, SubjectScore, is_expected, mask_source, read_question
from tasks.text.sentences import Span
from tasks.text.source_index import index_in_time

_LEAST_WORDS = 2
"""Words of content; a shorter question names no subject."""

_start, _end = itemgetter(0), itemgetter(1)


def is_about(
    query: str, previous: str, sources: Sequence[SourceContext], evidence: Sequence[tuple[int, Span]], least: float
) -> bool:
    """Tells whether evidence is about the subject of a question; true for a question of fewer than two words.

    The best part of the question counts. All evidence is read together, each piece with the whole passages it stands in,
    source by source as far as needed: another source never makes the score lower.

    Args:
        query: the question.
        previous: the question before it in a conversation, or nothing.
        sources: all sources of the job.
        evidence: each piece as the index of its source and its span there.
        least: the log-odds that it must reach.
    """
    parts = read_question(query, previous)
    if not parts or len(parts[0].stems) < _LEAST_WORDS:
        return True
    texts = [sources[number].content[span.start : span.end] for number, span in evidence]
    scorers = [
        (SubjectScore(part), EXPECTED if any(is_expected(part, text) for text in texts) else 0.0) for part in parts
    ]
    spans: defaultdict[int, list[Span]] = defaultdict(list)
    for number, span in evidence:
        spans[number].append(span)
    inside = beside = metadata = whole = 0
    title_share = 0.0
    for number, places in spans.items():
        index = index_in_time(sources[number].content)
        masks = mask_source(parts[0], index, sources[number].metadata)
        for place in places:
            first = bisect_right(index.spans, place.start, key=_end)
            last = bisect_left(index.spans, place.end, key=_start)
            inside |= reduce(or_, masks.passages[first:last], 0)
            beside |= reduce(or_, masks.passages[max(0, first - 1) : last + 1], 0)
        metadata |= masks.metadata
        whole |= masks.whole
        title_share = max(title_share, masks.title_share)
        together = Masks([], metadata, whole, title_share)
        if any(scorer.score(inside, beside, together) + bonus >= least for scorer, bonus in scorers):
            return True
    return False
