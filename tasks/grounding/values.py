"""Locates the values of a model's object in the quoted evidence, or flags them by their paths.

The evidence are the passages that the answer quotes and those that support its claims. A number is compared by value and
unit, a date by its parts, a name by its words, a yes or no by the denials in the passage about its name, and a longer text by
the lexical check. A number that stands beside the words of another value of the object is flagged, too.
"""
# ruff: noqa: RUF001 - typographic characters are meant

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from unicodedata import combining, normalize

from schemas.grounding import Claim, Evidence, Value, Verdict
from schemas.job import JobRequest
from tasks.answers.citations import locate
from tasks.answers.leaves import Leaf, leaves
from tasks.answers.postprocess import Processed
from tasks.grounding.checkers import CheckedClaim, CheckInput, Lexical
from tasks.grounding.object_sentences import check_sentences
from tasks.grounding.quoted_evidence import QuotedEvidence, Sentence
from tasks.text.fact_reader import read_facts
from tasks.text.fact_text import FactText
from tasks.text.lexicon import lexicon
from tasks.text.quantities import DATES, DAY, MONTH, NUMBER, PERCENT, YEAR, Quantity, comparable, equal
from tasks.text.sentences import Span, words
from tasks.text.time_limit import OutOfTime, ensure_time
from tasks.text.wording import content_words

_SHORT_TEXT = 5
"""Content words up to which a text is a name or a phrase, whose words must all stand in one sentence."""
_LEAST_LABEL = 0.5
"""Least share of the words of a yes or no that a sentence must have to be about it."""
_ISO_DATE = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?(?:[T ](\d{2}):(\d{2})(?::[\d.]+)?(?:Z|[+-]\d{2}:?\d{2})?)?\Z")
_POINTED_DATE = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4})\Z")
_NUMBER_TEXT = re.compile(r"[-+]?[€$£¥]?\s?\d[\d.,'’\s]*(?:\s?[%€$£¥])?\Z")

NOTHING_QUOTED = "the answer quotes no passage to look in"
NOT_QUOTED = "it stands in no quoted passage"


@dataclass(slots=True)
class _Located:
    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""


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
    checked = _Values(request, QuotedEvidence(request, processed, claims), listed)
    return tuple(checked.value(leaf) for leaf in listed)


