"""Reads the segments of an answer from a model's JSON: whole, fenced, in another shape, cut off or damaged."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from tasks.answers.rendered import with_separators
from tasks.answers.thoughts import OWN_KEY

_DECODER = json.JSONDecoder(strict=False)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')
_SEGMENTS_KEY = re.compile(r'"segments"\s*:\s*\[')
_SUFFICIENT_KEY = re.compile(r'"sufficient"\s*:\s*(true|false)')
_BARE = re.compile(
    r"\s*(?P<fence>```(?:json\w?)?\s*)?"
    r"(?:\{\s*(?:[\"'}]|(?:sufficient|segments|text|answer|response)\s*:)|\[\s*(?:[{\"']|\]\s*(?:```\s*)?\Z))",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d{1,4}")
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")

_TEXT_KEYS = ("text", "answer", "response", "content", "final_answer", "sentence", "statement", "claim", "segment", "output",
              "result", "message", "reply")  # fmt: skip
"""Keys under which models put the text of an answer or of a segment, the requested one first."""
_CITATION_KEYS = ("citations", "citation", "sources", "source", "references")
_SOURCE_KEYS = ("source", "node_id", "chunk_id", "source_id")
"""Keys of the source in a citation, by its number or its chunk id."""
_WRAPPERS = ("arguments", "parameters", "input", "json", "data", "body")
"""Keys around a whole answer, such as those of a tool call."""
_DEEPEST = 6
"""Most wrappers around an answer."""

MAX_REPAIRED = 65_536
"""Longest text that is repaired; a longer one is no answer of a model with a limit of tokens."""
_DEEPEST_REPAIRED = 64
"""Deepest nesting that is repaired: the library's time grows with it, 1 s for 2,000 levels."""
_LEAST_WORDS = 3
"""Words of a string in JSON of an unknown shape from which it counts as text of the answer."""

BROKEN = "the answer's JSON breaks off or is damaged; its readable segments were kept"
REPAIRED = "the answer's JSON was damaged; it was repaired"
_OTHER_SHAPE = "the answer's JSON has another shape than requested; its text was taken from it"
_ONLY_TEXT = "the answer is JSON of an unknown shape; only its text was kept"
_AROUND = "text around the answer's JSON was removed"


@dataclass(frozen=True, slots=True)
class ParsedSegments:
    """A parsed answer.

    Attributes:
        complete: False if a part was lost.
        repairs: each repair, in words.
        usual: False for JSON of an unknown shape, of which only the text was kept.
    """

    answer: CanonicalAnswer
    data: dict[str, Any] | None
    complete: bool
    repairs: tuple[str, ...]
    usual: bool = True


def is_json_reply(text: str) -> bool:
    """Tells whether a reply that should be running text is JSON: it starts so, or holds the keys of an answer."""
    return _BARE.match(text) is not None or ("{" in text and OWN_KEY.search(text) is not None)


def parse_segments(text: str, ids: Mapping[str, int] | None = None) -> ParsedSegments | None:
    """Parses a reply as JSON; None if it is none, or a JSON string or number, which is running text.

    Args:
        text: the reply.
        ids: the numbers of sources by their chunk ids, by which a model may cite them, too.
    """
    repairs: list[str] = []
    value, complete = _load(text, repairs)
    if value is None:
        return None
    items = _items_of(value)
    usual = bool(items) or (items is not None and _has_segments(value))
    if items is None or not usual:
        items = [{"text": text} for text in _strings(value)]
        complete = False
        repairs.append(_ONLY_TEXT)
    elif not _has_segments(value):
        repairs.append(_OTHER_SHAPE)
    segments, lost = _segments(items, ids or {})
    if lost:
        repairs.append(f"{lost} segment(s) without text were removed")
    data = value.get("data") if isinstance(value, dict) else None
    sufficient = not (isinstance(value, dict) and value.get("sufficient") is False)
    answer = CanonicalAnswer(segments=with_separators(segments), sufficient=sufficient)
    data = data if isinstance(data, dict) else None
    return ParsedSegments(answer, data, complete and not lost, tuple(repairs), usual)


def whole_segments(text: str) -> list[Segment]:
    """The whole segments of an answer that is still being written."""
    value = _salvage(text)
    return [] if value is None else list(with_separators(_segments(_items_of(value) or [], {})[0]))


def plain_string(text: str) -> str:
    """The text of a reply that is one JSON string, a number or null; any other reply itself."""
    stripped = text.strip()
    if stripped in {"null", "true", "false", "None"}:
        return ""
    if len(stripped) > 1 and stripped[0] == stripped[-1] == '"':
        value = _decode(stripped)
        return value if isinstance(value, str) else text
    return text


# ---- loading ------------------------------------------------------------------------------------------------------


def _load(text: str, repairs: list[str]) -> tuple[Any, bool]:
    """The JSON of a text and True if it is whole: strictly, in a fence or prose, without trailing commas, repaired."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        return (value, True) if isinstance(value, dict | list) else (None, False)
    for candidate, repair in _candidates(text):
        if values := list(_decode_all(candidate)):
            repairs.append(repair)
            return _together(values), True
    return _load_damaged(text, repairs)


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a text that may be its JSON, each with the repair it stands for."""
    yield text, _AROUND
    if "," in text:
        yield _TRAILING_COMMA.sub(lambda match: match.group(1) or "", text), "trailing commas were removed"


