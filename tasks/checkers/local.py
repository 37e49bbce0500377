"""Check by a local model: it reads the best passages for the claims that the words leave open, all in one batch."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.generation import CheckerName
from schemas.grounding import Evidence, Verdict
from schemas.job import JobRequest
from tasks.checkers.answer import CheckedClaim, CheckInput, ClaimFinding
from tasks.checkers.local_weights import LocalWeights
from tasks.checkers.model import Calibration, LexicalModel, shipped
from tasks.errors import ConfigurationError
from tasks.ports.scorer import ClaimScorer
from tasks.text.evidence import SourceSearch, content_words
from tasks.text.sentences import Span, words

SURELY_UNSUPPORTED = 0.12
SURELY_SUPPORTED = 0.71
"""Calibrated probabilities by words at and beyond which the model is not run: it saves its time where it rarely changes
a verdict. 0 and 1 have it read every claim."""

PASSAGES = 3
"""Passages read for a claim: at most two of the sources it cites, the rest of all sources."""
OF_CITED = 2

CHARACTERS_PER_TOKEN = 3
"""Fewer than of any tokenizer of a European language, so that a passage rarely has to be cut by the model."""
HEAD_CHARACTERS = 1_000
"""Of a source's beginning, read where no word of a claim stands in any source: it may be said in another language."""


