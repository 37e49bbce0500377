"""Answers of different lengths at OpenAI's stub, with the usage that their own texts come to in its tokenizer."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rs_bpe.bpe import openai

from tests.stub.answers import ANSWERS, decisions, first_sentence, responses

_SOURCE = re.compile(r"<source\d* (\d+)[^>]*>\n(.*?)\n</source", re.DOTALL)
AROUND = 11
"""Tokens of a request beyond its texts."""


def _count(text: str) -> int:
    return int(openai.o200k_base().count(text))


def _usage(body: dict[str, Any], text: str, thoughts: int = 0) -> dict[str, Any]:
    inputs = [message["content"] for message in body["input"]]
    inputs += [json.dumps(body[name]) for name in ("text", "questions") if name in body]
    count, output = sum(map(_count, inputs)) + AROUND, _count(text) + thoughts
    return {
        "input_tokens": count,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thoughts},
        "total_tokens": count + output,
    }


def billed_response(body: dict[str, Any]) -> dict[str, Any]:
    """Quotes one to four passages, as the question's hash decides, after up to 120 tokens of thought."""
    answer = responses(body)
    prompt = "\n".join(message["content"] for message in body["input"])
    dice = hashlib.sha256(prompt.encode()).digest()
    segments = []
    for number, text in _SOURCE.findall(prompt)[: 1 + dice[0] % 4]:
        quote = text[: 40 + dice[1] * 2] if dice[2] % 2 else first_sentence(text)
        segments.append({"text": quote, "citations": [{"source": int(number), "quote": quote}]})
    text = json.dumps({"sufficient": bool(segments), "segments": segments})
    answer["output"][-1]["content"][0]["text"] = text
    answer["usage"] = _usage(body, text, dice[3] % 120)
    return answer


def billed_decisions(body: dict[str, Any]) -> dict[str, Any]:
    """Decides as the stub does."""
    answer = decisions(body)
    answer["usage"] = {**_usage(body, ""), "output_tokens": len(answer["answers"])}
    return answer


@contextmanager
def billing() -> Iterator[None]:
    """Lets every stub of this process bill what it reads and writes."""
    before = dict(ANSWERS)
    ANSWERS.update({"/v1/responses": billed_response, "/v1/decisions": billed_decisions})
    try:
        yield
    finally:
        ANSWERS.update(before)
