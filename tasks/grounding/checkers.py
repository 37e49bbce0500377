"""The common form of all checkers, and the two that always run: words by a fitted model, and the form of citations."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from schemas.answer import Citation
from schemas.claim_error import ClaimError, ErrorKind
from schemas.generation import CheckerName
from schemas.grounding import Evidence, JudgeVerdict, ReusedFrom, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed, own_words
from tasks.answers.rendered import strip_markers
from tasks.grounding.model import ClaimText, Features, LexicalModel, Measurement, copy_of, measure, read_claim, shipped
from tasks.grounding.objections import LEAST_RECALL, Compared, Objection, absence, objection_to
from tasks.grounding.rival_numbers import number_conflict
from tasks.text.evidence import SourceSearch, search_sources
from tasks.text.language import language_of
from tasks.text.respelling import respell
from tasks.text.sentences import Span, words
from tasks.text.statements import Reading, Vocabulary, read_statement

# ---- input and output of a checker -----------------------------------------------------------------------------------


class Attribution(NamedTuple):
    """Citations of one claim: whether they support it, their number, and the number of precise ones."""

    recalled: bool
    cited: int = 0
    precise: int = 0


def attribution(
    cited: frozenset[int],
    *,
    supported: bool,
    entails: Callable[[frozenset[int]], bool],
    broken: frozenset[int] = frozenset(),
    unknown: int = 0,
) -> Attribution:
    """Judges the citations of one claim, as ALCE defines it (Gao et al. 2023, section 3.2).

    Recall: a claim counts when the sources that it cites support it, all together. Precision: one of its citations counts
    when the claim is supported and the citation is needed: alone it supports the claim, or without it the others don't.

    Args:
        cited: the sources it cites.
        supported: all of them together support it.
        entails: true if some of them support it; called only for several citations.
        broken: those of which no place was found in the source; they are never precise.
        unknown: citations of sources that do not exist.
    """
    total = len(cited) + unknown
    if not cited or not supported:
        return Attribution(recalled=False, cited=total)
    if len(cited) == 1:
        return Attribution(recalled=True, cited=total, precise=len(cited - broken))
    precise = sum(entails(frozenset({source})) or not entails(cited - {source}) for source in cited - broken)
    return Attribution(recalled=True, cited=total, precise=precise)


def citation_scores(attributions: Iterable[Attribution]) -> tuple[float | None, float | None]:
    """Recall and precision of an answer's citations: None without attributions, and without citations."""
    claims = list(attributions)
    cited = sum(claim.cited for claim in claims)
    recall = sum(claim.recalled for claim in claims) / len(claims) if claims else None
    return recall, sum(claim.precise for claim in claims) / cited if cited else None


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim to be checked: its words without markers, its place in the response, and its citations."""

    text: str
    span: Span
    citations: tuple[Citation, ...] = ()
    unknown: tuple[int, ...] = ()
    """Source numbers it cites that the request does not have."""

    @property
    def broken(self) -> frozenset[int]:
        """The sources that it cites without a place in them."""
        located = {citation.source_index for citation in self.citations if citation.verified}
        return frozenset(citation.source_index for citation in self.citations) - located


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """One checker's finding on one claim; ``verdict`` None: a remark only, or nothing."""

    verdict: Verdict | None = None
    score: float | None = None
    evidence: tuple[Evidence, ...] = ()
    miscited: bool = False
    reason: str = ""
    attribution: Attribution | None = None
    """Recall and precision of its citations; only from a layer that reads meaning."""
    reused_from: ReusedFrom | None = None
    """The call that a reused verdict of a judge came from."""
    judge: JudgeVerdict | None = None
    """The judge's own verdict, before fusion."""
    error: ClaimError | None = None
    """The claim's wrong fact; a near copy of its evidence where the kind is not ``absent``."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """An answer as the checkers see it. ``claims`` are the checkable ones, in the order of the response."""

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    earlier: Mapping[CheckerName, Sequence[ClaimFinding]] = field(default_factory=dict)
    """Findings of the layers that ran before."""


def checkable_claims(request: JobRequest, processed: Processed) -> tuple[tuple[CheckedClaim, ...], tuple[Reading, ...]]:
    """The checkable claims of an answer, and the reading of each of its statements."""
    bare = strip_markers(processed.response, processed.markers)
    vocabulary = Vocabulary(request.query, [source.content for source in request.context], bare)
    claims = []
    readings = []
    for statement in processed.statements:
        cited = bool(statement.citations or statement.unknown)
        text = bare[statement.start : statement.end]
        text = text if request.check_only else own_words(processed, text)
        reading = read_statement(text, cited=cited, vocabulary=vocabulary)
        readings.append(reading)
        if reading.reason is None:
            citations = tuple(processed.citations[position] for position in statement.citations)
            span = Span(statement.start, statement.end)
            claims.append(CheckedClaim(reading.words, span, citations, statement.unknown))
    return tuple(claims), tuple(readings)


class Checker(Protocol):
    """One layer of the check. ``version`` changes whenever a verdict could."""

    name: str
    version: str

    def check(self, answer: CheckInput) -> Sequence[ClaimFinding]:
        """Checks all claims: one finding each, in order. Pure; a checker that raises gives no verdicts."""
        ...


# ---- words -----------------------------------------------------------------------------------------------------------

_SHOWN_WORDS = 6
_LOW_RECALL = 0.75
"""Recall below which the missing words are named among the reasons."""


class Lexical:
    """Measures each claim in the sources it cites; if those don't support it, or it cites none, in all of them.

    Args:
        model: with an operator's calibration; None: the shipped one.
    """

    name = "lexical"

    def __init__(self, model: LexicalModel | None = None) -> None:
        self._model = model or shipped()
        self.version = self._model.version
        self.dependence = self._model.dependence
        """Dependence between the claims of an answer: see ``joint_probability``."""

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Checks all claims: one finding each, in order. The sources are read once for all claims."""
        query = frozenset(words(answer.request.query))
        return [self._finding(judged, query) for judged in self._judge(answer)]

    def log_odds(self, answer: CheckInput) -> list[float]:
        """Scores each claim before calibration, as the input of a calibration."""
        return [self._model.log_odds(features) for features in self.features(answer)]

    def features(self, answer: CheckInput) -> list[Features]:
        """Measures each claim: in the sources it cites if these support it, else where its words fit best."""
        return [judged.measurement.features for judged in self._judge(answer)]

    def _judge(self, answer: CheckInput) -> Iterator["_Judged"]:
        contents = [source.content for source in answer.request.context]
        texts = [_read(claim, contents) for claim in answer.claims]
        search = search_sources(answer.request.context, frozenset[str]().union(*(text.content for text in texts)))
        search.expect(
            lambda: [
                text.content
                for claim, text in zip(answer.claims, texts, strict=True)
                if _needs_words(search, text, {citation.source_index for citation in claim.citations})
            ]
        )
        reader = _Reader(self._model, search, answer)
        for claim, text in zip(answer.claims, texts, strict=True):
            yield self._judged(reader, claim, text)

    def _judged(self, reader: "_Reader", claim: CheckedClaim, claim_text: ClaimText) -> "_Judged":
        cited = frozenset(citation.source_index for citation in claim.citations)
        everything = reader.search
        reading = reader.read(claim_text, everything.within(cited or None))
        by_cited = reading.supported
        miscited = False
        if cited and not by_cited:
            measurement = measure(everything, claim_text)
            # Facts never support a claim that its words do not: then they need no second look.
            if not reading.measurement.windows or reader.by_words(measurement) >= self._model.supported_at:
                everywhere = reader.decide(claim_text, measurement, everything)
                miscited = everywhere.supported
                if miscited or not reading.measurement.windows:
                    reading = everywhere
        if claim.unknown and not cited:
            miscited = by_cited
        model = self._model
        citations = attribution(
            cited,
            broken=claim.broken,
            unknown=len(set(claim.unknown)),
            supported=by_cited,
            entails=lambda scope: (
                model.probability(measure(everything.within(scope), claim_text).features) >= model.supported_at
            ),
        )
        return _Judged(claim_text, reading, miscited, citations)

    def _finding(self, judged: "_Judged", query: frozenset[str]) -> ClaimFinding:
        return ClaimFinding(
            verdict=judged.reading.verdict,
            score=round(judged.reading.score, 4),
            evidence=_evidence(judged),
            miscited=judged.miscited,
            reason="; ".join(_reasons(judged, query)),
            attribution=judged.attribution,
            error=_error(judged),
        )


