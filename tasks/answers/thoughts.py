"""Removes from a model's reply what it writes beside the answer: its thoughts, and the control tokens of its chat template."""

import re

from tasks.text.word_search import WordSearch

_NAMES = "think|thinking|thought|thoughts|reasoning|reflection|scratchpad|analysis|inner_monologue"
_CLOSING = re.compile(rf"(?<!`)</(?:{_NAMES})\s*>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_OPENING = re.compile(rf"(?<!`)<(?:{_NAMES})>|(?<!`)\[THINK\]|◁think▷", re.IGNORECASE)
_TAG = re.compile(rf"(?P<opening>{_OPENING.pattern})|{_CLOSING.pattern}", re.IGNORECASE)
_FINAL_CHANNEL = "<|channel|>final<|message|>"
_OTHER_CHANNEL = re.compile(r"<\|channel\|>(?!final<)\w+.*?(?:<\|end\|>|(?=<\|channel\|>final<)|\Z)", re.DOTALL)
_CHAT_TOKEN = re.compile(
    r"(?:<\|start\|>(?:assistant)?|<\|(?:channel\|>final<\|message|[a-z][a-z0-9_]{0,30})\|>"
    r"|</s>\s*\Z|\A\s*<s>|\[/?INST\]|<(?:start|end)_of_turn>)",
)
_IN_BRACKETS = WordSearch(patterns=(r"(?i)\[/?(?:THINK|INST)\]",))
OWN_KEY = re.compile(r"\{\s*[\"']?(?:sufficient|segments)[\"']?\s*:")
"""The beginning of an answer in the requested JSON."""


def may_hold_thoughts(text: str) -> bool:
    """Tells whether a text may hold a thought or a control token; most hold none."""
    return "<" in text or "◁" in text or ("[" in text and _IN_BRACKETS(text))


def without_thoughts(text: str) -> str:
    """The text without thoughts and control tokens.

    A thought that is never closed ends where the JSON of an answer begins, else with the text. One that is closed and
    never opened begins with the text: some chat templates open it in the prompt.
    """
    if "<|" in text:
        if (place := text.rfind(_FINAL_CHANNEL)) >= 0:
            text = text[place + len(_FINAL_CHANNEL) :]
        text = _OTHER_CHANNEL.sub("", text)
    parts: list[str] = []
    position = 0
    opened: int | None = None
    for match in _TAG.finditer(text):
        if match["opening"]:
            opened = match.start() if opened is None else opened
        elif opened is None:
            # Closed and never opened: all before it is a thought.
            parts, position = [], match.end()
        else:
            parts.append(text[position:opened])
            opened, position = None, match.end()
    if opened is not None:
        answer = OWN_KEY.search(text, opened)
        parts.append(text[position:opened])
        position = answer.start() if answer else len(text)
    text = "".join([*parts, text[position:]])
    return _CHAT_TOKEN.sub("", text)


_OPENED = re.compile(rf"(?:{_OPENING.pattern}|<\|channel\|>(?!final<))", re.IGNORECASE)


def thought_start(text: str) -> int | None:
    """The start of a thought that is open at the end of a text; None without one."""
    opening = None
    for match in re.finditer(rf"({_OPENED.pattern})|(?:{_CLOSING.pattern}|<\|end\|>)", text, re.IGNORECASE):
        if match.group(1) is None:
            opening = None
        elif opening is None:
            opening = match.start()
    return opening
