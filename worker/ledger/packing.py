"""Compresses the large parts of rows before PostgreSQL gets them, and puts the rows together again."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any
from uuid import UUID

import orjson
from pydantic import TypeAdapter

from schemas.answer import Citation
from schemas.model_call import Completion, Prompt
from schemas.record import GenerationRecord
from tasks.ports import StoredCompletion
from tasks.text.word_search import WordSearch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEAST_BYTES = 2_000
"""From this size on texts are packed: shorter ones stay in their row, where PostgreSQL stores them whole."""

LEVEL = 1
"""Of zstandard: for 20 KB of sources 41 us and 7.3 KB; level 3 takes half as long again for 3 % less."""

_has_long_number = WordSearch(patterns=(r"[:,\[]-?[0-9]{19}",))
"""Digits of a whole number that may exceed 64 bits, which the reader of JSON takes for a float."""

_compressor = zstd.ZstdCompressor(level=LEVEL)
"""One for all: making one takes a quarter of the time of a compression. Only event loops compress, one in each process."""


def compress(content: bytes) -> bytes:
    """The content as a frame of zstandard."""
    return _compressor.compress(content, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(packed: bytes) -> bytes:
    """The content of a frame of zstandard."""
    return zstd.decompress(packed)


def split_request(request: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of a request without its sources, and the sources packed; None and the whole where it is short.

    The number of sources stands in their place, for what counts them.
    """
    if len(request) < LEAST_BYTES or _has_long_number(request.decode()):
        return request, None
    document = orjson.loads(request)
    sources = document.get("context")
    if not sources:
        return request, None
    return orjson.dumps({**document, "context": len(sources)}), compress(orjson.dumps(sources))


def whole_request(head: dict[str, Any], sources: bytes | None) -> dict[str, Any]:
    """The request of a row, with its sources."""
    return head if sources is None else {**head, "context": orjson.loads(decompress(sources))}


# ---- the answer of a call --------------------------------------------------------------------------------------------

_TEXTS = {"text", "native_citations"}
_MESSAGES = {"messages"}
_NO_MESSAGES = {"snapshot": _MESSAGES}


@dataclass(frozen=True, slots=True)
class CompletionColumns:
    """The columns of an answer; those that are packed are None or lack their texts."""

    raw: bytes | None
    parsed: str
    prompt: str
    packed: bytes | None = None


def split_completion(completion: Completion, prompt: Prompt, raw: bytes) -> CompletionColumns:
    """The columns of an answer: its bytes, its text and the messages of its prompt packed together, if they are long.

    The text stands in the bytes once more, escaped. Packed together it hardly counts, and no provider has to be asked
    how it is taken out of them.
    """
    texts = completion.model_dump_json(include=_TEXTS).encode()
    messages = prompt.snapshot.model_dump_json(include=_MESSAGES).encode()
    if len(texts) + len(messages) + len(raw) < LEAST_BYTES:
        return CompletionColumns(raw, completion.model_dump_json(), prompt.model_dump_json())
    return CompletionColumns(
        raw=None,
        parsed=completion.model_dump_json(exclude=_TEXTS),
        prompt=prompt.model_dump_json(exclude=_NO_MESSAGES),
        packed=_pack(texts, messages, raw),
    )


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The columns of an answer as they were before they were split."""

    raw: Any
    parsed: dict[str, Any]
    prompt: dict[str, Any]


def whole_completion(row: Any, prefix: str = "") -> StoredTexts:
    """The answer of a row with the columns of ``CompletionColumns``, whose names begin with a prefix."""
    raw, parsed, prompt, packed = (getattr(row, prefix + name) for name in ("raw", "parsed", "prompt", "packed"))
    if packed is None:
        return StoredTexts(raw, parsed, prompt)
    texts, messages, raw = _unpack(packed, 3)
    # The prompt of an answer that was taken from another job is its own, and whole.
    if "messages" not in prompt["snapshot"]:
        prompt = {**prompt, "snapshot": {**prompt["snapshot"], **orjson.loads(messages)}}
    return StoredTexts(raw, {**parsed, **orjson.loads(texts)}, prompt)


def reply_text(parsed: dict[str, Any], packed: bytes | None) -> str:
    """The text of an answer alone."""
    text: str = parsed["text"] if packed is None else orjson.loads(_unpack(packed, 3)[0])["text"]
    return text


# ---- the record ------------------------------------------------------------------------------------------------------

_CHECKED = {"claims", "values"}

FROM_ANSWER = ("messages_snapshot", "provider_snapshot", "output_raw", "usage")
"""Columns of a record that are those of the answer it refers to."""


@cache
def _dump_citations() -> Callable[[Any], bytes]:
    return TypeAdapter(tuple[Citation, ...]).dump_json


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a record that are packed, or taken from the answer that it refers to.

    Attributes:
        changes: the values of columns in place of those of the record.
        attempt_id: the call of the answer.
    """

    changes: dict[str, str | None]
    attempt_id: UUID | None
    packed: bytes | None