def _read(claim: CheckedClaim, contents: Sequence[str]) -> ClaimText:
    """Reads a claim with its times and fractions as the sources spell them that it cites."""
    cited = [contents[citation.source_index] for citation in claim.citations]
    return read_claim(*respell(claim.text, cited or contents))


def _error(judged: "_Judged") -> ClaimError | None:
    """The wrong fact of a claim in the claim's own spelling; None without one."""
    if (objection := judged.reading.objection) is None:
        return None
    if not judged.claim_text.originals:
        return objection.error
    words_of_claim = objection.error.claim_words
    for spelled, original in judged.claim_text.originals.items():
        words_of_claim = words_of_claim.replace(spelled, original)
    return objection.error.model_copy(update={"claim_words": words_of_claim})


_NEAR_COPY = 0.5
"""Recall from which a claim that differs contradicts its source; with less its other words differ, too."""
_BELOW = 0.01
"""Distance from the threshold of a claim that its words alone would support."""


class _Reading(NamedTuple):
    """A claim in one scope of sources: its measurement, its objection, and the verdict of both."""

    search: SourceSearch
    measurement: Measurement
    objection: Objection | None
    score: float
    verdict: Verdict

    @property
    def supported(self) -> bool:
        return self.verdict is Verdict.SUPPORTED


