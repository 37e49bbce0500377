"""Writes the questions of a comparison, and the answer that the stand-in provider gives to each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.throughput import requests
from tasks.text.sentences import sentence_spans

QUOTED = range(40, 200)
"""Characters of a quoted sentence."""


@dataclass(frozen=True)
class Workload:
    """The files of a comparison.

    Attributes:
        questions: one job a line, as ``nightdesk submit`` reads them; each question ends with its case number.
        answers: by case number, a list of ``[source number, sentence]``.
    """

    questions: Path
    answers: Path
    count: int


def write_workload(directory: Path, count: int) -> Workload:
    """Writes ``count`` jobs of 8 sources of 2.5 KB; each answer quotes a sentence of each source (some 1 KB)."""
    questions, answers = directory / f"questions-{count}.jsonl", directory / f"answers-{count}.json"
    quotes: list[list[tuple[int, str]]] = []
    with questions.open("wb") as lines:
        for case, job in enumerate(requests(count)):
            # No two jobs share a source: nothing that was read for one serves the next.
            context = [f"Record {case:06}-{number}. {content}" for number, content in enumerate(_texts(job), 1)]
            job["query"] = f"{job['query']} (case {case:06})"
            lines.write(orjson.dumps({**job, "context": context}) + b"\n")
            quotes.append(_quotes(context))
    answers.write_bytes(orjson.dumps(quotes))
    return Workload(questions, answers, count)


def _texts(job: dict[str, object]) -> list[str]:
    context = job["context"]
    assert isinstance(context, list)
    return context


def _quotes(context: list[str]) -> list[tuple[int, str]]:
    """The first sentence of prose of each source that is neither short nor long; a part of one would be no quotation."""
    quotes = []
    for number, content in enumerate(context, 1):
        sentences = (content[start:end].strip() for start, end in sentence_spans(content)[1:])
        if (prose := next(filter(_is_prose, sentences), None)) is not None:
            quotes.append((number, prose))
    return quotes


def _is_prose(sentence: str) -> bool:
    starts_and_ends = sentence[:1].isupper() and sentence[-1:] in {".", "!", "?"}
    return starts_and_ends and len(sentence) in QUOTED and "\n" not in sentence and "|" not in sentence


def prompt_of(job: dict[str, Any]) -> str:
    """A prompt as a short script would write it."""
    sources = "\n\n".join(f"[{number}] {content}" for number, content in enumerate(job["context"], 1))
    return f"{sources}\n\nQuestion: {job['query']}"


INSTRUCTIONS = "Answer the question from the numbered sources only. Cite each source that you use as [N]."