def split_record(record: GenerationRecord, answer: StoredCompletion | None) -> RecordColumns:
    """The columns of a record, with what its answer holds taken from there, and what is long packed."""
    changes: dict[str, str | None] = {}
    attempt_id = None
    if answer is not None and _is_of(record, answer):
        attempt_id = answer.attempt_id
        changes = dict.fromkeys(FROM_ANSWER)
    grounding = record.grounding
    checked = grounding.model_dump_json(include=_CHECKED).encode() if grounding is not None else b"{}"
    citations = _dump_citations()(record.citations)
    canonical = record.canonical.model_dump_json().encode() if record.canonical is not None else b"null"
    visible = b'{"citations":%b%b' % (citations, b"," + checked[1:] if grounding is not None else b"}")
    if len(visible) + len(canonical) < LEAST_BYTES or _has_long_number(visible.decode()):
        return RecordColumns(changes, attempt_id, None)
    changes |= {"citations": None, "canonical": None}
    if grounding is not None:
        changes["grounding"] = grounding.model_dump_json(exclude=_CHECKED)
    return RecordColumns(changes, attempt_id, _pack(visible, canonical))


def _is_of(record: GenerationRecord, answer: StoredCompletion) -> bool:
    completion = answer.completion
    return (
        record.output_raw == completion.text
        and _same(record.messages_snapshot, answer.prompt.snapshot)
        and _same(record.provider_snapshot, completion.snapshot)
        and _same(record.usage, completion.usage)
    )


def _same(first: object, second: object) -> bool:
    return first is second or first == second


RECORD_PARTS = """
    g.attempt_id AS record_attempt_id, g.packed AS record_packed, NULL::bytea AS answer_raw,
    c.parsed AS answer_parsed, c.prompt AS answer_prompt, c.packed AS answer_packed
"""
"""Columns of ``generation_record g`` and its ``completion c`` that ``whole_record`` puts a record together from."""

RECORD_ANSWER = "LEFT JOIN completion c ON c.attempt_id = g.attempt_id"


def whole_record(columns: dict[str, Any], row: Any) -> dict[str, Any]:
    """The columns of a record with those that are not in its row, of a row with ``RECORD_PARTS``."""
    record = dict(columns)
    if row.record_attempt_id is not None:
        record |= {"provider_snapshot": row.answer_parsed["snapshot"], "usage": row.answer_parsed["usage"]}
        if row.answer_prompt is not None:
            answer = whole_completion(row, "answer_")
            record |= {"output_raw": answer.parsed["text"], "messages_snapshot": answer.prompt["snapshot"]}
    if row.record_packed is not None:
        visible, canonical = _unpack(row.record_packed, 2)
        parts = orjson.loads(visible)
        record |= {"citations": parts.pop("citations"), "canonical": orjson.loads(canonical)}
        if record["grounding"] is not None:
            record["grounding"] = {**record["grounding"], **parts}
    return record


def visible_parts(packed: bytes) -> bytes:
    """The citations, claims and values of a packed record, as an object of JSON."""
    return _unpack(packed, 2)[0]


def in_stored_order(value: Any) -> Any:
    """The JSON with its keys as PostgreSQL orders those of a value that is not packed: by length, then by bytes."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: in_stored_order(value[key]) for key in keys}
    return [in_stored_order(item) for item in value] if isinstance(value, list) else value


# ---- several parts in one frame --------------------------------------------------------------------------------------

_LENGTH = Struct(">I")


def _pack(*parts: bytes) -> bytes:
    """The parts in one frame, so that what one repeats of another hardly counts."""
    return compress(b"".join([*(_LENGTH.pack(len(part)) for part in parts[:-1]), *parts]))


def _unpack(packed: bytes, count: int) -> list[bytes]:
    content = decompress(packed)
    lengths = [length for (length,) in _LENGTH.iter_unpack(content[: _LENGTH.size * (count - 1)])]
    parts, start = [], _LENGTH.size * (count - 1)
    for length in lengths:
        parts.append(content[start : start + length])
        start += length
    return [*parts, content[start:]]
