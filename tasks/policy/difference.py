"""Compares two answers to one question: words, citations, verdicts, tokens and cost."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal
from uuid import UUID

from schemas.answer import Citation
from schemas.grounding import Claim, Verdict
from tasks.ports import JobView

MOST_WORDS = 2_000
"""Words of an answer that are compared one by one; of a longer one sentences are: the search is quadratic."""

Kind = Literal["same", "removed", "added"]

_WORD = re.compile(r"\S+\s*|\s+")
_SENTENCE = re.compile(r".+?(?:[.!?。]\s+|\n+|$)", re.DOTALL)


@dataclass(frozen=True)
class Side:
    """One of the two answers."""

    view: JobView

    @property
    def job_id(self) -> UUID:
        """The job."""
        return self.view.job_id

    @property
    def ending(self) -> str:
        """The outcome; without one the state."""
        return self.view.outcome.value if self.view.outcome is not None else self.view.state.value

    @property
    def model(self) -> str:
        """``provider:model`` that answered; empty without an answer."""
        record = self.view.record
        if record is None or record.model_provider is None:
            return ""
        return f"{record.model_provider}:{record.model_name}" if record.model_name else record.model_provider

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

    @property
    def answer(self) -> str:
        """The text of the record."""
        return self.view.record.answer if self.view.record is not None else ""

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of the record."""
        return self.view.record.citations if self.view.record is not None else ()

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The checked claims."""
        record = self.view.record
        return record.grounding.claims if record is not None and record.grounding is not None else ()

    @cached_property
    def verdicts(self) -> Counter[Verdict]:
        """Claims by verdict."""
        return Counter(claim.verdict for claim in self.claims)

    @property
    def grounding_score(self) -> float | None:
        """Share of supported claims."""
        record = self.view.record
        return record.grounding.grounding_score if record is not None and record.grounding is not None else None

    @property
    def confidence(self) -> float | None:
        """Share of right verdicts to expect among the decided claims."""
        record = self.view.record
        return record.grounding.confidence if record is not None and record.grounding is not None else None

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Tokens in and out of the answer's call."""
        usage = self.view.record.usage if self.view.record is not None else None
        return (usage.input_tokens, usage.output_tokens) if usage is not None else None

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost of all calls of the job; None for an unknown price."""
        return self.view.cost_usd

    @property
    def shared(self) -> bool:
        """True if the answer is that of another job, without a call."""
        snapshot = self.view.record.provider_snapshot if self.view.record is not None else None
        return snapshot is not None and snapshot.shared_from is not None


@dataclass(frozen=True)
class Difference:
    """An answer beside another one, usually its replay."""

    first: Side
    second: Side

    @classmethod
    def of(cls, first: JobView, second: JobView) -> "Difference":
        """Compares the present runs of two jobs."""
        return cls(Side(first), Side(second))

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
        return self.first.answer == self.second.answer

    @cached_property
    def words(self) -> list[tuple[Kind, str]]:
        """Both texts as pieces in order; ``same`` and ``added`` make the second one, ``same`` and ``removed`` the first."""
        before, after = _pieces(self.first.answer), _pieces(self.second.answer)
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
    def common_citations(self) -> list[Citation]:
        """Citations of the second answer that the first has, too: the same words of the same source."""
        remaining = Counter(map(_place, self.first.citations))
        matches = []
        for citation in self.second.citations:
            if remaining[_place(citation)] > 0:
                remaining[_place(citation)] -= 1
                matches.append(citation)
        return matches

    @property
    def former_citations(self) -> list[Citation]:
        """Citations of the first answer alone."""
        return _without(self.first.citations, self.common_citations)

    @property
    def new_citations(self) -> list[Citation]:
        """Citations of the second answer alone."""
        return _without(self.second.citations, self.common_citations)

    @cached_property
    def claims(self) -> list[tuple[Claim | None, Claim | None]]:
        """Claims whose text or verdict differs, those with the same text side by side."""
        before, after = _by_text(self.first.claims), _by_text(self.second.claims)
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
        if self.first.cost_usd is None or self.second.cost_usd is None:
            return None
        return self.second.cost_usd - self.first.cost_usd

    @property
    def differs(self) -> bool:
        """True if the text, the outcome, a citation or a verdict differs."""
        return not (
            self.same_answer
            and self.first.ending == self.second.ending
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
