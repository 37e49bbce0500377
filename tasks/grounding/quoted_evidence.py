"""Reads the quoted evidence of an answer: the sentences that it quotes and those that support its claims."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from schemas.grounding import Claim, Evidence, Verdict
from schemas.job import SHOWN_METADATA, JobRequest
from tasks.answers.postprocess import Processed
from tasks.text.facts import Fact, FactText, read_facts
from tasks.text.language import language_of
from tasks.text.sentences import Span, sentence_spans, words
from tasks.text.source_index import index_source
from tasks.text.wording import content_words

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
"""Kana and Han, which are written without spaces."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a quoted passage with its facts; ``start`` is its place in the source."""

    source_index: int
    start: int
    text: str
    facts: FactText
    content: frozenset[str]

    def evidence(self, first: int = 0, last: int | None = None) -> Evidence:
        """The characters ``[first, last)`` of it, or all of it, as evidence."""
        end = len(self.text) if last is None else last
        return Evidence(source_index=self.source_index, start=self.start + first, end=self.start + end, score=1.0)

    def place(self, fact: Fact) -> Evidence:
        """One of its facts as evidence."""
        return self.evidence(fact.start, fact.end)

    @property
    def numbers(self) -> list[Fact]:
        """Its numbers and years, in order."""
        return [fact for fact in self.facts.facts if fact.amounts]

    def positions(self, stems: Collection[str]) -> list[int]:
        """The places of words with some stems in it."""
        if _UNSPACED.search(self.text) is not None:
            # Its stems are pieces of two characters.
            return [self.text.index(stem) for stem in stems if stem in self.text]
        return [
            match.start() for match in _WORD.finditer(self.text) if not content_words(words(match[0])).isdisjoint(stems)
        ]

    def denies(self, positions: Collection[int]) -> bool:
        """Tells whether a negation stands in one part of it with some places; with none, anywhere."""
        denied = {fact.clause for fact in self.facts.facts if fact.denies}
        if not positions:
            return bool(denied)
        return any(self._clause(position) in denied for position in positions)

    def _clause(self, position: int) -> int:
        listed = [fact.clause for fact in self.facts.facts if fact.start <= position]
        return listed[-1] if listed else 0


@dataclass
class QuotedEvidence:
    """The quoted evidence of an answer, each part read when it is first needed."""

    request: JobRequest
    processed: Processed
    claims: Sequence[Claim]

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences of the quoted passages."""
        quoted = [
            (citation.source_index, citation.source_start, citation.source_end)
            for citation in self.processed.citations
            if citation.source_start is not None and citation.source_end is not None
        ]
        quoted += [
            (evidence.source_index, evidence.start, evidence.end)
            for claim in self.claims
            if claim.verdict is Verdict.SUPPORTED
            for evidence in claim.evidence
        ]
        passages: dict[tuple[int, Span], None] = {}
        for source_index, start, end in quoted:
            content = self.request.context[source_index].content
            for first, last in index_source(content).spans:
                if first < end and start < last:
                    passages[(source_index, Span(first, last))] = None
        result = []
        for source_index, span in self._joined(sorted(passages)):
            text = self.request.context[source_index].content[span.start : span.end]
            for first, last in sentence_spans(text, self.language or "en"):
                sentence = text[first:last]
                facts = read_facts(sentence, self.language)
                if len(facts.text) == len(sentence):
                    result.append(
                        Sentence(source_index, span.start + first, sentence, facts, content_words(words(sentence)))
                    )
        return result

    def _joined(self, passages: Iterable[tuple[int, Span]]) -> list[tuple[int, Span]]:
        """The passages with neighbours in one: a passage may end at a full stop that ends no sentence."""
        joined: list[tuple[int, Span]] = []
        for source_index, span in passages:
            last, before = joined[-1] if joined else (None, span)
            if last == source_index and not self.request.context[last].content[before.end : span.start].strip():
                joined[-1] = (source_index, Span(before.start, span.end))
            else:
                joined.append((source_index, span))
        return joined

    @cached_property
    def titles(self) -> list[object]:
        """The metadata of the quoted sources that the model is shown."""
        quoted = dict.fromkeys(sentence.source_index for sentence in self.sentences)
        return [
            self.request.context[index].metadata[key]
            for index in quoted
            for key in SHOWN_METADATA
            if self.request.context[index].metadata.get(key) not in (None, "")
        ]

    @cached_property
    def language(self) -> str | None:
        """The language of the sources."""
        contents = [source.content[:500] for source in self.request.context[:8]]
        return language_of("\n".join(contents)[:1_000])

    @cached_property
    def all_words(self) -> frozenset[str]:
        """The words of content of all sources."""
        return frozenset[str]().union(*(content_words(words(source.content)) for source in self.request.context[:50]))