class Local:
    """Scores each open claim against its best passages; the best of them counts, weighed against the words' own score.

    Args:
        scorer: the model.
        lexical: the model of the lexical layer, whose threshold is the one between the verdicts.
        calibration: what the scores mean on someone's own data; None: cautious defaults.

    Raises ``ConfigurationError`` for a calibration that was made for another model.
    """

    name = "local"

    def __init__(
        self, scorer: ClaimScorer, lexical: LexicalModel | None = None, calibration: Calibration | None = None
    ) -> None:
        self._scorer = scorer
        self._lexical = lexical or shipped()
        self._weights = (calibration.local if calibration else None) or LocalWeights()
        identity = identity_of(scorer)
        if self._weights.source and self._weights.source != identity:
            raise ConfigurationError(
                f"NIGHTDESK_CALIBRATION was made for the local model {self._weights.source}, but NIGHTDESK_LOCAL_MODEL is"
                f" {identity}: run nightdesk calibrate again"
            )
        self.version = identity
        if self._weights.labels:
            self.version += f"+{hashlib.sha256(self._weights.model_dump_json().encode()).hexdigest()[:8]}"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """One finding per claim, in order; without a verdict where the words are sure."""
        by_words = answer.found.get(CheckerName.LEXICAL)
        findings = [ClaimFinding() for _ in answer.claims]
        for position, scored in self._scored(answer, open_claims(answer)):
            lexical = by_words[position].score if by_words else None
            findings[position] = self._finding(answer.claims[position], lexical, scored)
        return findings

    def log_odds(self, answer: CheckInput) -> list[float]:
        """The model's own score of every claim, open or not, by its best passage: what a calibration is made from."""
        scored = self._scored(answer, range(len(answer.claims)))
        return [max(one.logit for one in passages) for _, passages in scored]

    def _scored(self, answer: CheckInput, positions: Sequence[int]) -> Iterator[tuple[int, list["_Scored"]]]:
        """For each position its passages with their scores; all pairs of the answer go to the model at once."""
        chosen = list(self._chosen(answer, positions))
        pairs = [(one.text(answer.request), _said(answer.claims[at].text)) for at, found in chosen for one in found]
        logits = list(self._scorer.score(pairs)) if pairs else []
        if len(logits) != len(pairs) or not all(map(math.isfinite, logits)):
            raise ValueError(
                f"{self._scorer.name} gave {len(logits)} scores for {len(pairs)} pairs, or not finite ones"
            )
        scores = iter(logits)
        for position, found in chosen:
            yield position, [_Scored(one, float(next(scores))) for one in found]

    def _chosen(self, answer: CheckInput, positions: Sequence[int]) -> Iterator[tuple[int, list["Passage"]]]:
        said = {position: content_words(words(answer.claims[position].text)) for position in positions}
        search = SourceSearch(answer.request.context, frozenset[str]().union(*said.values()))
        for position in positions:
            claim = answer.claims[position]
            room = max(HEAD_CHARACTERS, self._scorer.max_tokens * CHARACTERS_PER_TOKEN - len(claim.text))
            found = passages(search, answer.request, claim, said[position], room)
            if found:
                yield position, found

    def _finding(self, claim: CheckedClaim, lexical: float | None, scored: Sequence["_Scored"]) -> ClaimFinding:
        cited = {citation.source_index for citation in claim.citations}
        threshold = self._weights.threshold(None if lexical is None else self._lexical.supported_at)
        best = _best(scored)
        of_cited = _best([one for one in scored if one.passage.source_index in cited])
        if of_cited is not None and self._weights.probability(lexical, of_cited.logit) >= threshold:
            best = of_cited
        assert best is not None
        probability = self._weights.probability(lexical, best.logit)
        supported = probability >= threshold
        told = self._weights.alone(best.logit)
        miscited = supported and bool(cited) and best.passage.source_index not in cited
        return ClaimFinding(
            verdict=Verdict.SUPPORTED if supported else Verdict.UNSUPPORTED,
            score=round(probability, 4),
            evidence=(best.passage.evidence(round(told, 4)),),
            miscited=miscited,
            reason=self._reason(told, supported=supported, miscited=miscited),
        )

    def _reason(self, told: float, *, supported: bool, miscited: bool) -> str:
        says = f"the local model {self._scorer.name} gives the best passage {told:.2f}"
        if supported != (told >= 0.5):  # noqa: PLR2004 - more likely than not
            says += ", the words outweigh it"
        return f"supported by a source that it does not cite; {says}" if miscited else says


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a source that the model reads."""

    source_index: int
    span: Span

    def text(self, request: JobRequest) -> str:
        """Its words, exactly as they stand there."""
        return request.context[self.source_index].content[self.span.start : self.span.end]

    def evidence(self, score: float) -> Evidence:
        """The passage as evidence."""
        return Evidence(source_index=self.source_index, start=self.span.start, end=self.span.end, score=score)


@dataclass(frozen=True, slots=True)
class _Scored:
    passage: Passage
    logit: float


_GAP = re.compile(r"\s+(?=[.,;:!?])|\s+(?=\s)")


def _said(claim: str) -> str:
    """A claim as it would be written without citations: where a marker stood there are blanks, which models read."""
    return _GAP.sub("", claim).strip()


def _best(scored: Sequence[_Scored]) -> _Scored | None:
    """The highest score; the earliest among equals, which holds more of the words."""
    return max(scored, key=lambda one: one.logit, default=None)


def identity_of(scorer: ClaimScorer) -> str:
    """Name and version of a model, as records and calibrations name it."""
    return f"{scorer.name}-{scorer.version}"


def without_judge(findings: Mapping[CheckerName, Sequence[ClaimFinding]]) -> Sequence[ClaimFinding] | None:
    """What a judge's word is weighed against: the local model's finding where it has a verdict, else that of the words.

    None when neither layer ran.
    """
    by_words, local = findings.get(CheckerName.LEXICAL), findings.get(CheckerName.LOCAL)
    if by_words is None or local is None:
        return by_words or local
    return [mine if mine.verdict is not None else theirs for mine, theirs in zip(local, by_words, strict=True)]


def open_claims(answer: CheckInput) -> list[int]:
    """The positions of the claims that are worth the model's time: all, but where the words are sure.

    Not a claim that cites only sources which were not given: no reading makes that right.
    """
    by_words = answer.found.get(CheckerName.LEXICAL)
    return [
        position
        for position, claim in enumerate(answer.claims)
        if not (claim.unknown and not claim.citations) and not (by_words and is_sure(by_words[position].score))
    ]


def is_sure(score: float | None) -> bool:
    """Whether the words decide alone, by their calibrated probability."""
    return score is not None and (score <= SURELY_UNSUPPORTED or score >= SURELY_SUPPORTED)


def passages(
    search: SourceSearch, request: JobRequest, claim: CheckedClaim, said: frozenset[str], room: int
) -> list[Passage]:
    """Where to look for a claim, best first: in what it cites, then anywhere; beginnings if its words stand nowhere.

    Args:
        search: over the request's sources.
        request: the job.
        claim: the claim.
        said: its content words, part of the search's vocabulary.
        room: most characters of a passage.
    """
    cited = {citation.source_index for citation in claim.citations}
    matches = [match for source in range(len(request.context)) for match in search.several(said, source, PASSAGES)]
    matches.sort(key=lambda match: (-match.score, match.source_index, match.window))
    chosen = [match for match in matches if match.source_index in cited][:OF_CITED]
    chosen += [match for match in matches if match not in chosen][: PASSAGES - len(chosen)]
    found = [Passage(match.source_index, search.around(match, room)) for match in chosen]
    return found or [
        Passage(source, Span(0, min(len(request.context[source].content), room, HEAD_CHARACTERS)))
        for source in (sorted(cited) or range(len(request.context)))[:PASSAGES]
    ]