@dataclass
class _Values:
    request: JobRequest
    quoted: QuotedEvidence
    listed: Sequence[Leaf]
    _lexical: Lexical = field(default_factory=Lexical)

    def value(self, leaf: Leaf) -> Value:
        """The verdict on one leaf."""
        try:
            ensure_time()
            located = self._locate(leaf)
        except OutOfTime as error:
            located = _Located(Verdict.UNCHECKED, (), str(error))
        return Value(
            path=leaf.path, value=leaf.value, verdict=located.verdict, evidence=located.evidence, reason=located.reason
        )

    def _locate(self, leaf: Leaf) -> _Located:
        if not self.quoted.sentences:
            return _Located(Verdict.UNSUPPORTED, (), NOTHING_QUOTED)
        if isinstance(leaf.value, bool):
            return self._boolean(leaf)
        if isinstance(leaf.value, int | float):
            return self._number(leaf, float(leaf.value))
        return self._text(leaf, leaf.value)

    # ---- numbers ----

    def _number(self, leaf: Leaf, value: float) -> _Located:
        unit = self._unit(leaf)
        claimed = Quantity(frozenset({value}), unit, NUMBER, 0, 0)
        matches = [
            (sentence, quantity)
            for sentence in self.quoted.sentences
            for quantity in sentence.facts.quantities
            if _has_value(claimed, quantity)
        ]
        if not matches:
            for sentence in self.quoted.sentences:
                for place, number in _numbers_in_own_form(sentence.text):
                    if _same(value, number):
                        return _Located(Verdict.SUPPORTED, (sentence.evidence(*place),))
            return _Located(Verdict.UNSUPPORTED, (), self._elsewhere(leaf, value))
        own = self._own_words(leaf)
        own_matches = [(sentence, quantity) for sentence, quantity in matches if own & sentence.content]
        if own and not own_matches:
            for sentence in self.quoted.sentences:
                rivals = [q for q in sentence.facts.quantities if any(_rivals(q, match) for _, match in matches)]
                if own & sentence.content and rivals:
                    return _contradicted(sentence, rivals[0])
        for sentence, quantity in own_matches or matches:
            if (other := self._listed_otherwise(leaf, sentence, quantity)) is not None:
                return _contradicted(sentence, other)
        sentence, quantity = (own_matches or matches)[0]
        return _Located(Verdict.SUPPORTED, (sentence.tokens(quantity.first, quantity.last),))

    def _unit(self, leaf: Leaf) -> str:
        """The unit that the names of a number ask for: the months of ``tenant_months``."""
        for code in ("en", self.quoted.language):
            units = lexicon(code).units
            for word in reversed(leaf.names):
                if word in units:
                    return units[word]
        if set(leaf.names) & {"percent", "percentage", "pct"}:
            return PERCENT
        return ""

    def _own_words(self, leaf: Leaf) -> frozenset[str]:
        """The words of a value's names that no other number of the object has: ``tenant`` beside ``landlord``."""
        own = self._names(leaf)
        shared = [self._names(other) for other in self.listed if other.path != leaf.path and _is_number(other)]
        return own - frozenset[str]().union(*shared) if shared else own

    def _names(self, leaf: Leaf) -> frozenset[str]:
        units = {*lexicon("en").units, *lexicon(self.quoted.language).units, "percent", "percentage", "pct"}
        return content_words([word for text in leaf.names for word in words(text) if word not in units])

    def _listed_otherwise(self, leaf: Leaf, sentence: Sentence, quantity: Quantity) -> Quantity | None:
        """The quantity that a sentence lists for a value, if it is another one.

        "Three months for the tenant and six for the landlord": a sentence that names as many values of the object as it has quantities of the kind lists them in one order.
        """
        rivals = [other for other in self.listed if _is_number(other) and self._own_words(other)]
        if leaf not in rivals:
            return None
        places, positions = {}, sentence.facts.positions
        for other in rivals:
            if firsts := [positions[stem][0] for stem in self._own_words(other) if stem in positions]:
                places[other.path] = min(firsts)
        quantities = [q for q in sentence.facts.quantities if _rivals(q, quantity)]
        if leaf.path not in places or len(places) != len(quantities) or len(places) < 2:  # noqa: PLR2004 - one is no list
            return None
        listed = quantities[sorted(places.values()).index(places[leaf.path])]
        return None if listed.values & quantity.values else listed

    def _elsewhere(self, leaf: Leaf, value: float) -> str:
        claimed = Quantity(frozenset({value}), self._unit(leaf), NUMBER, 0, 0)
        for index, source in enumerate(self.request.context[:50]):
            if any(
                _has_value(claimed, quantity)
                for quantity in read_facts(source.content[:20_000], self.quoted.language).quantities
            ):
                return f"{NOT_QUOTED}; context[{index}] has it"
        return f"{NOT_QUOTED} and in no source"

    # ---- texts ----

    def _text(self, leaf: Leaf, text: str) -> _Located:
        if (parts := _date_parts(text)) is not None:
            return self._date(parts, text)
        if (evidence := self._verbatim(leaf, text)) is not None:
            return _Located(Verdict.SUPPORTED, (evidence,))
        if any(locate(text, str(value)) is not None for value in self.quoted.titles):
            return _Located(Verdict.SUPPORTED, (), "it stands in the metadata of a quoted source")
        if _NUMBER_TEXT.match(text.strip()):
            numbers = [
                q for q in read_facts(text, self.quoted.language).quantities if q.kind == NUMBER or q.kind in DATES
            ]
            if len(numbers) == 1:
                return self._number(leaf, min(numbers[0].values))
        content = content_words(words(text.replace("_", " ")))
        if len(content) > _SHORT_TEXT:
            return self._statement(text)
        return self._phrase(leaf, text.replace("_", " "), content)

    def _verbatim(self, leaf: Leaf, text: str) -> Evidence | None:
        """The place of a text in the quoted sentences, word for word; a choice must not be denied there."""
        for sentence in self.quoted.sentences:
            place = locate(text, sentence.text)
            if place is None or not _is_whole(sentence.text, place) or (leaf.chosen and _is_negated(sentence, place)):
                continue
            return sentence.evidence(place.start, place.end)
        return None

    def _phrase(self, leaf: Leaf, text: str, content: frozenset[str]) -> _Located:
        """A name or a choice: all its words in one sentence, not denied there, with the same quantities."""
        if not content:
            return _Located(Verdict.UNSUPPORTED, (), NOT_QUOTED)
        facts = read_facts(text, self.quoted.language)
        numbers = [quantity for quantity in facts.quantities if quantity.kind == NUMBER]
        denied: Sentence | None = None
        for sentence in self.quoted.sentences:
            if not content <= sentence.content | _values_of(sentence.facts):
                continue
            if not all(any(equal(claimed, other) for other in sentence.facts.quantities) for claimed in numbers):
                continue
            positions = [place for stem in content for place in sentence.facts.positions.get(stem, ())]
            if leaf.chosen and not facts.cues and positions and sentence.facts.negated.issuperset(positions):
                denied = sentence
                continue
            return _Located(Verdict.SUPPORTED, (sentence.evidence(),))
        if denied is not None:
            return _Located(Verdict.CONTRADICTED, (denied.evidence(),), "the quoted passage denies it")
        missing = content - frozenset[str]().union(*(sentence.content for sentence in self.quoted.sentences))
        if missing:
            return _Located(Verdict.UNSUPPORTED, (), NOT_QUOTED)
        return _Located(Verdict.UNSUPPORTED, (), "no quoted sentence has all its words")

    def _statement(self, text: str) -> _Located:
        """A longer text is a claim like those of the answer."""
        claim = CheckedClaim(text, Span(0, len(text)))
        finding = self._lexical.check(CheckInput(self.request, (claim,)))[0]
        return _Located(finding.verdict or Verdict.UNCHECKED, finding.evidence, finding.reason)

    def _date(self, parts: tuple[tuple[str, float], ...], text: str) -> _Located:
        for sentence in self.quoted.sentences:
            for match in _WRITTEN_DATE.finditer(sentence.text):
                if _is_date(match, [int(value) for _, value in parts]):
                    return _Located(Verdict.SUPPORTED, (sentence.evidence(*match.span()),))
            quantities = sentence.facts.quantities
            for position, first in enumerate(quantities):
                near = [q for q in quantities[position:] if q.first - first.last <= len(parts) + 2]
                matched = [
                    next(
                        (
                            q
                            for q in near
                            if value in q.values and (q.kind == kind or (q.kind == NUMBER and kind != MONTH))
                        ),
                        None,
                    )
                    for kind, value in parts
                ]
                if all(matched):
                    spans = [q for q in matched if q is not None]
                    evidence = sentence.tokens(min(q.first for q in spans), max(q.last for q in spans))
                    return _Located(Verdict.SUPPORTED, (evidence,))
        return _Located(Verdict.UNSUPPORTED, (), f"the date {text} {NOT_QUOTED.removeprefix('it ')}")

    # ---- yes and no ----

    def _boolean(self, leaf: Leaf) -> _Located:
        label = read_facts(leaf.label, "en" if leaf.label.isascii() else self.quoted.language)
        own = _folded(content_words(words(leaf.label)))
        names = _folded(content_words([word for name in leaf.key for word in words(name)]))
        shares = [max(_share(names, content), _share(own, content)) for content in map(_folded, self._contents)]
        share = max(shares)
        best = self.quoted.sentences[shares.index(share)]
        if share < _LEAST_LABEL and (
            self.quoted.language in {None, "en"} or (names | own) & _folded(self.quoted.all_words)
        ):
            return _Located(Verdict.UNSUPPORTED, (), "no quoted passage speaks of it")
        if share < _LEAST_LABEL:
            # The names are in another language than the sources: only denials can be compared.
            agreeing = [sentence for sentence in self.quoted.sentences if bool(sentence.facts.cues) is not leaf.value]
            if agreeing:
                return _Located(Verdict.SUPPORTED, (agreeing[0].evidence(),))
            best = self.quoted.sentences[0]
            affirmed = not best.facts.cues
        else:
            affirmed = _affirms(best, label, names | own)
        if affirmed is leaf.value:
            return _Located(Verdict.SUPPORTED, (best.evidence(),))
        return _Located(
            Verdict.CONTRADICTED, (best.evidence(),), f"the quoted passage says {'yes' if affirmed else 'no'}"
        )

    @property
    def _contents(self) -> Iterator[frozenset[str]]:
        return (sentence.content for sentence in self.quoted.sentences)