def _needs_words(search: SourceSearch, claim_text: ClaimText, cited: Collection[int]) -> bool:
    """Tells whether a claim is searched for by its words: it is no copy, or each of several sources is asked about it."""
    return len(cited) > 1 or copy_of(search.within(cited or None), claim_text) is None


class _Reader:
    """Reads the claims of one answer in scopes of its sources."""

    def __init__(self, model: LexicalModel, search: SourceSearch, answer: CheckInput) -> None:
        self.search = search
        self._model = model
        self._answer = answer
        self._compared: Compared = {}

    @cached_property
    def _code(self) -> str | None:
        """Language of the answer: by its claims, or else by the question, or by the first source that shows one."""
        claims = " ".join(claim.text for claim in self._answer.claims)
        request = self._answer.request
        texts = (claims, request.query, *(source.content for source in request.context))
        return next(filter(None, map(language_of, texts)), None)

    def read(self, claim_text: ClaimText, search: SourceSearch) -> _Reading:
        """Measures a claim, compares its facts, and decides."""
        return self.decide(claim_text, measure(search, claim_text), search)

    def by_words(self, measurement: Measurement) -> float:
        """The probability of a claim without a look at its facts."""
        return self._model.probability(measurement.features)

    def decide(self, claim_text: ClaimText, measurement: Measurement, search: SourceSearch) -> _Reading:
        """Compares the facts of a claim that was measured in a search, and decides."""
        features, threshold = measurement.features, self._model.supported_at
        by_words = self.by_words(measurement)
        if features.verbatim:
            objection = None
        elif features.recall < LEAST_RECALL:
            objection = absence((*measurement.numbers_absent, *measurement.names_absent))
        else:
            objection = objection_to(
                claim_text.raw, claim_text.content, search, code=self._code, compared=self._compared
            )
        if objection is None:
            verdict = Verdict.SUPPORTED if by_words >= threshold else Verdict.UNSUPPORTED
            return _Reading(search, measurement, None, by_words, verdict)
        measurement = measurement._replace(features=features._replace(differs=1.0))
        score = min(self._model.probability(measurement.features), max(0.0, threshold - _BELOW))
        near = by_words >= threshold or features.recall >= _NEAR_COPY
        verdict = Verdict.CONTRADICTED if objection.contradicts and near else Verdict.UNSUPPORTED
        return _Reading(search, measurement, objection, score, verdict)


class _Judged(NamedTuple):
    """A claim with its measurement and verdict."""

    claim_text: ClaimText
    reading: _Reading
    miscited: bool
    attribution: Attribution

    @property
    def measurement(self) -> Measurement:
        return self.reading.measurement

    @property
    def search(self) -> SourceSearch:
        return self.reading.search


def _evidence(judged: _Judged) -> tuple[Evidence, ...]:
    evidence = []
    objection = judged.reading.objection
    if objection is not None and objection.evidence is not None and not judged.reading.supported:
        evidence.append(objection.evidence)
    for match in judged.measurement.windows:
        start, end = judged.search.span(match, judged.claim_text.content)
        evidence.append(Evidence(source_index=match.source_index, start=start, end=end, score=round(match.score, 4)))
    return tuple(evidence)


