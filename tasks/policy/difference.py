"""Compares two answers to one question: words, citations, verdicts, tokens and cost."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal

from schemas.answer import Citation
from schemas.grounding import Claim, Verdict
from schemas.record import JobResult
from tasks.ports import JobView
from tasks.results import result_of

MOST_WORDS = 2_000
"""Words of an answer that are compared one by one; of a longer one sentences are: the search is quadratic."""

Kind = Literal["same", "removed", "added"]

_WORD = re.compile(r"\S+\s*|\s+")
_SENTENCE = re.compile(r".+?(?:[.!?。]\s+|\n+|$)", re.DOTALL)


@dataclass(frozen=True)
class Side:
    """One of the two answers, as its producer has it."""

    view: JobView
    result: JobResult

    @property
    def model(self) -> str:
        """``provider:model`` that answered; empty without an answer."""
        record = self.view.record
        return ":".join(filter(None, (record.model_provider, record.model_name))) if record is not None else ""

    @property
    def prompt(self) -> str:
        """Name and version of the template; empty without a call."""
        record = self.view.record
        return f"{record.prompt_name}@{record.prompt_version}" if record is not None and record.prompt_name else ""

    @property
    def messages_sha256(self) -> str | None:
        """The hash of the messages that were sent."""
        record = self.view.record
        return record.messages_snapshot.sha256 if record is not None and record.messages_snapshot is not None else None

    @cached_property
    def verdicts(self) -> Counter[Verdict]:
        """Claims by verdict."""
        return Counter(claim.verdict for claim in self.result.claims)


@dataclass(frozen=True)
class Difference:
    """An answer beside another one, usually its replay."""

    first: Side
    second: Side

    @classmethod
    def of(cls, first: JobView, second: JobView) -> "Difference":
        """Compares the present runs of two jobs."""
        return cls(Side(first, result_of(first)), Side(second, result_of(second)))

    @property
    def final(self) -> bool:
        """True if both jobs are final."""
        return self.first.view.finished_at is not None and self.second.view.finished_at is not None

    @property
    def same_messages(self) -> bool | None:
        """True if both models read the same messages; None where one read none."""
        hashes = self.first.messages_sha256, self.second.messages_sha256
        return None if None in hashes else hashes[0] == hashes[1]

    @property
    def same_answer(self) -> bool:
        """True for the same text."""
        return self.first.result.response == self.second.result.response

    @cached_property
    def words(self) -> list[tuple[Kind, str]]:
        """Both texts as pieces in order; ``same`` and ``added`` make the second one, ``same`` and ``removed`` the first."""
        before, after = _pieces(self.first.result.response), _pieces(self.second.result.response)
        pieces: list[tuple[Kind, str]] = []
        for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if kind == "equal":
                pieces.append(("same", "".join(before[a:b])))
                continue
            if b > a:
                pieces.append(("removed", "".join(before[a:b])))
            if d > c:
                pieces.append(("added", "".join(after[c:d])))
        return pieces

    @cached_property
    def former_citations(self) -> list[Citation]:
        """Citations of the first answer alone; another one of the same words of a source is the same."""
        return _without(self.first.result.citations, self.second.result.citations)

    @cached_property
    def new_citations(self) -> list[Citation]:
        """Citations of the second answer alone."""
        return _without(self.second.result.citations, self.first.result.citations)

    @property
    def common_citations(self) -> int:
        """The number of citations in both answers."""
        return len(self.second.result.citations) - len(self.new_citations)

    @cached_property
    def claims(self) -> list[tuple[Claim | None, Claim | None]]:
        """Claims whose text or verdict differs, those with the same text side by side."""
        before, after = _by_text(self.first.result.claims), _by_text(self.second.result.claims)
        pairs: list[tuple[Claim | None, Claim | None]] = []
        for text in dict.fromkeys((*before, *after)):
            old, new = before.get(text, []), after.get(text, [])
            for place in range(max(len(old), len(new))):
                pair = (old[place] if place < len(old) else None, new[place] if place < len(new) else None)
                if pair[0] is None or pair[1] is None or pair[0].verdict is not pair[1].verdict:
                    pairs.append(pair)
        return pairs

    @property
    def more_usd(self) -> Decimal | None:
        """The surplus cost of the second job; None for an unknown price."""
        before, after = self.first.view.cost_usd, self.second.view.cost_usd
        return None if before is None or after is None else after - before

    @property
    def differs(self) -> bool:
        """True if the text, the outcome, a citation or a verdict differs."""
        return not (
            self.same_answer
            and self.first.view.ending == self.second.view.ending
            and not self.former_citations
            and not self.new_citations
            and not self.claims
        )


def _pieces(text: str) -> list[str]:
    words = _WORD.findall(text)
    return words if len(words) <= MOST_WORDS else _SENTENCE.findall(text)


def _place(citation: Citation) -> tuple[str, int | None, int | None, str]:
    return citation.chunk_id, citation.source_start, citation.source_end, citation.quoted_text


def _without(citations: Sequence[Citation], exceptions: Sequence[Citation]) -> list[Citation]:
    remaining = Counter(map(_place, exceptions))
    left_over = []
    for citation in citations:
        if remaining[_place(citation)] > 0:
            remaining[_place(citation)] -= 1
        else:
            left_over.append(citation)
    return left_over


def _by_text(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    texts: dict[str, list[Claim]] = {}
    for claim in claims:
        texts.setdefault(" ".join(claim.text.split()), []).append(claim)
    return texts