def _decode_all(text: str) -> Iterator[Any]:
    """The answers in a text, each from its first bracket; other JSON (a bracketed number, code) is passed over."""
    position = 0
    for _ in range(_DEEPEST_REPAIRED):
        start = min(
            (place for place in (text.find("{", position), text.find("[{", position)) if place >= 0), default=-1
        )
        if start < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            return
        if _is_answer(value):
            yield value


def _together(values: Sequence[Any]) -> Any:
    """One answer of several: some models repeat it, others write an object a sentence."""
    if len(values) == 1:
        return values[0]
    items = [item for value in values for item in _items_of(value) or ()]
    first = next((value for value in values if isinstance(value, dict)), {})
    data = next((value["data"] for value in values if isinstance(value, dict) and "data" in value), None)
    return {"segments": items, "sufficient": first.get("sufficient", True), "data": data}


def _decode(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _load_damaged(text: str, repairs: list[str]) -> tuple[Any, bool]:
    """The readable part of damaged JSON: the whole segments before a break, else what the repair makes of it."""
    if (salvaged := _salvage(text)) is not None:
        repairs.append(BROKEN)
        return salvaged, False
    if not is_json_reply(text) and "```json" not in text:
        return None, False
    start = OWN_KEY.search(text) or re.search(r"[\[{]", text)
    body = text[start.start() :] if start else ""
    value = _repair(body)
    if not isinstance(value, dict | list):
        # JSON that nobody can read is no running text either.
        repairs.append(BROKEN)
        return {"segments": []}, False
    whole = _is_answer(value) and _words_of(body) <= _words_of(json.dumps(value, ensure_ascii=False)) and _closed(body)
    repairs.append(REPAIRED if whole else BROKEN)
    return value, whole


def _repair(text: str) -> Any:
    if len(text) > MAX_REPAIRED or _nesting(text) > _DEEPEST_REPAIRED:
        return None
    import json_repair  # noqa: PLC0415 - 30 ms, for damaged answers only

    try:
        return json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _closed(text: str) -> bool:
    return text.rstrip("` \n\t;").endswith(("}", "]"))


def _words_of(text: str) -> set[str]:
    """The words of JSON, to compare what a repair kept; literals are written differently in Python's form."""
    return set(re.findall(r"\w+", re.sub(r"\\[nrtbfu\"']", " ", text.lower()))) - {"none", "null", "json"}


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


# ---- shapes -------------------------------------------------------------------------------------------------------


def _has_segments(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("segments"), list)


def _is_answer(value: Any) -> bool:
    return _has_segments(value) or bool(_items_of(value))


def _items_of(value: Any, depth: int = 0) -> list[Any] | None:
    """The segments of JSON in the requested shape or in a usual other one; None for an unknown shape."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, str):
        return _nested_items(value, depth) or [value]
    if isinstance(value, list):
        parts = [(item, _items_of(item, depth + 1)) for item in value]
        if value and all(items is None for _, items in parts):
            return None
        return [part for item, items in parts for part in ([item] if items is None else items)]
    return _items_of_object(value, depth) if isinstance(value, dict) else None


def _items_of_object(value: dict[str, Any], depth: int) -> list[Any] | None:
    if "segments" in value:
        return _items_of(value["segments"], depth + 1) if value["segments"] else []
    for key in _TEXT_KEYS:
        if isinstance(value.get(key), str):
            return _nested_items(value[key], depth) or [_item(value, key)]
    for key in (*_TEXT_KEYS, *_WRAPPERS):
        if isinstance(value.get(key), dict | list | str) and (items := _items_of(value[key], depth + 1)):
            return items
    # A segment without text; its citations may belong to the one before.
    return [value] if any(key in value for key in _CITATION_KEYS) else None


def _nested_items(text: str, depth: int) -> list[Any] | None:
    """The segments of a whole answer inside a string."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return _items_of(orjson.loads(text), depth + 1)
    except orjson.JSONDecodeError:
        return None


def _item(value: dict[str, Any], key: str) -> dict[str, Any]:
    cited = next((value[name] for name in _CITATION_KEYS if name in value), None)
    return {"text": value[key], "citations": cited}


def _strings(value: Any) -> Iterator[str]:
    """The texts in JSON of an unknown shape: its strings of some words."""
    if isinstance(value, str):
        if len(value.split()) >= _LEAST_WORDS or len(_WIDE.findall(value)) > 2 * _LEAST_WORDS:
            yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


# ---- segments -----------------------------------------------------------------------------------------------------


def _segments(raw: list[Any], ids: Mapping[str, int]) -> tuple[list[Segment], int]:
    """The segments with text and the number without; citations without text move to the previous segment."""
    segments: list[Segment] = []
    lost = 0
    for item in raw:
        value = {"text": item} if isinstance(item, str) else item
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            lost += 1
            continue
        citations = _citations(value.get("citations"), ids)
        if text.strip():
            segments.append(Segment(text=text, citations=citations))
        elif citations and segments:
            previous = segments.pop()
            segments.append(Segment(text=previous.text, citations=previous.citations + citations))
    return segments, lost


def _citations(raw: Any, ids: Mapping[str, int]) -> tuple[SegmentCitation, ...]:
    if raw is None:
        return ()
    citations = []
    for item in raw if isinstance(raw, list) else [raw]:
        entry = item if isinstance(item, dict) else {_SOURCE_KEYS[0]: item}
        source, quote = next((entry[key] for key in _SOURCE_KEYS if key in entry), None), entry.get("quote")
        number = ids[source] if isinstance(source, str) and source in ids else _source_number(source)
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