# ---- comparisons --------------------------------------------------------------------------------------------------


def _is_number(leaf: Leaf) -> bool:
    return isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool)


def _has_value(claimed: Quantity, quantity: Quantity) -> bool:
    """Tells whether a source's quantity is the claimed one exactly, in its unit or in another of the same kind."""
    value = next(iter(claimed.values))
    if quantity.kind not in {NUMBER, YEAR, DAY}:
        return False
    if quantity.kind != NUMBER:
        return value in quantity.values and not claimed.unit
    if quantity.unit == PERCENT and claimed.unit in {"", PERCENT}:
        return any(_same(value, other) or _same(value * 100, other) for other in quantity.values)
    exact = Quantity(quantity.values, quantity.unit, NUMBER, 0, 0)
    if claimed.unit and exact.unit and claimed.unit != exact.unit:
        return equal(claimed, exact) and comparable(claimed, exact)
    return any(_same(value, other) for other in quantity.values)


def _rivals(quantity: Quantity, other: Quantity) -> bool:
    """Tells whether two quantities may be values of one kind: a list names the unit once."""
    return comparable(quantity, other) or (
        quantity.kind == other.kind == NUMBER and not (quantity.unit and other.unit) and not quantity.article
    )


_SPACED_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?:[.,]\d{1,2})?(?!\d)")
_HAN_SCALED = re.compile(r"(\d+(?:\.\d+)?)\s*([万萬亿億])")
_WRITTEN_DATE = re.compile(
    r"(?<!\d)(?:(?P<y>\d{4})[-/.年](?P<m>\d{1,2})(?:[-/.月](?P<d>\d{1,2})日?)?|(?P<a>\d{1,2})[-/.](?P<b>\d{1,2})[-/.](?P<c>\d{4}))(?!\d)"
)


