"""Computes an answer's quality and the sufficiency of its sources by documented formulas, with reasons in words.

These heuristics supplement the check: they cost no call and guarantee nothing. The calibrated score is ``confidence``.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import JobRequest
from schemas.quality import QualityConstants
from schemas.record import Quality
from schemas.states import Outcome
from tasks.answers.postprocess import Processed
from tasks.policy.relevance import mean_relevance, relevance_scores
from tasks.questions.subject_evidence import is_about
from tasks.text.language import language_of
from tasks.text.sentences import Span, words
from tasks.text.wording import DENIAL, content_words, figures, hedging, is_factual

DEFAULTS = QualityConstants()

_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_SPACED_WORD = re.compile(r"\w\S*")
_MARKS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code).isspace() or chr(code) == "_"))
_SPACES = bytes(ord(" ") if chr(code).isspace() else code for code in range(256))
"""For ASCII: without its marks a text has a piece for each word between spaces, in a fifth of the time of a search."""
_LETTERS_A_WORD = 2
"""Characters of a script without spaces that count as one word: most Chinese words have two."""
_NAMED_PHRASES = 3
"""Most phrases of uncertainty in a remark."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Measurements of an answer; None without anything to measure.

    Attributes:
        relevance: mean relevance score of the sources used, each limited to [0, 1]; of all sources if no used one has a
            score.
        coverage: share of checkable sentences with a located citation.
        sources_used: number of sources that the answer rests on.
        agreement: mean over claims that a source supports or contradicts.
        strong: phrases of strong uncertainty.
        moderate: phrases of moderate uncertainty.
        figures: number of amounts, percentages, times and ages.
        length: number of words, without the phrases of uncertainty.
    """

    relevance: float | None = None
    coverage: float | None = None
    sources_used: int = 0
    agreement: float | None = None
    strong: tuple[str, ...] = ()
    moderate: tuple[str, ...] = ()
    figures: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Assessment:
    """The heuristics of one answer.

    Attributes:
        answer_quality: in [0, 1]; None without an answer.
        sufficient: True if the sources suffice for the answer.
        remarks: the reasons for both, in words.
    """

    answer_quality: float | None
    sufficient: bool
    remarks: tuple[str, ...] = ()


def assess(request: JobRequest, processed: Processed, grounding: Grounding | None) -> Assessment:
    """Assesses an answer, without side effects.

    Args:
        request: the job's request; its config may change constants.
        processed: the answer.
        grounding: its check; None for an abstention, which has nothing to check.
    """
    if grounding is None or not processed.response.strip():
        return Assessment(answer_quality=None, sufficient=False)
    constants = request.config.quality or DEFAULTS
    # Text outside the statements (a list of sources, the syntax of JSON) counts for neither wording nor length.
    text = "\n".join(processed.bare[statement.start : statement.end] for statement in processed.statements)
    signals = measure(request, processed, grounding, text, constants)
    quality = score(signals, constants)
    gaps = tuple(_gaps(request, processed, grounding, text=text, signals=signals, constants=constants))
    suffices = "the sources suffice" if not gaps else f"the sources do not suffice: {'; '.join(gaps)}"
    remarks = (*_describe(signals, grounding), f"quality {quality:.2f}", suffices)
    return Assessment(quality, not gaps, remarks)


# ---- quality -----------------------------------------------------------------------------------------------------


def score(signals: Signals, constants: QualityConstants = DEFAULTS) -> float:
    """The quality in [0, 1]: a weighted mean of the signals, times a factor for wording, times a factor for length.

    Uncertainty overrides figures: an uncertain answer gains nothing from exact figures.
    """
    number = min(signals.sources_used / constants.enough_sources, 1.0) if signals.sources_used else None
    parts = (
        (constants.relevance_weight, signals.relevance),
        (constants.coverage_weight, signals.coverage),
        (constants.source_count_weight, constants.no_source_factor if number is None else number),
        (constants.agreement_weight, signals.agreement),
    )
    available = [(weight, value) for weight, value in parts if value is not None]
    total = sum(weight for weight, _ in available)
    mean = sum(weight * value for weight, value in available) / total if total else 0.0
    quality = mean * _wording_factor(signals, constants) * _length_factor(signals.length, constants)
    return round(min(1.0, max(constants.floor, quality)), 4)


def _wording_factor(signals: Signals, constants: QualityConstants) -> float:
    if signals.strong:
        return constants.strong_uncertainty
    if signals.moderate:
        return constants.moderate_uncertainty
    return min(constants.max_specificity, 1.0 + signals.figures * constants.specificity_per_figure)


def _length_factor(length: int, constants: QualityConstants) -> float:
    if length < constants.very_short_words:
        return constants.very_short
    if length < constants.short_words:
        return constants.short
    return constants.adequate if length < constants.adequate_words else 1.0


def word_count(text: str) -> int:
    """Number of words of a text; in scripts without spaces two characters count as one word."""
    if text.isascii():
        return len(text.encode("ascii").translate(_SPACES, delete=_MARKS).split())
    unspaced = sum(map(len, _UNSPACED.findall(text)))
    spaced = len(_SPACED_WORD.findall(_UNSPACED.sub(" ", text) if unspaced else text))
    return spaced + math.ceil(unspaced / _LETTERS_A_WORD)


def measure(
    request: JobRequest, processed: Processed, grounding: Grounding, text: str, constants: QualityConstants
) -> Signals:
    """Measures an answer; ``text`` is its response without citation markers."""
    must_cite = bool(processed.markers) or (request.config.include_citations and not request.check_only)
    rests_on = [
        _cited_sources(processed, statement.citations) if must_cite else _supporting_sources(claim)
        for claim, statement in zip(grounding.claims, processed.statements, strict=True)
    ]
    checkable = [position for position, claim in enumerate(grounding.claims) if _is_checkable(claim)]
    used = set[int]().union(*(rests_on[position] for position in checkable))
    uncertainty = hedging(text)
    denied = any(claim.reason == DENIAL for claim in grounding.claims)
    return Signals(
        relevance=_relevance(request, used),
        coverage=sum(bool(rests_on[position]) for position in checkable) / len(checkable) if checkable else None,
        sources_used=len(used),
        agreement=_agreement(grounding.claims, rests_on, constants),
        strong=(*uncertainty.strong, *(("not in the sources",) if denied else ())),
        moderate=uncertainty.moderate,
        figures=figures(text),
        length=max(0, word_count(text) - sum(map(word_count, (*uncertainty.strong, *uncertainty.moderate)))),
    )


def _is_checkable(claim: Claim) -> bool:
    return claim.verdict is not Verdict.NOT_CHECKABLE


def _cited_sources(processed: Processed, positions: Iterable[int]) -> frozenset[int]:
    """The sources that a sentence cites with a located passage."""
    citations = [processed.citations[position] for position in positions]
    return frozenset(citation.source_index for citation in citations if citation.source_start is not None)


def _supporting_sources(claim: Claim) -> frozenset[int]:
    """The sources that support a claim; they replace citations if none are required."""
    if claim.verdict is not Verdict.SUPPORTED:
        return frozenset()
    return frozenset(evidence.source_index for evidence in claim.evidence)


def _relevance(request: JobRequest, used: Iterable[int]) -> float | None:
    scores = relevance_scores(request)
    available = [score for index in used if (score := scores[index]) is not None]
    if not available:
        available = [score for score in scores if score is not None]
    return sum(min(1.0, max(0.0, score)) for score in available) / len(available) if available else None


def _agreement(
    claims: Sequence[Claim], rests_on: Sequence[frozenset[int]], constants: QualityConstants
) -> float | None:
    """Mean over the claims: 1 for support by several sources, less for support by one, 0 where a source contradicts."""
    values = []
    for claim, cited in zip(claims, rests_on, strict=True):
        if claim.verdict is Verdict.CONTRADICTED or claim.is_disputed:
            values.append(0.0)
        elif claim.verdict is Verdict.SUPPORTED:
            sources = _supporting_sources(claim) | cited
            values.append(1.0 if len(sources) > 1 else constants.single_source_agreement)
    return sum(values) / len(values) if values else None


# ---- sufficiency -------------------------------------------------------------------------------------------------


def _gaps(
    request: JobRequest,
    processed: Processed,
    grounding: Grounding,
    *,
    text: str,
    signals: Signals,
    constants: QualityConstants,
) -> Iterable[str]:
    """Reasons that the sources do not suffice; empty if they do."""
    if not processed.canonical.sufficient:
        yield "the answer says so itself"
    if signals.strong:
        yield f"strongly uncertain wording ({_quote_phrases(signals.strong)})"
    mean, least = mean_relevance(request), least_relevance(request.query, constants)
    if mean is not None and mean < least:
        yield f"the mean relevance of all sources is {mean:.2f}, below {least:.2f} for a question of {_count_of(word_count(request.query), 'word')}"
    factual = is_factual(request.query)
    fewest = constants.factual_min_words if factual else constants.default_min_words
    if signals.length < fewest:
        kind = "a factual question" if factual else "such a question"
        yield f"{_count_of(signals.length, 'word')}; an answer to {kind} needs at least {fewest}"
    if not _addresses(request.query, text, grounding, constants):
        yield "the answer does not address the question"
    evidence = _evidence(processed, grounding)
    if evidence and not _is_about(request, evidence, constants):
        yield "the evidence is about another subject than the question"


def least_relevance(query: str, constants: QualityConstants = DEFAULTS) -> float:
    """The least mean relevance of sources that suffice: more for a longer question."""
    query_words = word_count(query)
    if query_words <= constants.simple_query_words:
        return constants.simple_relevance
    if query_words <= constants.standard_query_words:
        return constants.standard_relevance
    return constants.complex_relevance


def _addresses(query: str, text: str, grounding: Grounding, constants: QualityConstants) -> bool:
    """Tells whether the answer shares words with the question, or has enough support to need none."""
    if (grounding.grounding_score or 0.0) >= constants.addressed_support:
        return True
    question_words = content_words(words(query))
    if not question_words:
        return True
    return len(question_words & content_words(words(text))) / len(question_words) >= constants.addressed_share


def _evidence(processed: Processed, grounding: Grounding) -> list[tuple[int, Span]]:
    """The passages that the answer rests on: the cited ones that were located, and the evidence of supported claims."""
    cited = [
        (citation.source_index, Span(citation.source_start, citation.source_end))
        for citation in processed.citations
        if citation.source_start is not None and citation.source_end is not None
    ]
    supporting = [
        (evidence.source_index, Span(evidence.start, evidence.end))
        for claim in grounding.claims
        if claim.verdict is Verdict.SUPPORTED
        for evidence in claim.evidence
    ]
    return list(dict.fromkeys([*cited, *supporting]))


def _is_about(request: JobRequest, evidence: Sequence[tuple[int, Span]], constants: QualityConstants) -> bool:
    """Tells whether the evidence is about the question's subject; True for evidence in another language."""
    if is_about(request, evidence, constants.subject_log_odds):
        return True
    language = language_of(request.query)
    text = " ".join(request.context[source].content[span.start : span.end] for source, span in evidence)
    return language is not None and (language_of(text) or language) != language


