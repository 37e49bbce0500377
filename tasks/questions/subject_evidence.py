"""Tells whether the evidence of an answer is about the subject of its question."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import itemgetter, or_

from schemas.job import JobRequest
from tasks.questions.subject import Masks, Question, SubjectScore, mask_source, read_question, title_share
from tasks.text.sentences import Span
from tasks.text.source_index import index_in_time, metadata_stems
from tasks.text.wording import words_of

_LEAST_WORDS = 2
"""Words of content; a shorter question names no subject."""

_start, _end = itemgetter(0), itemgetter(1)


def is_about(request: JobRequest, evidence: Sequence[tuple[int, Span]], least: float) -> bool:
    """Tells whether evidence is about the subject of a question; true for a question of fewer than two words.

    All evidence is read together, each piece with the whole passages it stands in,
    source by source as far as needed: another source never makes the score lower.

    Args:
        request: the job.
        evidence: each piece as the index of its source and its span there.
        least: the log-odds that it must reach.
    """
    question, sources = read_question(request), request.context
    if question is None or len(question.stems) < _LEAST_WORDS:
        return True
    texts = [sources[number].content[span.start : span.end] for number, span in evidence]
    scorer = SubjectScore(question)
    spans: defaultdict[int, list[Span]] = defaultdict(list)
    for number, span in evidence:
        spans[number].append(span)
    # What surrounds the evidence only adds to it: mostly its own words are enough, and no source is read.
    inside = beside = _bits(question, chain.from_iterable(words_of(text).content for text in texts))
    metadata = _bits(question, chain.from_iterable(metadata_stems(sources[number].metadata) for number in spans))
    whole = inside | metadata
    share = max(title_share(question, sources[number].metadata) for number in spans)
    if scorer.score(inside, beside, Masks([], metadata, whole, share)) >= least:
        return True
    for number, places in spans.items():
        index = index_in_time(sources[number].content)
        masks = mask_source(question, index, sources[number].metadata)
        for place in places:
            first = bisect_right(index.spans, place.start, key=_end)
            last = bisect_left(index.spans, place.end, key=_start)
            inside |= reduce(or_, masks.passages[first:last], 0)
            beside |= reduce(or_, masks.passages[max(0, first - 1) : last + 1], 0)
        whole |= masks.whole
        if scorer.score(inside, beside, Masks([], metadata, whole, share)) >= least:
            return True
    return False


def _bits(question: Question, stems: Iterable[str]) -> int:
    """The bits of those words of a question that are among some stems."""
    present = frozenset(stems)
    return sum([1 << bit for bit, stem in enumerate(question.stems) if stem in present])
