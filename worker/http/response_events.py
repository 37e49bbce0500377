"""Makes the events of a response that is streamed: the text comes once it is checked, in pieces."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from schemas.record import JobResult
from tasks.ports import JobView
from worker.http.response_document import item_of

_PIECE = re.compile(r"\s*\S+(?:\s+\S+){0,4}\s*")
"""Some words: a reader that prints each piece writes at the pace of one who types quickly."""


def first_events(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a response that was accepted."""
    waiting = {
        **document,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "completed_at": None,
        "nightdesk": None,
    }
    yield {"type": "response.created", "response": waiting}
    yield {"type": "response.in_progress", "response": waiting}


def last_events(document: dict[str, Any], view: JobView, result: JobResult) -> Iterator[dict[str, Any]]:
    """The events of a final response."""
    if document["status"] != "completed":
        yield {"type": "response.failed", "response": document}
        return
    item = item_of(view, result)
    empty: dict[str, Any] = {"content": []} if "content" in item else {"arguments": ""}
    added = {**item, "status": "in_progress", **empty}
    yield {"type": "response.output_item.added", "output_index": 0, "item": added}
    place = {"item_id": item["id"], "output_index": 0}
    if "content" in item:
        yield from _part_events({**place, "content_index": 0}, item["content"][0])
    else:
        arguments = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
        done = {"name": item["name"], "arguments": arguments}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": document}


def _part_events(place: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "refusal" if part["type"] == "refusal" else "output_text"
    text_key = "refusal" if kind == "refusal" else "text"
    logprobs: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
    empty = {**part, text_key: "", **({} if kind == "refusal" else {"annotations": []})}
    yield {"type": "response.content_part.added", **place, "part": empty}
    for piece in pieces_of(part[text_key]):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece, **logprobs}
    for number, annotation in enumerate(part.get("annotations", ())):
        where = {**place, "annotation_index": number}
        yield {"type": "response.output_text.annotation.added", **where, "annotation": annotation}
    yield {"type": f"response.{kind}.done", **place, text_key: part[text_key], **logprobs}
    yield {"type": "response.content_part.done", **place, "part": part}


def pieces_of(text: str) -> list[str]:
    """A text in pieces of some words; joined they are the text."""
    return _PIECE.findall(text) or ([text] if text else [])


def line_of(event: dict[str, Any], number: int) -> bytes:
    """An event as it is sent."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps({**event, "sequence_number": number}))
