"""Parses the canonical JSON answer of a model and repairs common defects within bounds."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation

_DECODER = json.JSONDecoder(strict=False)
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')
_SEGMENTS_KEY = re.compile(r'"segments"\s*:\s*\[')
_SUFFICIENT_KEY = re.compile(r'"sufficient"\s*:\s*(true|false)')
_DIGITS = re.compile(r"\d{1,4}")
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_OPENS_LINE = re.compile(r"(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|#{1,6}[ \t]|\||```)")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}”’»…%|")
_NO_SPACE_AFTER = frozenset("([{„“‘«")


@dataclass(frozen=True, slots=True)
class ParsedSegments:
    """A parsed answer: ``complete`` is False if a part was lost, ``repairs`` names each repair."""

    answer: CanonicalAnswer
    data: dict[str, Any] | None
    complete: bool
    repairs: tuple[str, ...]


def parse_segments(text: str) -> ParsedSegments | None:
    """Parses a SEGMENTS answer; None if the text contains no such object."""
    repairs: list[str] = []
    raw = _load(text, repairs)
    complete = raw is not None
    if raw is None:
        raw = _salvage(text)
        repairs = ["the answer's JSON breaks off or is damaged; its readable segments were kept"]
    if raw is None or not isinstance(raw.get("segments"), list):
        return None
    segments, lost = _segments(raw["segments"])
    if lost:
        repairs.append(f"{lost} segment(s) without text were removed")
    data = raw.get("data")
    answer = CanonicalAnswer(segments=_join(segments), sufficient=raw.get("sufficient") is not False)
    return ParsedSegments(answer, data if isinstance(data, dict) else None, complete and not lost, tuple(repairs))


def _load(text: str, repairs: list[str]) -> dict[str, Any] | None:
    """The first JSON object of the text: parsed strictly, then inside a fence or prose, then without trailing commas."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        return value if isinstance(value, dict) else None
    candidates = [match.group(1) for match in [_FENCE.search(text)] if match] + [text]
    for candidate in candidates:
        start = candidate.find("{")
        if start < 0:
            continue
        body = candidate[start:]
        for attempt, repair in (
            (body, "text around the answer's JSON was removed"),
            (_TRAILING_COMMA.sub(lambda match: match.group(1) or "", body), "trailing commas were removed"),
        ):
            value = _decode(attempt)
            if isinstance(value, dict) and "segments" in value:
                repairs.append(repair)
                return value
    return None


def _decode(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _salvage(text: str) -> dict[str, Any] | None:
    """The complete segments of a truncated answer."""
    key = _SEGMENTS_KEY.search(text)
    if not key:
        return None
    position = key.end()
    segments = []
    while (start := text.find("{", position)) >= 0:
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        segments.append(value)
    if not segments:
        return None
    sufficient = _SUFFICIENT_KEY.search(text)
    return {"segments": segments, "sufficient": not (sufficient and sufficient.group(1) == "false")}


def _segments(raw: list[Any]) -> tuple[list[Segment], int]:
    """The segments with text and the number without; citations without text move to the previous segment."""
    segments: list[Segment] = []
    lost = 0
    for item in raw:
        value = {"text": item} if isinstance(item, str) else item
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            lost += 1
            continue
        citations = _citations(value.get("citations"))
        if text.strip():
            segments.append(Segment(text=text, citations=citations))
        elif citations and segments:
            previous = segments.pop()
            segments.append(Segment(text=previous.text, citations=previous.citations + citations))
    return segments, lost


def _citations(raw: Any) -> tuple[SegmentCitation, ...]:
    if raw is None:
        return ()
    citations = []
    for item in raw if isinstance(raw, list) else [raw]:
        source = item.get("source") if isinstance(item, dict) else item
        quote = item.get("quote") if isinstance(item, dict) else ""
        number = _source_number(source)
        if number is not None:
            citations.append(SegmentCitation(source=number, quote=quote if isinstance(quote, str) else ""))
    return tuple(citations)


def _source_number(value: Any) -> int | None:
    """A source number; models also write ``"2"``, ``"[2]"`` and ``"Source 2"``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    digits = _DIGITS.search(value) if isinstance(value, str) else None
    return int(digits.group()) if digits else None


def _join(segments: list[Segment]) -> tuple[Segment, ...]:
    """The segments with the white space between them added to their texts."""
    joined: list[Segment] = []
    before = ""
    for segment in segments:
        separator = _separator(before, segment.text) if before else ""
        joined.append(Segment(text=separator + segment.text, citations=segment.citations) if separator else segment)
        before = segment.text
    return tuple(joined)


def _separator(before: str, text: str) -> str:
    last, first = before[-1], text[0]
    if last.isspace() or first.isspace():
        return ""
    if _OPENS_LINE.match(text) or before.lstrip().startswith("#"):
        return "\n"
    if first in _NO_SPACE_BEFORE or last in _NO_SPACE_AFTER or (_WIDE.match(last) and _WIDE.match(first)):
        return ""
    return " "
