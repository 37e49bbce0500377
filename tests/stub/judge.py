"""A judge that is right at a known rate, or that misbehaves in a way that a test names."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

_QUESTION = "You judge whether numbered passages support numbered statements."
_PASSAGE = re.compile(r"<passage\d* (\d+)[^>]*>\n(.*?)\n</passage", re.DOTALL)
_STATEMENT = re.compile(r".*<(statement\d*)>(.*)</\1>$", re.DOTALL)
_GAP = re.compile(r"\s+(?=[.,;:!?]|$)")
_OPENING = re.compile(r"\s*(?:\S+\s+){0,11}\S+")
_CLAIM = re.compile(r"^(\d+)\. (?:\[.*?\] )?(.*?)(?: \{[^{}]*\})?$", re.MULTILINE)


JUDGE_DECLINES = -1.0
"""In the place of a probability."""


def is_question(prompt: str, schema: dict[str, Any] | None) -> bool:
    """True if the request asks for verdicts: by its schema, or in its words if it has no schema."""
    return "verdicts" in schema["properties"] if schema else _QUESTION in prompt


@dataclass
class Judge:
    """The stub's judge: it answers requests for verdicts.

    Attributes:
        truth: by a claim's words, the words of the source that support it; None: nothing does.
        contrary: by a claim's words, the words of the source that say otherwise.
        trusting: supports a claim that it knows nothing of, with the first words of the first passage.
        rate: share of the verdicts that are right; drawn by the claim's words, so the same every time.
        how: ``honest``, ``lies`` (quotes that stand nowhere), ``half`` (every second claim), ``malformed``, ``nothing``;
            where probabilities are asked for also ``percent`` (off the scale) and ``declines`` (every second claim).
    """

    truth: dict[str, str | None] = field(default_factory=dict)
    contrary: dict[str, str] = field(default_factory=dict)
    trusting: bool = False
    rate: float = 1.0
    how: str = "honest"

    def reply(self, prompt: str) -> str:
        """The verdicts, as a model would write them."""
        if self.how == "nothing":
            return ""
        if self.how == "malformed":
            return '{"verdicts": [{"claim": 1, "verdict": "supp'
        passages, statements = _PASSAGE.findall(prompt), prompt.rpartition("\nStatements:\n")[2]
        verdicts = [
            self._verdict(int(number), without_gaps(claim), passages) for number, claim in _CLAIM.findall(statements)
        ]
        return json.dumps({"verdicts": verdicts[::2] if self.how == "half" else verdicts}, ensure_ascii=False)

    def _verdict(self, number: int, claim: str, passages: list[tuple[str, str]]) -> dict[str, Any]:
        quote, verdict = self.truth.get(claim), "supported"
        if claim in self.contrary:
            quote, verdict = self.contrary[claim], "contradicted"
        elif self.trusting and claim not in self.truth:
            quote = _opening(passages[0][1])
        if not self.is_right(claim):
            # Says the opposite, with words that really stand there when it needs some.
            quote, verdict = None if quote else passages[0][1], "supported"
        if quote is None:
            return {"claim": number, "verdict": "unsupported", "passage": 0, "quote": ""}
        passage = next((int(number) for number, words in passages if quote in words), 1)
        quotation = "Nobody ever wrote these words anywhere" if self.how == "lies" else quote
        return {"claim": number, "verdict": verdict, "passage": passage, "quote": quotation}

    def probability(self, question: str, passages: str, at: int) -> float | str | None:
        """The probability for a question about a claim; None: it is left out."""
        if self.how == "nothing" or (self.how in {"half", "declines"} and at % 2):
            return JUDGE_DECLINES if self.how == "declines" else None
        statement = _STATEMENT.search(question)
        if statement is None:
            raise ValueError("a question without its statement")
        quote = self.truth.get(statement[2])
        supported = (quote is not None and quote in passages) == self.is_right(statement[2])
        chance = 0.9 if supported else 0.1
        misstatements: dict[str, float | str] = {"malformed": "likely", "percent": chance * 100}
        return misstatements.get(self.how, chance)

    def is_right(self, claim: str) -> bool:
        """True if the judge is right about a claim."""
        draw = int.from_bytes(hashlib.sha256(claim.encode()).digest()[:4], "big") / 2**32
        return draw < self.rate


def without_gaps(claim: str) -> str:
    """The claim without the blank that a citation marker leaves before a full stop."""
    return _GAP.sub("", claim)


def _opening(passage: str) -> str:
    """So many of a passage's first words as a judge would quote."""
    opening = _OPENING.match(passage)
    return opening.group() if opening else passage


JUDGE = Judge()
"""The stub's judge; a test sets it and puts it back."""
