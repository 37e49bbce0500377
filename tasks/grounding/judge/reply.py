"""Parses a judge's reply into findings: a verdict counts only if its quote is in a passage."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from schemas.grounding import Evidence, Verdict
from schemas.job import JobRequest
from schemas.model_call import SourcePart
from tasks.answers.citations import locate
from tasks.grounding.checkers import ClaimFinding
from tasks.grounding.judge.plan import Selection
from tasks.text.sentences import words
from tasks.text.wording import content_words

LEAST_QUOTED_WORDS = 2
"""Content words in a quote that carries a verdict: one alone is anywhere."""

_VERDICTS = {
    "supported": Verdict.SUPPORTED,
    "contradicted": Verdict.CONTRADICTED,
    "partial": Verdict.UNSUPPORTED,
    "unsupported": Verdict.UNSUPPORTED,
}

UNREADABLE = "the judge's reply could not be read"
OFF_THE_SCALE = "the judge gave something else than probabilities from 0 to 1"
LEFT_OUT = "the judge left it out"

_DECODER = json.JSONDecoder(strict=False)


def read_verdicts(reply: str, request: JobRequest, selection: Selection) -> list[ClaimFinding]:
    """Parses the judge's verdict on each claim, in the order of the request.

    ``verdict`` is None, with the reason, for a claim without an entry, with two different ones, or with a quote that
    stands in no passage. Never raises: an unreadable reply gives reasons only.
    """
    numbers = range(1, len(selection.claims) + 1)
    return list(read_alone(reply, request, dict.fromkeys(numbers, selection.passages)).values())


def read_alone(
    reply: str, request: JobRequest, passages: Mapping[int, Sequence[SourcePart]]
) -> dict[int, ClaimFinding]:
    """Parses the verdicts on some claims, each with its own passages alone.

    Args:
        reply: raw, maybe for another answer with the same claims and the same words in its windows.
        request: of the job with the sources.
        passages: by the claim's number in the reply.
    """
    entries = _entries_by_claim(reply)
    return {
        number: _finding(entries.get(number, []), request, listed, readable=bool(entries))
        for number, listed in passages.items()
    }


def _entries_by_claim(reply: str) -> dict[int, list[dict[str, Any]]]:
    return _by_number(_entries(reply), "claim")


def _by_number(entries: Iterable[dict[str, Any]], key: str) -> dict[int, list[dict[str, Any]]]:
    """The entries that have a number under a key, by this number."""
    numbered: dict[int, list[dict[str, Any]]] = {}
    for entry in entries:
        if type(number := entry.get(key)) is int:
            numbered.setdefault(number, []).append(entry)
    return numbered


def _entries(reply: str) -> Iterator[dict[str, Any]]:
    """Yields the entries of a reply; of a truncated or wrapped one, those that are whole."""
    try:
        value = orjson.loads(reply)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        value = value.get("verdicts")
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))
        return
    position = 0
    while (start := reply.find("{", position)) >= 0:
        position = start + 1
        try:
            entry, end = _DECODER.raw_decode(reply, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and "claim" in entry:
            yield entry
            position = end


def _finding(
    entries: Sequence[dict[str, Any]], request: JobRequest, passages: Sequence[SourcePart], *, readable: bool
) -> ClaimFinding:
    if not entries:
        return ClaimFinding(reason=LEFT_OUT if readable else UNREADABLE)
    labels = {str(entry.get("verdict")).strip().lower() for entry in entries}
    verdicts = set(map(_VERDICTS.get, labels))
    if len(verdicts) != 1 or None in verdicts:
        return ClaimFinding(reason="the judge gave no single verdict")
    verdict = verdicts.pop()
    entry = entries[0]
    quote = entry.get("quote")
    evidence = _evidence(quote if isinstance(quote, str) else "", entry.get("passage"), request, passages)
    if verdict is Verdict.UNSUPPORTED:
        reason = (
            "the judge finds only a part of it in the sources"
            if "partial" in labels
            else "the judge finds it in no source"
        )
        return ClaimFinding(verdict, evidence=evidence, reason=reason)
    if not evidence:
        return ClaimFinding(reason="the judge quotes words that stand in no passage: its verdict does not count")
    reason = "the judge finds that a source says otherwise" if verdict is Verdict.CONTRADICTED else ""
    return ClaimFinding(verdict, evidence=evidence, reason=reason)


def _evidence(quote: str, number: Any, request: JobRequest, passages: Sequence[SourcePart]) -> tuple[Evidence, ...]:
    """Locates a quote: in the passage of that number, else in another one of the prompt."""
    if len(content_words(words(quote))) < LEAST_QUOTED_WORDS:
        return ()
    for _, passage in sorted(enumerate(passages, start=1), key=lambda each: each[0] != number):
        content = request.context[passage.source_index].content[passage.start : passage.end]
        if (span := locate(quote, content)) is not None:
            start, end = passage.start + span.start, passage.start + span.end
            return (Evidence(source_index=passage.source_index, start=start, end=end),)
    return ()


# ---- of a judge that gives probabilities -----------------------------------------------------------------------

EVEN = 0.5
"""Least probability of a claim that a judge takes for supported."""


def read_probabilities(reply: str, request: JobRequest, selection: Selection) -> list[ClaimFinding]:
    """Parses the judge's probability of each claim, in the order of the request; ``score`` is the judge's own figure.

    Such a judge quotes nothing. The evidence is the lexical place, if a word of the claim is there; it does not
    show the judge's grounds, and the reason says so. ``verdict`` is None for a claim without an answer, with a declined
    one, or with two probabilities. One figure that is no probability voids the whole reply: the scale of the others is
    unknown. Never raises.
    """
    places = dict(enumerate(zip(selection.texts, selection.places, strict=True), start=1))
    return list(probabilities_at(reply, request, places).values())


def probabilities_at(
    reply: str, request: JobRequest, places: Mapping[int, tuple[str, SourcePart]]
) -> dict[int, ClaimFinding]:
    """Parses the probabilities of some claims, by their numbers in the reply, with the words and lexical place of each."""
    by_claim = _answers(reply)
    if not by_claim:
        return dict.fromkeys(places, ClaimFinding(reason=UNREADABLE))
    answers = chain.from_iterable(by_claim.values())
    if not all(_is_probability(answer["probability"]) for answer in answers if "probability" in answer):
        return dict.fromkeys(places, ClaimFinding(reason=OFF_THE_SCALE))
    return {
        number: _of_probability(by_claim.get(number, []), request, text, place)
        for number, (text, place) in places.items()
    }


def _answers(reply: str) -> dict[int, list[dict[str, Any]]]:
    """The answers of a reply, by the number of their question."""
    try:
        value = orjson.loads(reply)
    except orjson.JSONDecodeError:
        return {}
    entries = value.get("answers") if isinstance(value, dict) else None
    listed = entries if isinstance(entries, list) else ()
    return _by_number((entry for entry in listed if isinstance(entry, dict)), "question")


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _of_probability(
    answers: Sequence[dict[str, Any]], request: JobRequest, text: str, place: SourcePart
) -> ClaimFinding:
    if not answers:
        return ClaimFinding(reason=LEFT_OUT)
    probabilities = {float(answer["probability"]) for answer in answers if "probability" in answer}
    if not probabilities:
        return ClaimFinding(reason="the judge declined to answer")
    if len(probabilities) > 1:
        return ClaimFinding(reason="the judge gave no single probability")
    probability = probabilities.pop()
    place_words = content_words(words(request.context[place.source_index].content[place.start : place.end]))
    evidence: tuple[Evidence, ...] = ()
    if probability >= EVEN and content_words(words(text)) & place_words:
        evidence = (Evidence(source_index=place.source_index, start=place.start, end=place.end),)
    reason = f"the judge gives it a probability of {probability:.2f} and quotes nothing"
    if evidence:
        reason += "; the passage is where its words stand"
    verdict = Verdict.SUPPORTED if probability >= EVEN else Verdict.UNSUPPORTED
    return ClaimFinding(verdict, probability, evidence, reason=reason)
