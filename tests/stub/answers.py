"""Answers in the shapes of OpenAI's Responses, Decisions and chat completions and of Anthropic's Messages.

The shapes are held to the SDKs' own types in ``test_stub.py``. An answer quotes the first sentence of source 1.
"""

import json
import re
from itertools import count
from typing import Any

from tests.stub.judge import JUDGE, JUDGE_DECLINES, is_question
from tests.stub.scripts import as_blocks, as_markers, as_segments, script_for

_SOURCE = re.compile(r"<source\d* 1[^>]*>\n(.*?)\n</source", re.DOTALL)
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)", re.DOTALL)
_serial = count(1)

USAGE = {"input": 1200, "cached": 200, "written": 100, "output": 80, "reasoning": 16}
"""What every answer says it used; ``input`` includes cached and written."""


def first_sentence(text: str) -> str:
    sentence = _SENTENCE.match(text)
    return (sentence.group() if sentence else text).strip()


def _quote(prompt: str) -> str:
    source = _SOURCE.search(prompt)
    return first_sentence(source[1]) if source else ""


def _answer_text(prompt: str, schema: dict[str, Any] | None) -> str:
    """The answer in the form that the request asks for."""
    if is_question(prompt, schema):
        return JUDGE.reply(prompt)
    if script := script_for(prompt):
        return as_markers(script) if schema is None else as_segments(script, schema)
    quote = _quote(prompt)
    if schema is None:
        return f"{quote} [1]" if quote else "[none] The sources do not answer."
    citations = [{"source": 1, "quote": quote}]
    answer: dict[str, Any] = {"sufficient": True, "segments": [{"text": quote, "citations": citations}]}
    if "data" in schema["properties"]:
        answer["data"] = dict.fromkeys(schema["properties"]["data"].get("properties", {}), "x")
    return json.dumps(answer)


def responses(body: dict[str, Any]) -> dict[str, Any]:
    prompt = "\n".join(message["content"] for message in body["input"])
    schema = body.get("text", {}).get("format", {}).get("schema")
    part = {"type": "output_text", "text": _answer_text(prompt, schema), "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": f"resp_{next(_serial)}",
        "object": "response",
        "created_at": 1_795_000_000,
        "model": body["model"],
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [{"type": "reasoning", "id": "rs_1", "summary": []}, message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "service_tier": body.get("service_tier", "default"),
        "usage": {
            "input_tokens": USAGE["input"],
            "input_tokens_details": {"cached_tokens": USAGE["cached"], "cache_write_tokens": USAGE["written"]},
            "output_tokens": USAGE["output"],
            "output_tokens_details": {"reasoning_tokens": USAGE["reasoning"]},
            "total_tokens": USAGE["input"] + USAGE["output"],
        },
    }


def decisions(body: dict[str, Any]) -> dict[str, Any]:
    passages = "\n".join(message["content"] for message in body["input"])
    if not 1 <= len(body["questions"]) <= 400:
        raise ValueError("1 to 400 questions")
    answers: list[dict[str, Any]] = []
    for question in body["questions"]:
        probability = JUDGE.probability(question["instructions"], passages, len(answers))
        name = question.get("name")
        if probability == JUDGE_DECLINES:
            answers.append({"type": "refusal", "name": name})
        elif probability is not None:
            answers.append({"type": "predicate", "name": name, "probability": probability})
    return {
        "model": body["model"],
        "answers": answers,
        "usage": {
            "input_tokens": USAGE["input"],
            "input_tokens_details": {"cached_tokens": USAGE["cached"], "cache_write_tokens": USAGE["written"]},
            "output_tokens": len(answers),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": USAGE["input"] + len(answers),
        },
    }


def chat(body: dict[str, Any]) -> dict[str, Any]:
    prompt = "\n".join(message["content"] for message in body["messages"])
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    message = {"role": "assistant", "content": _answer_text(prompt, schema), "refusal": None}
    return {
        "id": f"chatcmpl-{next(_serial)}",
        "object": "chat.completion",
        "created": 1_795_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "service_tier": body.get("service_tier", "default"),
        "usage": {
            "prompt_tokens": USAGE["input"],
            "completion_tokens": USAGE["output"],
            "total_tokens": USAGE["input"] + USAGE["output"],
            "prompt_tokens_details": {"cached_tokens": USAGE["cached"], "cache_write_tokens": USAGE["written"]},
            "completion_tokens_details": {"reasoning_tokens": USAGE["reasoning"]},
        },
    }


def messages(body: dict[str, Any]) -> dict[str, Any]:
    schema = body.get("output_config", {}).get("format", {}).get("schema")
    cited = _search_results(body)
    if cited and schema is not None:
        raise ValueError("citations and output_config.format can't be combined")
    if schema is not None:
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        content = [{"type": "text", "text": _answer_text(prompt, schema), "citations": None}]
    elif cited:
        script = script_for(str(body["messages"]))
        content = as_blocks(script, cited) if script else _cited(cited)
    else:
        texts = [message["content"] for message in body["messages"] if isinstance(message["content"], str)]
        content = [{"type": "text", "text": _answer_text("\n".join(texts), None), "citations": None}]
    return {
        "id": f"msg_{next(_serial)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "thinking", "thinking": "", "signature": "c2ln"}, *content],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": USAGE["input"] - USAGE["cached"] - USAGE["written"],
            "cache_read_input_tokens": USAGE["cached"],
            "cache_creation_input_tokens": USAGE["written"],
            "cache_creation": {"ephemeral_5m_input_tokens": USAGE["written"], "ephemeral_1h_input_tokens": 0},
            "output_tokens": USAGE["output"],
            "output_tokens_details": {"thinking_tokens": USAGE["reasoning"]},
            "service_tier": "standard",
        },
    }


def _search_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "search_result"
    ]


def _cited(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Says what the first and the last source begin with, each in a block of its own, with uncited text between."""
    content: list[dict[str, Any]] = []
    for index in dict.fromkeys((0, len(results) - 1)):
        result = results[index]
        for block in result["content"]:
            if not block["text"].strip():
                raise ValueError("text content blocks must contain non-whitespace text")
        whole = result["content"][0]["text"]
        citation = {
            "type": "search_result_location",
            "cited_text": whole,
            "search_result_index": index,
            "source": result["source"],
            "title": result["title"],
            "start_block_index": 0,
            "end_block_index": 1,
        }
        if content:
            content.append({"type": "text", "text": " ", "citations": None})
        content.append({"type": "text", "text": first_sentence(whole), "citations": [citation]})
    return content


ANSWERS = {
    "/v1/responses": responses,
    "/v1/decisions": decisions,
    "/v1/chat/completions": chat,
    "/v1/messages": messages,
}
