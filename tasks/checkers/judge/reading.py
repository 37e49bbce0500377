"""Read a judge's reply: one finding per claim asked about, and no verdict without words that really stand there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from schemas.grounding import Evidence, Verdict
from schemas.job import JobRequest
from schemas.prompt import SourcePart
from tasks.checkers.answer import ClaimFinding
from tasks.checkers.judge.asking import Asked, Passage
from tasks.text.evidence import content_words
from tasks.text.quotes import locate
from tasks.text.sentences import words

LEAST_QUOTED_WORDS = 2
"""Words of content in a quote that carries a verdict: one alone stands anywhere."""

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


def read_verdicts(reply: str, request: JobRequest, asked: Asked) -> list[ClaimFinding]:
    """What the judge says of each claim, in the order asked.

    ``verdict`` is None, with the reason, for a claim that it left out, answered twice in different ways, or decided by
    a quote that stands in no passage. Never raises: a reply that can't be read gives nothing but reasons.
    """
    said = _said(reply)
    return [
        _finding(said.get(number, []), request, asked.passages, readable=bool(said))
        for number in range(1, len(asked.claims) + 1)
    ]


def read_alone(reply: str, request: JobRequest, windows: Mapping[int, Sequence[SourcePart]]) -> dict[int, ClaimFinding]:
    """What a reply says of some of its claims, each read with nothing but that claim's own windows of the sources.

    Args:
        reply: as the judge gave it, maybe for another answer with the same claims and the same words in its windows.
        request: the job whose sources are meant.
        windows: by the claim's number in the reply.
    """
    said = _said(reply)
    return {
        number: _finding(
            said.get(number, []),
            request,
            [Passage(0, part.source_index, part.start, part.end) for part in parts],
            readable=bool(said),
        )
        for number, parts in windows.items()
    }


def _said(reply: str) -> dict[int, list[dict[str, Any]]]:
    said: dict[int, list[dict[str, Any]]] = {}
    for entry in _entries(reply):
        number = entry.get("claim")
        if isinstance(number, int) and not isinstance(number, bool):
            said.setdefault(number, []).append(entry)
    return said


def _entries(reply: str) -> Iterator[dict[str, Any]]:
    """The entries of a reply; of one that breaks off or is wrapped in words, those that are whole."""
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
    said: Sequence[dict[str, Any]], request: JobRequest, passages: Sequence[Passage], *, readable: bool
) -> ClaimFinding:
    if not said:
        return ClaimFinding(reason=LEFT_OUT if readable else UNREADABLE)
    verdicts = {_VERDICTS.get(str(entry.get("verdict")).strip().lower()) for entry in said}
    if len(verdicts) != 1 or None in verdicts:
        return ClaimFinding(reason="the judge gave no single verdict")
    verdict = verdicts.pop()
    entry = said[0]
    partial = str(entry.get("verdict")).strip().lower() == "partial"
    quote = entry.get("quote")
    evidence = _evidence(quote if isinstance(quote, str) else "", entry.get("passage"), request, passages)
    if verdict is Verdict.UNSUPPORTED:
        reason = "the judge finds only a part of it in the sources" if partial else "the judge finds it in no source"
        return ClaimFinding(verdict, evidence=evidence, reason=reason)
    if not evidence:
        return ClaimFinding(reason="the judge quotes words that stand in no passage: its verdict does not count")
    reason = "the judge finds that a source says otherwise" if verdict is Verdict.CONTRADICTED else ""
    return ClaimFinding(verdict, evidence=evidence, reason=reason)


def _evidence(quote: str, named: Any, request: JobRequest, passages: Sequence[Passage]) -> tuple[Evidence, ...]:
    """Where the quoted words stand: in the passage named, else in another that was shown."""
    if len(content_words(words(quote))) < LEAST_QUOTED_WORDS:
        return ()
    for passage in sorted(passages, key=lambda one: one.number != named):
        shown = request.context[passage.source_index].content[passage.start : passage.end]
        if (found := locate(quote, shown)) is not None:
            start, end = passage.start + found.start, passage.start + found.end
            return (Evidence(source_index=passage.source_index, start=start, end=end),)
    return ()


# ---- of a judge that gives probabilities -----------------------------------------------------------------------

EVEN = 0.5
"""From this probability on a judge takes a claim to be supported."""


def read_probabilities(reply: str, request: JobRequest, asked: Asked) -> list[ClaimFinding]:
    """What a judge that only gives probabilities says of each claim, in the order asked: ``score`` is its own figure.

    It quotes nothing. The evidence is our own place, where a word of the claim stands there; it proves nothing of what
    the judge relied on, and the reason says so. ``verdict`` is None for a claim that it left out, declined or gave two
    probabilities. One figure that is no probability makes the whole reply void: nobody knows what scale the others are on.
    Never raises.
    """
    found = probabilities_at(reply, request, dict(enumerate(zip(asked.texts, asked.places, strict=True), start=1)))
    return [found[number] for number in range(1, len(asked.claims) + 1)]


def probabilities_at(
    reply: str, request: JobRequest, places: Mapping[int, tuple[str, SourcePart]]
) -> dict[int, ClaimFinding]:
    """The same for some claims of a reply, by their numbers there: the words of each, and our own place of it."""
    answers = _answers(reply)
    if answers is None:
        return dict.fromkeys(places, ClaimFinding(reason=UNREADABLE))
    if not all(_is_probability(one["probability"]) for one in answers if "probability" in one):
        return dict.fromkeys(places, ClaimFinding(reason=OFF_THE_SCALE))
    said: dict[int, list[dict[str, Any]]] = {}
    for one in answers:
        said.setdefault(one["question"], []).append(one)
    return {
        number: _of_probability(said.get(number, []), request, text, place) for number, (text, place) in places.items()
    }


def _answers(reply: str) -> list[dict[str, Any]] | None:
    """The answers of a reply; None: it holds none."""
    try:
        value = orjson.loads(reply)
    except orjson.JSONDecodeError:
        return None
    entries = value.get("answers") if isinstance(value, dict) else None
    found = [
        entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and type(entry.get("question")) is int
    ]
    return found or None


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _of_probability(said: Sequence[dict[str, Any]], request: JobRequest, text: str, place: SourcePart) -> ClaimFinding:
    if not said:
        return ClaimFinding(reason=LEFT_OUT)
    given = {float(one["probability"]) for one in said if "probability" in one}
    if not given:
        return ClaimFinding(reason="the judge declined to answer")
    if len(given) > 1:
        return ClaimFinding(reason="the judge gave no single probability")
    probability = given.pop()
    words_there = content_words(words(request.context[place.source_index].content[place.start : place.end]))
    evidence: tuple[Evidence, ...] = ()
    if probability >= EVEN and content_words(words(text)) & words_there:
        evidence = (Evidence(source_index=place.source_index, start=place.start, end=place.end),)
    told = f"the judge gives it a probability of {probability:.2f} and quotes nothing"
    if evidence:
        told += "; the passage is where its words stand"
    verdict = Verdict.SUPPORTED if probability >= EVEN else Verdict.UNSUPPORTED
    return ClaimFinding(verdict, probability, evidence, reason=told)
