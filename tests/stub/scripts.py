"""Answers that a test writes beforehand, in each protocol's form: JSON segments, text with markers, cited blocks."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: its words, and what it relies on as (source number, quote)."""

    text: str
    citations: tuple[tuple[int, str], ...] = ()


Script = tuple[Piece, ...]

SCRIPTS: dict[str, Script] = {}
"""By a word that stands in the question of the jobs to be answered so; a test puts them in and takes them out."""


def script_for(prompt: str) -> Script | None:
    """The script for a prompt; None: the stub answers as it always does."""
    return next((script for word, script in SCRIPTS.items() if word in prompt), None)


def as_segments(script: Script, schema: dict[str, Any]) -> str:
    """The canonical JSON answer."""
    segments = [
        {"text": piece.text, "citations": [{"source": source, "quote": quote} for source, quote in piece.citations]}
        for piece in script
    ]
    answer: dict[str, Any] = {"sufficient": True, "segments": segments}
    if "data" in schema["properties"]:
        answer["data"] = {}
    return json.dumps(answer, ensure_ascii=False)


def as_markers(script: Script) -> str:
    """Running text with ``[N]``."""
    return "".join(piece.text + "".join(f" [{source}]" for source, _ in piece.citations) for piece in script)


def as_blocks(script: Script, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Text blocks with Anthropic's citations: each quotes the whole block of the source that holds its quote."""
    content: list[dict[str, Any]] = []
    for piece in script:
        citations = []
        for source, quote in piece.citations:
            result = results[source - 1]
            texts = [block["text"] for block in result["content"]]
            place = next((place for place, text in enumerate(texts) if quote in text), 0)
            citations.append(
                {
                    "type": "search_result_location",
                    "cited_text": texts[place],
                    "search_result_index": source - 1,
                    "source": result["source"],
                    "title": result["title"],
                    "start_block_index": place,
                    "end_block_index": place + 1,
                }
            )
        content.append({"type": "text", "text": piece.text, "citations": citations or None})
    return content
