"""Tells whether evidence is about the subject of a question, reading as little of its sources as that takes."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from schemas.job import SourceContext
from tasks.text.sentences import Span, latin_of_spans, letters_of, words
from tasks.text.source_index import metadata_stems, number_stems, passages_of
from tasks.text.subject import EXPECTED, Masks, Question, SubjectScore, is_expected, read_question, title_share
from tasks.text.wording import content_words, stem_of, words_of_number

_LEAST_WORDS = 2
"""Words of content; a shorter question names no subject."""

Reading = tuple[int, int, Masks]
"""The bits of some passages, of those beside them, and of their sources."""


def is_about(
    query: str, previous: str, sources: Sequence[SourceContext], spans: Iterable[tuple[int, Span]], least: float
) -> bool:
    """Tells whether evidence is about the subject of a question; true for a question of fewer than two words.

    The best part of the question counts, and all evidence is read together. Words of the evidence alone are a lower bound:
    only where it is too low are the others looked for in its sources, one by one, and only where their places count are the
    passages read.

    Args:
        query: the question.
        previous: the question before it in a conversation, or nothing.
        sources: all sources of the job.
        spans: the evidence, each as the index of its source and its span there.
        least: the log-odds that it must reach.
    """
    parts = read_question(query, previous)
    if not parts or len(parts[0].stems) < _LEAST_WORDS:
        return True
    evidence = list(spans)
    texts = [sources[source].content[span.start : span.end] for source, span in evidence]
    scorers = [
        (SubjectScore(part), EXPECTED if any(is_expected(part, text) for text in texts) else 0.0) for part in parts
    ]

    def reaches(reading: Reading) -> bool:
        return max([scorer.score(*reading) + bonus for scorer, bonus in scorers]) >= least

    question = parts[0]
    reading = quotes = read_quotes(question, sources, evidence)
    if reaches(quotes):
        return True
    for reading in with_words_elsewhere(question, sources, evidence, quotes):
        if reaches(reading):
            return True
    *_, masks = reading
    if not reaches((masks.whole, masks.whole, masks)):
        # Not even if each word of the sources stood within the evidence.
        return False
    return reaches(with_passages(question, sources, evidence, reading))


def read_quotes(question: Question, sources: Sequence[SourceContext], evidence: Sequence[tuple[int, Span]]) -> Reading:
    """The bits of the evidence itself, and of the metadata of its sources."""
    bits = {stem: 1 << position for position, stem in enumerate(question.stems)}
    quotes = "\n".join([_whole_words(sources[source].content, span) for source, span in evidence])
    inside = sum([bits[stem] for stem in stems_in(quotes, question.stems)])
    about = [sources[source].metadata for source in {source for source, _ in evidence}]
    metadata = sum([bits[stem] for stem in frozenset[str]().union(*map(metadata_stems, about)) & bits.keys()])
    share = max([title_share(question, each) for each in about], default=0.0)
    return inside, inside, Masks([], metadata, inside | metadata, share)


def with_words_elsewhere(
    question: Question, sources: Sequence[SourceContext], evidence: Iterable[tuple[int, Span]], quotes: Reading
) -> Iterator[Reading]:
    """The reading of quotes with the bits of the words that stand elsewhere in their sources: after each source with more."""
    inside, beside, masks = quotes
    whole = masks.whole
    for source in {source for source, _ in evidence}:
        if more := _bits_in(sources[source].content, question, whole):
            whole |= more
            yield inside, beside, Masks(masks.passages, masks.metadata, whole, masks.title_share)


def with_passages(
    question: Question, sources: Sequence[SourceContext], evidence: Sequence[tuple[int, Span]], reading: Reading
) -> Reading:
    """A reading with the bits of the whole passages of the evidence, and of those beside them.

    Args:
        question: one part of it.
        sources: all sources of the job.
        evidence: each as the index of its source and its span there.
        reading: of the evidence and of all words of its sources.
    """
    inside, _, masks = reading
    within: list[str] = []
    beside: list[str] = []
    for source, span in evidence:
        content = sources[source].content
        spans = passages_of(content)
        first = bisect_right(spans, span.start, key=_end)
        last = bisect_left(spans, span.end, key=_start)
        if first < last:
            within.append(content[spans[first][0] : spans[last - 1][1]])
        if near := spans[max(0, first - 1) : last + 1]:
            beside.append(content[near[0][0] : near[-1][1]])
    inside |= _bits_in("\n".join(within), question, inside)
    around = inside | _bits_in("\n".join(beside), question, inside)
    return inside, around, masks


_start = itemgetter(0)
_end = itemgetter(1)


# ---- words in a text ---------------------------------------------------------------------------------------------


def _bits_in(text: str, question: Question, but: int) -> int:
    """The bits of a question's words in a text, but for the bits ``but``."""
    missing = {stem: 1 << bit for bit, stem in enumerate(question.stems) if not but >> bit & 1}
    return sum([missing[stem] for stem in stems_in(text, missing)]) if missing else 0


def stems_in(text: str, stems: Collection[str]) -> set[str]:
    """The stems whose words stand in a text; to look for a few is faster than to read all words."""
    latin = latin_of_spans(text, ((0, len(text)),))
    if latin is None:
        return set(content_words(words(text)).intersection(stems))
    letters = f" {letters_of(latin).decode('latin-1')} "
    stand = {stem for stem in stems if _has_word(letters, stem)}
    if any(stem[0] <= _DIGIT_END for stem in stems):
        stand.update(number_stems(latin))
        stand.intersection_update(stems)
    return stand


_DIGIT_END = "9"


def _has_word(letters: str, stem: str) -> bool:
    """Tells whether a word of letters with a stem stands in a text of words between spaces."""
    if stem[0] <= _DIGIT_END:
        return any(_begins_word(letters, word, stem) for word in words_of_number(stem))
    # Words keep the letters of their stem, but for a y at its end.
    return _begins_word(letters, stem.removesuffix("i"), stem)


def _begins_word(letters: str, beginning: str, stem: str) -> bool:
    beginning = f" {beginning}"
    start = letters.find(beginning)
    while start >= 0:
        end = letters.find(" ", start + 1)
        if stem_of(letters[start + 1 : end]) == stem:
            return True
        start = letters.find(beginning, end)
    return False


def _whole_words(content: str, span: Span) -> str:
    """The text of a span without a word that begins before it or ends behind it."""
    start, end = span
    if start and content[start - 1].isalnum():
        while start < end and content[start].isalnum():
            start += 1
    if end < len(content) and content[end].isalnum():
        while end > start and content[end - 1].isalnum():
            end -= 1
    return content[start:end]
