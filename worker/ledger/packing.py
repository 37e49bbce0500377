"""Compresses the large parts of rows before PostgreSQL gets them, and puts the rows together again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import orjson
import zstandard
from pydantic import TypeAdapter
from pydantic_core import from_json

from schemas.answer import Citation
from schemas.job import GenerationConfig
from schemas.model_call import Completion, Prompt
from schemas.record import GenerationRecord, Quality
from tasks.ports import StoredCompletion
from tasks.text.word_search import WordSearch

LEAST_BYTES = 2_000
"""From this size on texts are packed: shorter ones stay in their row, where PostgreSQL stores them whole."""

LEVEL = 1
"""Of zstandard: for 20 KB of sources 41 us and 7.3 KB; level 3 takes half as long again for 3 % less."""

_has_long_number = WordSearch(patterns=(r"[:,\[]-?[0-9]{19}",))
"""Digits of a whole number that may exceed 64 bits, which the reader of JSON takes for a float."""


class _Contexts(threading.local):
    """The functions of zstandard of a thread: making one takes longer than most of its work."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_contexts = _Contexts()


def compress(content: bytes) -> bytes:
    """The content as a frame of zstandard."""
    return _contexts.compress(content)


def decompress(frame: bytes | memoryview) -> bytes:
    """The content of a frame."""
    return _contexts.decompress(frame)


def split_request(request: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of a request without its sources and its config, and these packed; None and the whole where it is short.

    The number of sources stands in their place, for what counts them; of the config what SQL reads, and what is not the
    default, so that a result is made without the rest.
    """
    if len(request) < LEAST_BYTES or _has_long_number(request.decode()):
        return request, None
    document = orjson.loads(request)
    sources, config = document.get("context"), document.get("config", {})
    if not sources:
        return request, None
    default = _default_config()
    chosen = {name: value for name, value in config.items() if name in _READ_BY_SQL or value != default.get(name)}
    head = orjson.dumps({**document, "context": len(sources), "config": chosen})
    return head, compress(orjson.dumps({"context": sources, "config": config}))


def whole_request(head: dict[str, Any], frame: bytes | None) -> dict[str, Any]:
    """The request of a row, with its sources and its whole config."""
    return head if frame is None else {**head, **orjson.loads(decompress(frame))}


_READ_BY_SQL = {"checkers", "output_format", "timeout_s"}


@cache
def _default_config() -> dict[str, Any]:
    config: dict[str, Any] = orjson.loads(GenerationConfig().model_dump_json())
    return config


# ---- the answer of a call --------------------------------------------------------------------------------------------

_READ_OF_ANSWERS = {"cost_usd", "snapshot", "usage"}
_READ_OF_PROMPTS: Any = {"name": True, "snapshot": {"counted_by", "prompt_tokens", "sha256"}}


def split_completion(completion: Completion, prompt: Prompt, raw: bytes) -> tuple[str, str, bytes]:
    """The columns ``parsed``, ``prompt`` and ``frame`` of an answer: its text, its prompt and its bytes packed together.

    What SQL reads stays beside them.
    The text stands in the bytes once more, escaped. Packed together it hardly counts, and no provider has to be asked
    how it is taken out of them.
    """
    texts, messages = completion.model_dump_json(exclude=_READ_OF_ANSWERS), prompt.model_dump_json()
    return (
        completion.model_dump_json(include=_READ_OF_ANSWERS),
        prompt.model_dump_json(include=_READ_OF_PROMPTS),
        _pack(texts.encode(), messages.encode(), raw),
    )


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """An answer before it was split."""

    raw: bytes
    parsed: dict[str, Any]
    prompt: dict[str, Any]


def whole_completion(row: Any, prefix: str = "") -> StoredTexts:
    """The answer of a row with the columns of ``split_completion``, whose names begin with a prefix."""
    parsed, prompt, frame = (getattr(row, prefix + name) for name in ("parsed", "prompt", "frame"))
    texts, messages, raw = _unpack(frame, 3)
    # The prompt of an answer that was taken from another job is its own, and whole.
    if "messages" not in prompt["snapshot"]:
        prompt = orjson.loads(messages)
    return StoredTexts(raw, {**orjson.loads(texts), **parsed}, prompt)


def reply_text(frame: bytes) -> str:
    """The text of an answer alone."""
    text: str = orjson.loads(_unpack(frame, 3)[0])["text"]
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
    frame: bytes | None


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
    quality = record.quality.model_dump_json().encode()
    visible = b'{"citations":%b,%b%b' % (
        citations,
        quality[1:-1],
        b"," + checked[1:] if grounding is not None else b"}",
    )
    if len(visible) + len(canonical) < LEAST_BYTES:
        return RecordColumns(changes, attempt_id, None)
    changes |= {"citations": None, "canonical": None, "quality": "{}"}
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
    g.attempt_id AS record_attempt_id, g.frame AS record_frame,
    c.parsed AS answer_parsed, c.prompt AS answer_prompt, c.frame AS answer_frame
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
    if row.record_frame is not None:
        visible, canonical = _unpack(row.record_frame, 2)
        # Unlike orjson it reads a whole number of any length.
        parts = from_json(visible)
        quality = {name: parts.pop(name) for name in Quality.model_fields}
        record |= {"citations": parts.pop("citations"), "canonical": from_json(canonical), "quality": quality}
        if record["grounding"] is not None:
            record["grounding"] = {**record["grounding"], **parts}
    return record


# ---- several parts in one frame --------------------------------------------------------------------------------------


def _pack(*parts: bytes) -> bytes:
    """The parts in one frame, a line each, so that what one repeats of another hardly counts; only the last one may have line breaks."""
    return compress(b"\n".join(parts))


def _unpack(frame: bytes | memoryview, count: int) -> list[bytes]:
    return decompress(frame).split(b"\n", count - 1)
