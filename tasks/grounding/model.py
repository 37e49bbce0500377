"""The fitted model of the lexical check: a claim's features, each with a meaning in words, and their calibrated probability.

A logistic regression, read from a file with a version.
"""

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.base import Contract
from schemas.grounding import Evidence
from tasks.errors import ConfigurationError
from tasks.grounding.weights import LocalWeights, RightShares
from tasks.raw_jobs.refusals import problem_words
from tasks.text.evidence import Match, SourceSearch
from tasks.text.facts import Kind, read_facts
from tasks.text.sentences import Span, words
from tasks.text.source_index import metadata_stems
from tasks.text.time_limit import ensure_time
from tasks.text.wording import stem_of, words_of

# ---- features --------------------------------------------------------------------------------------------------------

_DIGIT_END = "9"
AROUND = " \t\n.,;:!?…"


class Features(NamedTuple):
    """The model's input for one claim and one scope of sources; all but the last in the order of the model's weights."""

    letters: float
    """Share of the pieces of three letters of its content words that are in the best window of three passages; [0, 1]."""
    numbers_absent: float
    """log(1 + numbers, at most three, that stand in no source of the scope)."""
    numbers_held: float
    """log(1 + numbers, at most three, that stand in a source of the scope)."""
    names_absent: float
    """log(1 + words of names, at most three, that begin no word of a source of the scope)."""
    differs: float = 0.0
    """1 if a place of a source accounts for all of it but a fact, which differs there."""
    verbatim: bool = False
    """It is in a source word for word, or a place of a source accounts for each of its facts."""


VERBATIM_CLAIM = Features(1.0, 0.0, 0.0, 0.0, verbatim=True)
"""A claim that stands in a source, for which all else counts nothing."""

WEIGHED = Features._fields[:-1]
"""Features with a weight in the model; a verbatim claim needs no weighing."""


@dataclass(frozen=True)
class ClaimText:
    """A claim's text, read once: words, numbers, names and negation."""

    raw: str
    words: tuple[str, ...]
    content: frozenset[str]
    """Content words, as stems."""
    language: Callable[[], str | None]
    """The language of its answer; asked for only where a claim is measured, and a copy is not."""

    @property
    def text(self) -> str:
        """The text without what stands around it."""
        return self.raw.strip(AROUND)

    @property
    def pieces(self) -> list[str]:
        """The pieces of three letters of its words of content: other forms of a word share most of them."""
        listed = [word for word in dict.fromkeys(self.words) if word[0] > _DIGIT_END and stem_of(word) in self.content]
        return [word[at : at + 3] for word in listed for at in range(max(1, len(word) - 2))]

    @cached_property
    def names(self) -> frozenset[str]:
        """The words of its names."""
        facts = read_facts(self.raw, self.language()).facts
        listed = [self.raw[fact.start : fact.end] for fact in facts if fact.kind is Kind.NAME]
        return frozenset(
            word for word in words(" ".join(listed)) if word[0] > _DIGIT_END and stem_of(word) in self.content
        )


def read_claim(text: str, language: Callable[[], str | None] = lambda: None) -> ClaimText:
    """Reads a claim without citation markers, with the language of its answer."""
    read = words_of(text)
    return ClaimText(text, read.words, read.content, language)


class Measurement(NamedTuple):
    """Measurement of a claim in a scope of sources."""

    features: Features
    evidence: tuple[Evidence, ...]
    """The best window, or those of several sources, best first, if the claim needs them together."""


def measure(search: SourceSearch, claim_text: ClaimText) -> Measurement:
    """Measures a claim against the sources of a search. Pure.

    In a scope of several sources its words are those of the best window, or of their best windows together if the
    scope is the claim's citations: a claim that cites two sources needs both.
    """
    evidence = tuple(
        Evidence(source_index=match.source_index, start=span.start, end=span.end, score=round(match.score, 4))
        for match in _windows(search, claim_text)
        for span in [search.span(match, claim_text.content)]
    )
    passages = "\n".join(
        text
        for place in evidence
        for text in (
            search.content(place.source_index)[place.start : place.end],
            *metadata_stems(search.metadata(place.source_index)),
        )
    ).lower()
    pieces = claim_text.pieces
    numbers = [stem for stem in claim_text.content if stem[0] <= _DIGIT_END]
    numbers_absent = [stem for stem in numbers if not search.holds(stem)]
    names_absent = [
        name
        for name in claim_text.names
        # Chinese, and China: other forms of a name have its first letters, too.
        if not (search.holds(stem_of(name)) or search.has_letters(name[:4]))
    ]
    features = Features(
        letters=sum(piece in passages for piece in pieces) / (len(pieces) or 1),
        numbers_absent=_log_count(len(numbers_absent)),
        numbers_held=_log_count(len(numbers) - len(numbers_absent)),
        names_absent=_log_count(len(names_absent)),
    )
    return Measurement(features, evidence)


