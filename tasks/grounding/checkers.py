"""The common form of all checkers, and the two that always run: words by a fitted model, and the form of citations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple, Protocol

from schemas.answer import Citation
from schemas.claim_error import ClaimError
from schemas.generation import CheckerName
from schemas.grounding import Evidence, JudgeVerdict, ReusedFrom, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed, own_words
from tasks.grounding.decision import Decider, Decision, is_fragment
from tasks.grounding.model import (
    AROUND,
    LEAST_QUOTED,
    VERBATIM_CLAIM,
    ClaimText,
    Features,
    LexicalModel,
    Measurement,
    find_sentence,
    measure,
    read_claim,
    shipped,
)
from tasks.text.evidence import SourceSearch, search_sources
from tasks.text.language import language_of
from tasks.text.sentences import LONGEST, Span, month_pattern
from tasks.text.source_index import metadata_stems
from tasks.text.statements import Reading, Vocabulary, read_statement
from tasks.text.time_limit import ensure_time
from tasks.text.wording import number_word

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
    unaccounted: tuple[str, ...] = ()
    """Words that no place of the sources accounts for, where words leave it undecided; a judge is shown them."""
    sentence: str = ""
    """The whole sentence of which it is one clause; empty where it is all of it."""

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
    """The claim's wrong fact."""
    unaccounted: tuple[str, ...] = ()
    """Words of an undecided claim that no place of the sources accounts for."""


NO_FINDING = ClaimFinding()


@dataclass(frozen=True, slots=True)
class CheckInput:
    """An answer as the checkers see it. ``claims`` are the checkable ones, in the order of the response."""

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    earlier: Mapping[CheckerName, Sequence[ClaimFinding]] = field(default_factory=dict)
    """Findings of the layers that ran before."""


def checkable_claims(request: JobRequest, processed: Processed) -> tuple[tuple[CheckedClaim, ...], tuple[Reading, ...]]:
    """The checkable claims of an answer, and the reading of each of its statements."""
    bare = processed.bare
    vocabulary = Vocabulary(request.query, [source.content for source in request.context], bare)
    claims = []
    readings = []
    ends: dict[int, tuple[int, int]] = {}
    for statement in processed.statements:
        start, _ = ends.get(statement.sentence, (statement.start, 0))
        ends[statement.sentence] = start, statement.end
    for statement in processed.statements:
        cited = bool(statement.citations or statement.unknown)
        text = bare[statement.start : statement.end]
        text = text if request.check_only else own_words(processed, text)
        reading = read_statement(text, cited=cited, vocabulary=vocabulary)
        readings.append(reading)
        if reading.reason is None:
            citations = tuple(processed.citations[position] for position in statement.citations)
            span = Span(statement.start, statement.end)
            start, end = ends[statement.sentence]
            whole = "" if span == (start, end) else own_words(processed, bare[start:end])
            claims.append(CheckedClaim(reading.words, span, citations, statement.unknown, sentence=whole))
    return tuple(claims), tuple(readings)


class Checker(Protocol):
    """One layer of the check. ``version`` changes whenever a verdict could."""

    name: str
    version: str

    def check(self, answer: CheckInput) -> Sequence[ClaimFinding]:
        """Checks all claims: one finding each, in order. Pure; a checker that raises gives no verdicts."""
        ...


# ---- words -----------------------------------------------------------------------------------------------------------

LIKELY = 0.8
"""Share of the words of a claim that a source must have to be read for a claim that does not cite it."""


