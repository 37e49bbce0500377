"""Locates the values of a model's object in the quoted evidence, or flags them by their paths.

The evidence are the passages that the answer quotes and those that support its claims. A number is compared by value and
unit, a date by its parts, a name by its words, a yes or no by the denials in the passage about its name, and a longer text by
the lexical check. A number that stands beside the words of another value of the object is flagged, too.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from unicodedata import combining, normalize

from schemas.grounding import Claim, Evidence, Value, Verdict
from schemas.job import JobRequest
from tasks.answers.citations import locate
from tasks.answers.leaves import Leaf, leaves
from tasks.answers.postprocess import Processed
from tasks.grounding.accounting import excludes
from tasks.grounding.checkers import CheckedClaim, CheckInput, ClaimFinding, Lexical
from tasks.grounding.object_sentences import check_leaves, check_sentences
from tasks.grounding.quoted_evidence import QuotedEvidence, Sentence
from tasks.text.fact_words import NOT, FactWords, Side, fact_words
from tasks.text.facts import Fact, Kind, read_facts
from tasks.text.sentences import Span, words
from tasks.text.wording import content_words

_SHORT_TEXT = 5
"""Content words up to which a text is a name or a phrase, whose words must all stand in one sentence."""
_LEAST_LABEL = 0.5
"""Least share of the words of a yes or no that a sentence must have to be about it."""
_ISO_DATE = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?(?:[T ](\d{2}):(\d{2})(?::[\d.]+)?(?:Z|[+-]\d{2}:?\d{2})?)?\Z")

_PERCENT = ("%", 1.0)

NOTHING_QUOTED = "the answer quotes no passage to look in"
NOT_QUOTED = "it stands in no quoted passage"


def check_values(request: JobRequest, processed: Processed, claims: Sequence[Claim]) -> tuple[Value, ...]:
    """The verdict on each leaf of the object for ``output_schema``; none without one.

    Args:
        request: the job's request.
        processed: the answer with its object.
        claims: those of the answer; the evidence of a supported one counts as quoted.
    """
    schema = request.config.output_schema
    if schema is None or processed.structured is None or request.check_only:
        return ()
    if isinstance(schema, str):
        return check_sentences(request, schema, processed.structured)
    listed = leaves(processed.structured, schema, request.config.free_values)
    values = _Values(request, QuotedEvidence(request, processed, claims), listed)
    return tuple(check_leaves(listed, values.find))


@dataclass
class _Values:
    request: JobRequest
    quoted: QuotedEvidence
    listed: Sequence[Leaf]
    _lexical: Lexical = field(default_factory=Lexical)

    def find(self, leaf: Leaf) -> ClaimFinding:
        """The finding on one leaf."""
        if not self.quoted.sentences:
            return ClaimFinding(Verdict.UNSUPPORTED, reason=NOTHING_QUOTED)
        if isinstance(leaf.value, bool):
            return self._boolean(leaf)
        if isinstance(leaf.value, int | float):
            return self._number(leaf, float(leaf.value))
        return self._text(leaf, leaf.value)

    # ---- numbers ----

    def _number(self, leaf: Leaf, value: float) -> ClaimFinding:
        units = self._units(leaf)
        matches = [
            (sentence, fact)
            for sentence in self.quoted.sentences
            for fact in sentence.numbers
            if _has_value(value, units, fact)
        ]
        if not matches:
            return ClaimFinding(Verdict.UNSUPPORTED, reason=NOT_QUOTED)
        own = self._own_words(leaf)
        own_matches = [(sentence, fact) for sentence, fact in matches if own & sentence.content]
        if own and not own_matches:
            for sentence in self.quoted.sentences:
                rivals = [fact for fact in sentence.numbers if any(_rivals(fact, match) for _, match in matches)]
                if own & sentence.content and rivals:
                    return _contradicted(sentence, rivals[0])
        for sentence, fact in own_matches or matches:
            if (other := self._listed_otherwise(leaf, sentence, fact)) is not None:
                return _contradicted(sentence, other)
        sentence, fact = (own_matches or matches)[0]
        return ClaimFinding(Verdict.SUPPORTED, evidence=(sentence.place(fact),))

    @cached_property
    def _tables(self) -> tuple[FactWords, ...]:
        """The words of English, in which most names of fields are, and of the sources."""
        return tuple(fact_words(code) for code in dict.fromkeys(("en", self.quoted.language or "en")))

    def _units(self, leaf: Leaf) -> tuple[tuple[str, float], ...]:
        """The dimensions and factors that the names of a number ask for: the months of ``tenant_months``."""
        return next(filter(None, map(self._unit, reversed(leaf.names))), ())

    def _unit(self, name: str) -> tuple[tuple[str, float], ...]:
        """The dimensions and factors of a unit that a field is named by; symbols of a letter or two are no names."""
        if name == "percentage":
            return (_PERCENT,)
        if len(name) <= 2 and name.isascii():  # noqa: PLR2004 - kg is a name, but so is no
            return ()
        return next(filter(None, (table.unit(name) for table in self._tables)), ())

    def _own_words(self, leaf: Leaf) -> frozenset[str]:
        """The words of a value's names that no other number of the object has: ``tenant`` beside ``landlord``."""
        own = self._names(leaf)
        shared = [self._names(other) for other in self.listed if other.path != leaf.path and _is_number(other)]
        return own - frozenset[str]().union(*shared) if shared else own

    def _names(self, leaf: Leaf) -> frozenset[str]:
        return content_words(word for text in leaf.names for word in words(text) if not self._unit(word))

    def _listed_otherwise(self, leaf: Leaf, sentence: Sentence, number: Fact) -> Fact | None:
        """The number that a sentence lists for a value, if it is another one.

        "Three months for the tenant and six for the landlord": a sentence that names as many values of the object as it has numbers of the kind lists them in one order.
        """
        rivals = [other for other in self.listed if _is_number(other) and self._own_words(other)]
        if leaf not in rivals:
            return None
        places = {}
        for other in rivals:
            if positions := sentence.positions(self._own_words(other)):
                places[other.path] = min(positions)
        numbers = [fact for fact in sentence.numbers if _rivals(fact, number)]
        if leaf.path not in places or len(places) != len(numbers) or len(places) < 2:  # noqa: PLR2004 - one is no list
            return None
        listed = numbers[sorted(places.values()).index(places[leaf.path])]
        return None if set(listed.amounts) & set(number.amounts) else listed

    # ---- texts ----

    def _text(self, leaf: Leaf, text: str) -> ClaimFinding:
        if (evidence := self._verbatim(leaf, text)) is not None:
            return ClaimFinding(Verdict.SUPPORTED, evidence=(evidence,))
        if (date := self._date_of(text)) is not None:
            return self._date(text, *date)
        if any(locate(text, str(value)) is not None for value in self.quoted.titles):
            return ClaimFinding(Verdict.SUPPORTED, reason="it stands in the metadata of a quoted source")
        content = content_words(words(text.replace("_", " ")))
        if len(content) > _SHORT_TEXT:
            claim = CheckedClaim(text, Span(0, len(text)))
            return self._lexical.check(CheckInput(self.request, (claim,)))[0]
        return self._phrase(leaf, text.replace("_", " "), content)

    def _verbatim(self, leaf: Leaf, text: str) -> Evidence | None:
        """The place of a text in the quoted sentences, word for word; a choice must not be denied there."""
        for sentence in self.quoted.sentences:
            place = locate(text, sentence.text)
            if place is None or not _is_whole(sentence.text, place) or (leaf.chosen and sentence.denies([place.start])):
                continue
            return sentence.evidence(place.start, place.end)
        return None

    def _phrase(self, leaf: Leaf, text: str, content: frozenset[str]) -> ClaimFinding:
        """A name or a choice: all its words in one sentence, not denied there, with the same quantities."""
        if not content:
            return ClaimFinding(Verdict.UNSUPPORTED, reason=NOT_QUOTED)
        facts = read_facts(text, self.quoted.language).facts
        denies = any(fact.denies for fact in facts)
        denied: Sentence | None = None
        for sentence in self.quoted.sentences:
            if not content <= sentence.content | _values_of(sentence):
                continue
            if not all(
                any(not fact.keys.isdisjoint(other.covers) for other in sentence.numbers)
                for fact in facts
                if fact.amounts
            ):
                continue
            if leaf.chosen and not denies and sentence.denies(sentence.positions(content) or [0]):
                denied = sentence
                continue
            return ClaimFinding(Verdict.SUPPORTED, evidence=(sentence.evidence(),))
        if denied is not None:
            return ClaimFinding(
                Verdict.CONTRADICTED, evidence=(denied.evidence(),), reason="the quoted passage denies it"
            )
        missing = content - frozenset[str]().union(*(sentence.content for sentence in self.quoted.sentences))
        if missing:
            return ClaimFinding(Verdict.UNSUPPORTED, reason=NOT_QUOTED)
        return ClaimFinding(Verdict.UNSUPPORTED, reason="no quoted sentence has all its words")

    def _date_of(self, text: str) -> tuple[int, int, int] | None:
        """Year, month and day of a date, 0 for no day; None for other texts."""
        if match := _ISO_DATE.match(text.strip()):
            return int(match[1]), int(match[2]), int(match[3] or 0)
        facts = read_facts(text, self.quoted.language).facts
        keys = facts[0].keys if len(facts) == 1 else ()
        return next((key[1:] for key in keys if isinstance(key, tuple) and key[0] == "date" and key[2]), None)

    def _date(self, text: str, year: int, month: int, day: int) -> ClaimFinding:
        for sentence in self.quoted.sentences:
            for fact in sentence.facts.facts:
                # 3/5/2024 may be read both ways.
                is_swapped = ("date", year, day, month) in fact.keys and "/" in sentence.facts.of(fact)
                if is_swapped or ("date", year, month, day) in fact.covers:
                    return ClaimFinding(Verdict.SUPPORTED, evidence=(sentence.place(fact),))
        return ClaimFinding(Verdict.UNSUPPORTED, reason=f"the date {text} {NOT_QUOTED.removeprefix('it ')}")

    # ---- yes and no ----

    def _boolean(self, leaf: Leaf) -> ClaimFinding:
        label = read_facts(leaf.label, "en" if leaf.label.isascii() else self.quoted.language).facts
        own = _folded(content_words(words(leaf.label)))
        names = _folded(content_words([word for name in leaf.key for word in words(name)]))
        shares = [
            max(_share(names, content), _share(own, content))
            for content in [_folded(sentence.content) for sentence in self.quoted.sentences]
        ]
        share = max(shares)
        best = self.quoted.sentences[shares.index(share)]
        if share >= _LEAST_LABEL:
            affirmed = _affirms(best, label, names | own)
        elif self.quoted.language in {None, "en"} or (names | own) & _folded(self.quoted.all_words):
            return ClaimFinding(Verdict.UNSUPPORTED, reason="no quoted passage speaks of it")
        else:
            # The names are in another language than the sources: only denials can be compared.
            best = next((each for each in self.quoted.sentences if each.denies(()) is not leaf.value), best)
            affirmed = not best.denies(())
        if affirmed is leaf.value:
            return ClaimFinding(Verdict.SUPPORTED, evidence=(best.evidence(),))
        reason = f"the quoted passage says {'yes' if affirmed else 'no'}"
        return ClaimFinding(Verdict.CONTRADICTED, evidence=(best.evidence(),), reason=reason)