def _log_count(count: int) -> float:
    return math.log1p(min(count, _LARGEST_COUNT))


_LARGEST_COUNT = 3
"""Bound of a count: without it, numbers alone would decide a claim full of numbers."""

LEAST_QUOTED = 3
"""Words of content below which words in a row are chance, or a piece of a list ("1.", "section 102(b)")."""

_BEFORE_SENTENCE = re.compile(
    r"(?:\A|[.!?:;](?=\D|\Z)|[。！？\n|])[\s\"“„«'()\[\]*_#>•–—-]*(?:\w{1,4}[.)]\s+)?\Z"  # noqa: RUF001 - dashes before an item
)
"""What stands before a sentence: an end, quotation marks, the number of a paragraph."""
_BEHIND_SENTENCE = re.compile(r"[\"”»'’)\]*_\s]*(?:\Z|[.!?;:](?!\d)|[。！？\n|])")  # noqa: RUF001 - closing quotation marks
_CONTINUED = re.compile(r"[\"”»'’)\]*_]*+[.;:]?[^\S\n]*+\n?[^\S\n]*+[a-zà-öø-ÿ]")  # noqa: RUF001 - closing quotation marks
"""What goes on behind a full stop of an abbreviation, a semicolon or a line break: from 10 a.m. to 6 p.m. except Mondays."""
_PART_OF_NUMBER = re.compile(r"(?:[^\s\"“„«'(\[]|[<>≤≥≈~±+−–—-]\s*)\Z")  # noqa: RUF001 - signs and relations
"""What makes the digits behind it another number: a sign, a relation, the rest of a number, a currency."""
_BEFORE = 12
"""Characters before a sentence among which the end of the one before stands."""


def find_sentence(content: str, text: str) -> Span | None:
    """The place where a text stands as a whole sentence, whatever its line breaks: nothing around it turns its meaning."""
    for place in _places_of(content, text.split()):
        ensure_time()
        before = content[max(0, place.start - _BEFORE) : place.start]
        if content[place.start].isdigit() and _PART_OF_NUMBER.search(before):
            continue
        is_whole = _BEFORE_SENTENCE.search(before) and _BEHIND_SENTENCE.match(content, place.end)
        if is_whole and not _CONTINUED.match(content, place.end):
            return place
    return None


def _places_of(content: str, pieces: Sequence[str]) -> Iterator[Span]:
    """The places where pieces of a text stand one after another, with white space between them; first those with one space."""
    plain = " ".join(pieces)
    start = content.find(plain) if plain else -1
    while start >= 0:
        yield Span(start, start + len(plain))
        start = content.find(plain, start + 1)
    # To compile a pattern for each sentence takes twenty times as long.
    start = content.find(pieces[0]) if pieces else -1
    while start >= 0:
        if (end := _end_of(content, pieces, start)) is not None:
            yield Span(start, end)
        start = content.find(pieces[0], start + 1)


def _end_of(content: str, pieces: Sequence[str], start: int) -> int | None:
    """The end of the pieces of a text that begin at a place; None if another word stands among them."""
    end = start + len(pieces[0])
    for piece in pieces[1:]:
        begin = end
        while content[begin : begin + 1].isspace():
            begin += 1
        if begin == end or not content.startswith(piece, begin):
            return None
        end = begin + len(piece)
    return end


_ENOUGH = 0.7
"""Share of the words of a claim in one window above which no second source is searched."""


def _windows(search: SourceSearch, claim_text: ClaimText) -> list[Match]:
    matches = [match for source in search.sources if (match := search.best(claim_text.content, source)) is not None]
    # The earliest among equals.
    matches.sort(key=lambda match: -round(match.score, 9))
    windows, covered = matches[:1], set[str]()
    if search.scope is None or not windows or windows[0].score >= _ENOUGH:
        return windows
    for match in matches:
        more = search.matched_words(match, claim_text.content) - covered
        if match is not windows[0] and more:
            windows.append(match)
        covered |= more
    return windows


