"""Merges the parts of an answer that a model wrote more than once, with the citations of all of them."""
# ruff: noqa: RUF001 - full-width characters are meant

import re
from collections.abc import Sequence

from schemas.answer import CanonicalAnswer, Segment
from tasks.answers.rendered import fenced_blocks
from tasks.text.sentences import Span
from tasks.text.statements import without_place

_WORD = re.compile(r"[^\W_]+")
_LEAST_LETTERS = 12
"""Letters and digits from which a part that is no neighbour of its twin says the same again; "Press OK." may be meant twice."""
_ENDS = re.compile(r"[.!?。！？؟…:|]\W*\Z")


def merge_repeated(answer: CanonicalAnswer, *, steps: bool) -> CanonicalAnswer:
    """The answer with each part once, at its first place, citing all that its repetitions cite.

    Parts are compared without case, white space, punctuation and list markers; code and tables stay whole. Instructions
    may repeat a step later on, so of ``steps`` only neighbours are merged, and steps in the same order again. A last part
    that breaks off as the beginning of an earlier one goes, too: the model went round in a circle.
    """
    answer = _without_loops(answer)
    if len(answer.segments) < 2:  # noqa: PLR2004 - one has no twin
        return answer
    protected = _protected(answer.segments)
    keys = [() if whole else _key(segment.text) for segment, whole in zip(answer.segments, protected, strict=True)]
    if len(set(keys)) == len(keys) and not _breaks_off(keys, answer.segments[-1].text):
        return answer
    result: list[Segment] = []
    places: dict[tuple[str, ...], int] = {}
    pairs: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    before: tuple[str, ...] = ()
    for position, (segment, key) in enumerate(zip(answer.segments, keys, strict=True)):
        place = places.get(key) if key else None
        again = key == before or ((before, key) in pairs if steps else len("".join(key)) >= _LEAST_LETTERS)
        pairs.add((before, key))
        before = key or before
        if place is not None and again:
            first = result[place]
            cited = tuple(dict.fromkeys((*first.citations, *segment.citations)))
            result[place] = first.model_copy(update={"citations": cited})
        elif position != len(keys) - 1 or not _breaks_off(keys, segment.text):
            if key:
                places.setdefault(key, len(result))
            result.append(segment)
    return answer.model_copy(update={"segments": tuple(result)})


_LOOP = re.compile(r"(?P<phrase>\b\w[^\n]{11,200}?)(?:[ \t]*(?P=phrase)){2,}", re.IGNORECASE)
"""A phrase that is written three times and more without a break: a small model that found no end."""


_LEAST_WORDS = 12
_MOST_NEW = 0.4
"""Share of new words from which a text goes round in no circle; the search itself costs 6 us a word."""


def _without_loops(answer: CanonicalAnswer) -> CanonicalAnswer:
    if not any(_goes_round(segment.text) for segment in answer.segments):
        return answer
    segments = [
        segment.model_copy(update={"text": _LOOP.sub(lambda match: match["phrase"].rstrip(), segment.text)})
        if _goes_round(segment.text)
        else segment
        for segment in answer.segments
    ]
    return answer.model_copy(update={"segments": tuple(segments)})


def _goes_round(text: str) -> bool:
    listed = text.split()
    return len(listed) >= _LEAST_WORDS and len(set(listed)) < _MOST_NEW * len(listed)


def _key(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(without_place(text).casefold()))


def _breaks_off(keys: Sequence[tuple[str, ...]], last: str) -> bool:
    """Tells whether the last part is the beginning of an earlier one."""
    *earlier, key = keys
    if not key or _ENDS.search(last):
        return False
    text = " ".join(key)
    return any(" ".join(other).startswith(text) and other != key for other in earlier)


def _protected(segments: Sequence[Segment]) -> list[bool]:
    """True for each segment that holds a line of code or of a table, where a line may be meant twice."""
    text = "".join(segment.text for segment in segments)
    blocks = [Span(block.start, block.end) for block in fenced_blocks(text)]
    result = []
    start = 0
    for segment in segments:
        end = start + len(segment.text)
        in_code = any(start < block.end and block.start < end for block in blocks)
        result.append(in_code or segment.text.lstrip().startswith("|"))
        start = end
    return result