def _reasons(judged: _Judged, query: frozenset[str]) -> list[str]:
    """Reasons against a claim, the weightiest first; for a supported claim only remarks worth a look."""
    search, claim_text, measurement = judged.search, judged.claim_text, judged.measurement
    reasons = []
    if judged.miscited:
        reasons.append("supported by a source that it does not cite")
    elif measurement.features.verbatim and judged.reading.supported:
        return reasons
    reasons.extend(_wrong_facts(judged, query))
    if judged.reading.supported:
        return reasons
    if measurement.denies_alone:
        reasons.append("it denies something, and the best place in the sources does not")
    if not measurement.windows:
        reasons.append("none of its words stand in the sources")
    elif measurement.features.recall < _LOW_RECALL or not reasons:
        covered = set[str]().union(*(search.matched_words(match, claim_text.content) for match in measurement.windows))
        absent = sorted(claim_text.content - covered, key=lambda stem: (-search.weights[stem], stem))[:_SHOWN_WORDS]
        missing = f"; missing there: {', '.join(claim_text.surface(stem) for stem in absent)}" if absent else ""
        reasons.append(
            f"the best place in the sources holds {measurement.features.recall:.0%} of what it says{missing}"
        )
    return reasons


def _wrong_facts(judged: _Judged, query: frozenset[str]) -> list[str]:
    """The facts that differ from the sources or are in none, each once."""
    measurement, objection = judged.measurement, judged.reading.objection
    if objection is None:
        # What is in no source by its characters was found there by its value: 60 months and five years.
        return []
    numbers, names = measurement.numbers_absent, measurement.names_absent
    reasons = []
    absent = objection.error.kind is ErrorKind.ABSENT
    stated = frozenset(words(objection.error.claim_words)) if absent else frozenset[str]()
    listed = frozenset(words(" ".join((*numbers, *names))))
    if not absent or not stated <= listed:
        reasons.append(objection.reason)
        names = tuple(name for name in names if not stated.issuperset(words(name)))
        numbers = tuple(number for number in numbers if number not in stated)
    if numbers:
        reasons.append(_absent("number", numbers, query))
        if absent:
            reasons.extend(number_conflict(judged.search, judged.claim_text, measurement))
    if names:
        reasons.append(_absent("name", names, frozenset()))
    return reasons


def _absent(kind: str, missing: Sequence[str], query: frozenset[str]) -> str:
    named = ", ".join(missing)
    reason = f"the {kind} {named} is in no source" if len(missing) == 1 else f"the {kind}s {named} are in no source"
    return reason + " (only in the question)" if all(word in query for word in missing) else reason


# ---- form of citations --------------------------------------------------------------------------------------------------


class Structure:
    """Finds claims unsupported whose citations are all broken; never supported, as it reads no meaning."""

    name = "structure"
    version = "1"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Checks all claims: one finding each, in order."""
        config = answer.request.config
        # The clauses of a sentence may share a citation.
        total = len({citation.start_pos for claim in answer.claims for citation in claim.citations})
        wants_more = config.include_citations and total < config.min_citations
        return [
            _finding(
                claim,
                wants_citation=config.include_citations and config.min_citations > 0,
                missing=config.min_citations - total if wants_more else 0,
            )
            for claim in answer.claims
        ]


_NO_FINDING = ClaimFinding()


def _finding(claim: CheckedClaim, *, wants_citation: bool, missing: int) -> ClaimFinding:
    remarks = []
    if claim.unknown:
        remarks.append(f"cites source(s) that do not exist: {', '.join(map(str, claim.unknown))}")
    unlocated = sum(not citation.verified for citation in claim.citations)
    if unlocated:
        remarks.append(f"{unlocated} of its citations could not be located in the source cited")
    if wants_citation and not claim.citations and not claim.unknown:
        remarks.append("carries no citation")
        if missing:
            remarks.append(f"the answer has {missing} citation(s) too few")
    broken = (claim.citations or claim.unknown) and unlocated == len(claim.citations)
    if not broken and not remarks:
        return _NO_FINDING
    return ClaimFinding(verdict=Verdict.UNSUPPORTED if broken else None, reason="; ".join(remarks))