# ---- the model -------------------------------------------------------------------------------------------------------


Knots = tuple[tuple[float, float], ...]
"""(score, probability), both rising; between two knots the probability is interpolated, beyond the ends it is flat."""


def probability(knots: Knots, score: float) -> float:
    """Calibrated probability of a score, in [0, 1]."""
    position = bisect_right(knots, score, key=itemgetter(0))
    if position == 0:
        return knots[0][1]
    if position == len(knots):
        return knots[-1][1]
    (before, low), (after, high) = knots[position - 1], knots[position]
    return low + (high - low) * (score - before) / (after - before)


SHIPPED = "lexical-6.json"

VERBATIM = 6.0
"""Log-odds of a claim that is in a source word for word: beyond all weighted scores, so the last knot gives its
probability."""


def _rises(knots: Knots) -> Knots:
    if not knots or any(not 0 <= value <= 1 for _, value in knots):
        raise ValueError("knots are (score, probability), at least one, with probabilities in [0, 1]")
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(knots)):
        raise ValueError("knots must rise")
    return knots


class Calibration(Contract):
    """Meaning of scores for one kind of data: written by ``nightdesk calibrate``, named by NIGHTDESK_CALIBRATION."""

    model: str = Field(description="name and version of the model whose scores it reads")
    knots: Knots
    supported_at: float = Field(ge=0, le=1, description="least probability of a supported claim")
    labels: int = Field(ge=0, description="labelled rows it was made from")
    labels_sha256: str = ""
    made_at: str = ""
    metrics: dict[str, Any] = Field(default_factory=dict)
    local: LocalWeights | None = Field(default=None, description="weights of a local model")
    right: RightShares | None = Field(default=None, description="shares of right verdicts; none: the model's")

    _rising = field_validator("knots")(_rises)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a calibration file; raises ``ConfigurationError`` that names it."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"NIGHTDESK_CALIBRATION: {path} can't be read: {error.strerror}") from error
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, at['loc']))}: {problem_words(at)}" for at in error.errors())
            raise ConfigurationError(f"NIGHTDESK_CALIBRATION: {path} is no calibration: {problems}") from error


class LexicalModel(Contract):
    """Weights over the ``WEIGHED`` features; log-odds out."""

    name: str
    version: str
    features: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float
    knots: Knots
    supported_at: float = Field(ge=0, le=1)
    right: RightShares
    trained_on: dict[str, str] = Field(description="file: SHA-256 of its bytes")
    trained_at: str
    recipe: str
    metrics: dict[str, Any] = Field(default_factory=dict)

    _rising = field_validator("knots")(_rises)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.features != WEIGHED:
            raise ValueError(f"made for the features {self.features}, but this version has {WEIGHED}")
        return self

    def log_odds(self, features: Features) -> float:
        """Score of a claim before calibration."""
        if features.verbatim:
            return VERBATIM
        # The last feature has no weight.
        return self.intercept + math.fsum(weight * value for weight, value in zip(self.weights, features, strict=False))

    def probability(self, features: Features) -> float:
        """Calibrated probability that the claim is supported; holds for data like the calibration's."""
        return probability(self.knots, self.log_odds(features))

    def calibrated(self, calibration: Calibration) -> "LexicalModel":
        """Copy of this model with an operator's calibration; raises ``ConfigurationError`` if it was made for another model."""
        if calibration.model != self.identity:
            raise ConfigurationError(
                f"NIGHTDESK_CALIBRATION was made for {calibration.model}, but this version has {self.identity}: "
                "run nightdesk calibrate again"
            )
        right = calibration.right or self.right
        # Only these: nothing else in the file changes a number of the layer.
        document = calibration.model_dump_json(include={"model", "knots", "supported_at", "right"})
        digest = hashlib.sha256(document.encode()).hexdigest()[:8]
        return self.model_copy(
            update={
                "knots": calibration.knots,
                "supported_at": calibration.supported_at,
                "right": right,
                "version": f"{self.version}+{digest}",
            }
        )

    @property
    def identity(self) -> str:
        """Name and version of the weights, whatever the calibration."""
        return f"{self.name}-{self.version.partition('+')[0]}"


@lru_cache(maxsize=1)
def shipped() -> LexicalModel:
    """Model that ships with this version."""
    return LexicalModel.model_validate_json((resources.files("tasks.grounding") / "models" / SHIPPED).read_bytes())