# ---- comparisons --------------------------------------------------------------------------------------------------


def _is_number(leaf: Leaf) -> bool:
    return isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool)


def _has_value(value: float, units: tuple[tuple[str, float], ...], fact: Fact) -> bool:
    """Tells whether a fact of a source is a number exactly, in its unit or in another of the same kind."""
    shares = [value, value * 100] if _PERCENT[0] in fact.group and units in {(), (_PERCENT,)} else [value]
    if units and fact.group.isdisjoint({"", "date"}):
        stated = {key for key in fact.keys if isinstance(key, tuple)}
        return any(
            key[0] == dimension and _same(key[1], share * factor)
            for key in stated
            for share in shares
            for dimension, factor in units
        )
    return any(_same(share, amount) for share in shares for amount in fact.amounts)


def _rivals(fact: Fact, other: Fact) -> bool:
    """Tells whether two numbers may be values of one kind: a list names the unit once."""
    return excludes(fact, other) or (
        fact.kind is other.kind is Kind.NUMBER and ("" in fact.group or "" in other.group) and "unit" not in fact.group
    )


def _same(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-9 * max(abs(value), abs(other), 1.0)


def _contradicted(sentence: Sentence, fact: Fact) -> ClaimFinding:
    phrase = sentence.facts.of(fact)
    return ClaimFinding(
        Verdict.CONTRADICTED, evidence=(sentence.place(fact),), reason=f"the quoted passage about it says {phrase}"
    )


def _values_of(sentence: Sentence) -> frozenset[str]:
    """The numbers of a sentence in the form of its words."""
    return frozenset(f"{amount:g}" for fact in sentence.numbers for amount in fact.amounts)


def _folded(stems: Iterable[str]) -> frozenset[str]:
    """The stems without accents, which names in a schema often lack."""
    return frozenset(
        stem if stem.isascii() else "".join(c for c in normalize("NFD", stem) if not combining(c)) for stem in stems
    )


def _share(label: frozenset[str], content: frozenset[str]) -> float:
    return len(label & content) / len(label) if label else 0.0


def _affirms(sentence: Sentence, label: Sequence[Fact], names: Collection[str]) -> bool:
    """True if a sentence affirms what a label names: not denied, and on the same side of an opposite."""
    spelt = [stem for stem in sentence.content if not _folded((stem,)).isdisjoint(names)]
    # Scripts without spaces have no words to go by.
    denied = sentence.denies(sentence.positions(spelt))
    sides = frozenset[Side]().union(*map(_sides, label))
    sentence_sides = frozenset[Side]().union(*map(_sides, sentence.facts.facts))
    opposite = any((group, 1 - side) in sentence_sides for group, side in sides) and not sides & sentence_sides
    return (denied == opposite) is not any(fact.denies for fact in label)


def _sides(fact: Fact) -> frozenset[Side]:
    """The sides of opposites that a fact is on."""
    listed = fact.keys if fact.kind is Kind.SIGN else fact.group
    return frozenset(side for side in listed if isinstance(side, tuple) and side != NOT)


def _is_whole(text: str, place: Span) -> bool:
    """Tells whether a match ends at the ends of words; scripts without spaces have none to look at."""
    before, after = text[place.start - 1 : place.start], text[place.end : place.end + 1]
    return not (_joins(before, text[place.start]) or _joins(text[place.end - 1], after))


def _joins(before: str, after: str) -> bool:
    return bool(before and after) and before.isalnum() and after.isalnum() and max(before, after) < "\u0e00"


def flagged(values: Iterable[Value]) -> Iterator[Value]:
    """The values without support, including the unchecked ones."""
    return (value for value in values if value.verdict is not Verdict.SUPPORTED)