class Lexical:
    """Measures each claim in the sources it cites; if those don't support it, or it cites none, in all of them.

    Args:
        model: with an operator's calibration; None: the shipped one.
    """

    name = "lexical"

    def __init__(self, model: LexicalModel | None = None) -> None:
        self._model = model or shipped()
        self.version = self._model.version
        self.right = self._model.right
        """Shares of right verdicts."""

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Checks all claims: one finding each, in order. The sources are read once for all claims."""
        return [self._finding(judged) for judged in self._judge(answer)]

    def log_odds(self, answer: CheckInput) -> list[float]:
        """Scores each claim before calibration, as the input of a calibration."""
        return [self._model.log_odds(features) for features in self.features(answer)]

    def features(self, answer: CheckInput) -> list[Features]:
        """Measures each claim: in the sources it cites if these support it, else where its words fit best."""
        return [judged.reading.features for judged in self._judge(answer)]

    def _judge(self, answer: CheckInput) -> Iterator["_Judged"]:
        reader = _Reader(answer)
        texts = [read_claim(claim.text, lambda: reader.code) for claim in answer.claims]
        search = search_sources(answer.request.context, frozenset[str]().union(*(text.content for text in texts)))
        for claim, text in zip(answer.claims, texts, strict=True):
            yield self._judged(reader, search, claim, text)

    def _judged(self, reader: "_Reader", search: SourceSearch, claim: CheckedClaim, text: ClaimText) -> "_Judged":
        cited = frozenset(citation.source_index for citation in claim.citations)
        reading = reader.read(text, search.within(cited or None), claim.sentence)
        by_cited = reading.supported
        miscited = bool(claim.unknown) and not cited and by_cited
        likely = search.likely(text.content, LIKELY, but=cited) if cited and not by_cited else frozenset[int]()
        if likely:
            everywhere = reader.read(text, search.within(likely | cited), claim.sentence)
            miscited = everywhere.supported
            if miscited or (everywhere.decision.error is not None and reading.decision.error is None):
                reading = everywhere
        citations = attribution(
            cited,
            broken=claim.broken,
            unknown=len(set(claim.unknown)),
            supported=by_cited,
            entails=lambda scope: reader.read(text, search.within(scope)).supported,
        )
        return _Judged(reading, miscited, citations, _rival(reader, search, text, reading))

    def _finding(self, judged: "_Judged") -> ClaimFinding:
        decision, features = judged.reading.decision, judged.reading.features
        remarks = ["supported by a source that it does not cite"] if judged.miscited else []
        if (rival := judged.rival) is not None and rival.place is not None:
            content = judged.reading.search.content(rival.place.source_index)
            remarks.append(f"another source says otherwise: {content[rival.place.start : rival.place.end].strip()!r}")
        score, verdict = self._model.probability(features), decision.verdict
        if verdict is Verdict.CONTRADICTED:
            # Nearly a copy has nearly all of its words: they say less than the fact that differs.
            score = min(score, 1 - self.right.contradicted)
        if verdict is Verdict.SUPPORTED and score < self._model.supported_at:
            verdict = Verdict.UNDECIDED
            remarks.append(f"words support it, but not to the threshold of {self._model.supported_at:.2f}")
        return ClaimFinding(
            verdict=verdict,
            score=round(score, 4),
            evidence=judged.reading.evidence,
            miscited=judged.miscited,
            reason="; ".join([*remarks, *filter(None, [decision.reason])]),
            attribution=judged.attribution,
            error=decision.error or (rival and rival.error),
            unaccounted=decision.unaccounted,
        )


@dataclass(frozen=True)
class _Reading:
    """A claim in one scope of sources: what its words decide there, its measurement, and what to show for it."""

    text: ClaimText
    search: SourceSearch
    decision: Decision

    @property
    def supported(self) -> bool:
        return self.decision.verdict is Verdict.SUPPORTED

    @cached_property
    def _measurement(self) -> Measurement:
        return measure(self.search, self.text)

    @property
    def features(self) -> Features:
        if self.supported:
            return VERBATIM_CLAIM
        return self._measurement.features._replace(differs=float(self.decision.verdict is Verdict.CONTRADICTED))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        decision = self.decision
        if decision.verdict is not Verdict.UNDECIDED and decision.place is not None:
            return (decision.place,)
        return self._measurement.evidence


class _Judged(NamedTuple):
    reading: _Reading
    miscited: bool
    attribution: Attribution
    rival: Decision | None
    """The decision of another source that has a different fact than a supported claim."""


def _rival(reader: "_Reader", search: SourceSearch, text: ClaimText, reading: _Reading) -> Decision | None:
    place = reading.decision.place
    if not reading.supported or place is None:
        return None
    named = metadata_stems(search.metadata(place.source_index)) & text.content
    for source in islice(reader.near(text, search, but=place.source_index), _MOST_RIVALS):
        scope = search.within({source})
        if not all(map(scope.holds, named)):
            # Of a product that the claim names, a source of another one says nothing.
            continue
        decision = reader.read(text, scope).decision
        if decision.error is not None and decision.error.source_words:
            return decision
    return None


class _Reader:
    """Reads the claims of one answer in scopes of its sources."""

    def __init__(self, answer: CheckInput) -> None:
        self._answer = answer

    @cached_property
    def code(self) -> str | None:
        """Language of the answer: by its claims, or else by the question, or by the first source that shows one."""
        claims = " ".join(claim.text for claim in self._answer.claims)
        request = self._answer.request
        texts = (claims, request.query, *(source.content for source in request.context))
        return next(filter(None, map(language_of, texts)), None)

    def near(self, text: ClaimText, search: SourceSearch, but: int) -> Iterator[int]:
        """The other sources with the words of a claim in one passage, but for numbers and names; of a short one only the first words.

        By their letters, without reading any; those that have the claim itself are left out.
        """
        if len(text.raw) > LONGEST:
            return
        listed = [word for word in text.words if len(word) > _SHORT and word.isalpha() and word in text.raw]
        # Without their first letters, which may be large ones; the longest stands in few sources.
        is_short = len(listed) <= 1
        rarest = " ".join(text.raw.split()[:-1][:_FIRST]) if is_short else max(listed, key=len)[1:-1]
        for source, each in enumerate(self._answer.request.context):
            is_near = source != but and _stand_together(rarest, [] if is_short else listed, search, source)
            if is_near and find_sentence(each.content, text.text) is None:
                yield source

    def read(self, text: ClaimText, search: SourceSearch, sentence: str = "") -> _Reading:
        """Decides a claim in the sources of a search; one clause of a copied sentence is a copy, too."""
        if (place := _copied(text, sentence, search)) is not None:
            return _Reading(text, search, Decision(Verdict.SUPPORTED, place))
        return _Reading(text, search, Decider(text.raw, text.content, search, self.code).decision())


_ROOT = 5
"""Letters of a word that its other forms have, too."""
_SHORT = 3
"""Letters of a word that is not looked for; a claim with fewer than two longer ones is short."""
_FIRST = 3
"""First words of a short claim: The fee is."""
_MOST_RIVALS = 5
"""Other sources that are read for one claim: each takes as long as the claim itself."""
_AROUND = 200
"""Characters on each side of a word that are a place, and half of those between two places."""


def _has_words(text: str, words: Sequence[str]) -> bool:
    """Tells whether a text has words by their roots, but for numbers and months, in whose place it may have others."""
    return all(
        word[1:_ROOT] in text or number_word(word) is not None or month_pattern().match(word) is not None
        for word in words
    )


def _stand_together(longest: str, words: Sequence[str], search: SourceSearch, source: int) -> bool:
    """Tells whether words stand in a passage with the longest of them, or around it in a table."""
    content = search.content(source)
    start = content.find(longest)
    while start >= 0:
        ensure_time()
        place, behind = content[max(0, start - _AROUND) : start + _AROUND], start + _AROUND // 2
        if _has_words(place, words):
            passage = search.passages_with(source, start, start + 1)
            if passage is None or "|" in place or _has_words(content[slice(*passage)], words):
                return True
            behind = passage.end
        start = content.find(longest, behind)
    return False


_CLOSING = frozenset(".!?。！？")  # noqa: RUF001 - full-width marks


def _copied(claim: ClaimText, sentence: str, search: SourceSearch) -> Evidence | None:
    """The place of a claim in a source that has it as a whole sentence, word for word, or all of the sentence that it is a part of."""
    is_sentence = len(claim.content) >= LEAST_QUOTED and not is_fragment(claim.text)
    for text in (claim.text if is_sentence else "", sentence.strip(AROUND)):
        for index in search.sources if text else ():
            content = search.content(index)
            if (whole := find_sentence(content, text)) is not None:
                start = max(whole.start, content.find(claim.text, whole.start, whole.end))
                end = start + len(claim.text) if content.startswith(claim.text, start) else whole.end
                end += content[end : end + 1] in _CLOSING
                return Evidence(source_index=index, start=start, end=end, score=1.0)
    return None


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
    if not remarks:
        return NO_FINDING
    broken = (claim.citations or claim.unknown) and unlocated == len(claim.citations)
    return ClaimFinding(verdict=Verdict.UNSUPPORTED if broken else None, reason="; ".join(remarks))