# ---- in words ----------------------------------------------------------------------------------------------------


def _describe(signals: Signals, grounding: Grounding) -> Iterable[str]:
    if signals.relevance is not None:
        yield f"relevance {signals.relevance:.2f}"
    if signals.coverage is not None:
        checkable = sum(map(_is_checkable, grounding.claims))
        yield f"{round(signals.coverage * checkable)} of {checkable} sentences rest on a source"
    yield _count_of(signals.sources_used, "source") + " used"
    if signals.agreement is not None:
        yield f"agreement {signals.agreement:.2f}"
    # Strong uncertainty is one of the gaps.
    if signals.moderate and not signals.strong:
        yield f"uncertain wording ({_quote_phrases(signals.moderate)})"
    if signals.figures and not (signals.moderate or signals.strong):
        yield _count_of(signals.figures, "exact figure")
    yield _count_of(signals.length, "word")


def _count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _quote_phrases(phrases: Sequence[str]) -> str:
    named = ", ".join(f"'{phrase}'" for phrase in phrases[:_NAMED_PHRASES])
    return f"{named} and {len(phrases) - _NAMED_PHRASES} more" if len(phrases) > _NAMED_PHRASES else named


def quality_of(
    request: JobRequest, outcome: Outcome, processed: Processed, grounding: Grounding | None, reasons: Sequence[str]
) -> Quality:
    """The quality in the record of an answer; ``reasons`` are those of its outcome."""
    assessment = assess(request, processed, grounding)
    return Quality(
        answer_quality=assessment.answer_quality,
        sufficient_context=assessment.sufficient,
        reasoning=reasoning(reasons, grounding, assessment),
        abstain_reason="; ".join(reasons) if outcome is Outcome.ABSTAINED else None,
        warnings=processed.warnings,
    )


def reasoning(outcome_reasons: Sequence[str], grounding: Grounding | None, assessment: Assessment) -> str:
    """One paragraph for a person: the reasons for the outcome, then the reasons for the quality."""
    sentences = [_sentence("; ".join(outcome_reasons) or _verdict(grounding))]
    if assessment.remarks:
        *measured, quality, suffices = assessment.remarks
        sentences += [_sentence("; ".join(measured)), _sentence(f"{quality}; {suffices}")]
    return " ".join(sentence for sentence in sentences if sentence)


def _verdict(grounding: Grounding | None) -> str:
    if grounding is None:
        return ""
    checkable = sum(map(_is_checkable, grounding.claims))
    supported = grounding.counts.get(Verdict.SUPPORTED, 0)
    if not checkable:
        return "there is no claim to check"
    if supported == checkable:
        return "every checkable claim is supported by a source"
    return f"{supported} of {checkable} claims are supported by a source"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