def _numbers_in_own_form(text: str) -> Iterator[tuple[tuple[int, int], float]]:
    """Numbers in forms of their own: with spaces between the thousands, with a Chinese scale behind digits."""
    for match in _SPACED_NUMBER.finditer(text):
        yield match.span(), float(re.sub(r"[ \u00a0\u202f]", "", match.group()).replace(",", "."))
    for match in _HAN_SCALED.finditer(text):
        yield match.span(), float(match[1]) * (1e4 if match[2] in "万萬" else 1e8)


def _is_date(match: re.Match[str], parts: Sequence[int]) -> bool:
    """Tells whether a date in digits is the one of these parts; 3/5/2024 may be read both ways."""
    if match["y"]:
        numbers = [int(match[name]) for name in ("y", "m", "d") if match[name]]
        return numbers[: len(parts)] == [*parts]
    first, second, year = int(match["a"]), int(match["b"]), int(match["c"])
    return [*parts] in ([year, second, first][: len(parts)], [year, first, second][: len(parts)])


def _same(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-9 * max(abs(value), abs(other), 1.0)


def _contradicted(sentence: Sentence, quantity: Quantity) -> _Located:
    evidence = sentence.tokens(quantity.first, quantity.last)
    phrase = sentence.text[evidence.start - sentence.start : evidence.end - sentence.start]
    return _Located(Verdict.CONTRADICTED, (evidence,), f"the quoted passage about it says {phrase}")


def _values_of(facts: FactText) -> frozenset[str]:
    """The numbers of a sentence in the form of its words."""
    return frozenset(f"{value:g}" for quantity in facts.quantities for value in quantity.values)


def _folded(stems: Iterable[str]) -> frozenset[str]:
    """The stems without accents, which names in a schema often lack."""
    return frozenset(
        stem if stem.isascii() else "".join(c for c in normalize("NFD", stem) if not combining(c)) for stem in stems
    )


def _share(label: frozenset[str], content: frozenset[str]) -> float:
    return len(label & content) / len(label) if label else 0.0


def _affirms(sentence: Sentence, label: FactText, names: Iterable[str]) -> bool:
    """True if a sentence affirms what a label names: not denied, and on the same side of an opposite."""
    facts = sentence.facts
    positions = [place for stem, places in facts.positions.items() if _folded((stem,)) & set(names) for place in places]
    # Scripts without spaces have no words to go by.
    denied = any(place in facts.negated for place in positions) if positions else bool(facts.cues)
    sides = {side for _, _, poles in label.poles for side in poles}
    sentence_sides = {side for _, _, poles in facts.poles for side in poles}
    opposite = any((group, 1 - side) in sentence_sides for group, side in sides) and not sides & sentence_sides
    return (denied == opposite) is not bool(label.cues)


def _is_negated(sentence: Sentence, place: Span) -> bool:
    tokens = [n for n, (start, end) in enumerate(sentence.facts.spans) if start < place.end and place.start < end]
    return bool(tokens) and all(token in sentence.facts.negated for token in tokens)


def _is_whole(text: str, place: Span) -> bool:
    """Tells whether a match ends at the ends of words; scripts without spaces have none to look at."""
    before, after = text[place.start - 1 : place.start], text[place.end : place.end + 1]
    return not (_joins(before, text[place.start]) or _joins(text[place.end - 1], after))


def _joins(before: str, after: str) -> bool:
    return bool(before and after) and before.isalnum() and after.isalnum() and max(before, after) < "\u0e00"


def _date_parts(text: str) -> tuple[tuple[str, float], ...] | None:
    """The parts of a date in a usual form; None for other texts."""
    stripped = text.strip()
    if match := _ISO_DATE.match(stripped):
        year, month, day = match[1], match[2], match[3]
    elif match := _POINTED_DATE.match(stripped):
        day, month, year = match[1], match[2], match[3]
    else:
        return None
    try:
        date(int(year), int(month), int(day or 1))
    except ValueError:
        return None
    parts: list[tuple[str, float]] = [(YEAR, float(year)), (MONTH, float(month))]
    return (*parts, (DAY, float(day))) if day else tuple(parts)


def flagged(values: Iterable[Value]) -> Iterator[Value]:
    """The values without support, including the unchecked ones."""
    return (value for value in values if value.verdict is not Verdict.SUPPORTED)
