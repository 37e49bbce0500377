"""Reads the earlier turns of a conversation in the forms of chat programs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.errors import InputError
from tasks.raw_jobs.sources import text_of

_SPEAKERS = ("role", "speaker", "from", "author", "sender", "type")
_SPEAKS = frozenset(_SPEAKERS) - {"type"}
_ROLES = frozenset({"human", "ai", "user", "assistant", "system", "tool"})
_TEXTS = ("content", "value", "text", "message")
_SIDES = (
    ("question", "answer"),
    ("query", "response"),
    ("user", "assistant"),
    ("human", "ai"),
    ("input", "output"),
    ("inputs", "outputs"),
)
_ALTERNATING = ("user", "assistant")


def read_turns(value: Any) -> Any:
    """The turns as (speaker, text) or (question, answer); what is none is left for the contract to refuse."""
    if isinstance(value, str):
        return [(_ALTERNATING[0], value)] if value.strip() else []
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if not isinstance(value, list | tuple):
        return value
    if value and all(isinstance(each, str) for each in value):
        return [(_ALTERNATING[number % 2], each) for number, each in enumerate(value)]
    return list(_turns(value))


_PRINTED = re.compile(r"^(system|user|assistant):\s", re.MULTILINE)


def printed_messages(prompt: str) -> Any:
    """The messages of a chat that a client printed as one prompt, with the answer's role at its end; else the prompt."""
    parts = iter(["system", *_PRINTED.split(prompt)])
    turns = [{"role": role, "content": text.strip()} for role, text in zip(parts, parts, strict=True)]
    return [each for each in turns if each["content"]] if turns[-1] == {"role": "assistant", "content": ""} else prompt


def is_chat(value: Any) -> bool:
    """Tells a list of turns, each with its speaker, from the parts of one text."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and (_SPEAKS & each.keys() or each.get("type") in _ROLES) for each in value)
    )


def _turns(value: list[Any] | tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(value):
        if isinstance(each, list | tuple) and [*map(type, each)] == [str, str]:
            yield each[0], each[1]
            continue
        inner = each.get("data") if isinstance(each, dict) else None
        turn = {**each, **inner} if isinstance(inner, dict) else each if isinstance(each, dict) else {}
        speaker = next((name for key in _SPEAKERS if isinstance(name := turn.get(key), str)), None)
        text = next((text for key in _TEXTS if (text := _text_of(turn.get(key))) is not None), None)
        if speaker is not None and (text is not None or any(key in turn for key in _TEXTS)):
            # A turn without a text called a tool.
            if text:
                yield speaker, text
        elif (sides := _sides(turn)) is not None:
            yield sides
        else:
            raise InputError(
                "is no turn: give an object with 'role' and 'content', or a list of two texts",
                field=f"conversation_history.{number}",
            )


def _text_of(value: Any) -> str | None:
    """The text of a turn, without parts that have none, as pictures and files."""
    return text_of([each for each in value if text_of(each) is not None] if isinstance(value, list) else value)


def _sides(turn: Mapping[str, Any]) -> tuple[str, str] | None:
    for names in _SIDES:
        texts = [text_of(_only(turn.get(name))) for name in names]
        if None not in texts:
            return texts[0] or "", texts[1] or ""
    return None


def _only(value: Any) -> Any:
    """The one value of an object that has no more."""
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
