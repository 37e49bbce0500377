"""Local model check: a model reads the best passages for the claims that the lexical layer leaves open, in one batch."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas.generation import CheckerName
from schemas.grounding import Evidence, Verdict
from schemas.job import JobRequest
from tasks.errors import ConfigurationError
from tasks.grounding.checkers import CheckedClaim, CheckInput, ClaimFinding
from tasks.grounding.model import Calibration, LexicalModel, shipped
from tasks.grounding.weights import LocalWeights
from tasks.ports.provider import ClaimScorer
from tasks.text.evidence import SourceSearch, search_sources
from tasks.text.sentences import Span, words
from tasks.text.time_limit import ensure_time
from tasks.text.wording import content_words

SURELY_UNSUPPORTED = 0.12
SURELY_SUPPORTED = 0.73
"""Probabilities at and beyond which a local model is sure of a claim, so that no judge is asked about it."""

PASSAGES = 3
"""Passages read for a claim: at most two of the sources it cites, the rest of all sources."""
OF_CITED = 2

CHARACTERS_PER_TOKEN = 3
"""Fewer than of any tokenizer of a European language, so that a passage rarely has to be cut by the model."""

SCORE_PAIRS = 64
"""Pairs that the model scores between two looks at the time: a few seconds of a large model."""

NO_OPINION = 0.05
"""Distance of the model's probability from one half below which a claim that words leave undecided stays so."""

HEAD_CHARACTERS = 1_000
"""Beginning of a source, read where no source has a word of a claim: it may be in another language."""


class Local:
    """Scores each open claim against its best passages; the best score counts, weighed against the lexical one.

    Args:
        scorer: the model.
        lexical: the model of the lexical layer, whose threshold is the one between the verdicts.
        calibration: weights for an operator's own data; None: cautious defaults.

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
        """Checks all claims: one finding each, in order; without a verdict where the lexical layer is sure."""
        lexical_findings = answer.earlier.get(CheckerName.LEXICAL)
        findings = [ClaimFinding() for _ in answer.claims]
        for position, scored in self._scored(answer, open_claims(answer.claims, lexical_findings)):
            lexical = lexical_findings[position] if lexical_findings else ClaimFinding()
            findings[position] = self._finding(answer.claims[position], lexical, scored)
        return findings

    def log_odds(self, answer: CheckInput) -> list[float]:
        """Scores every claim, open or not, by its best passage, as the input of a calibration."""
        scored = self._scored(answer, range(len(answer.claims)))
        return [max(passage.logit for passage in passages) for _, passages in scored]

    def _scored(self, answer: CheckInput, positions: Sequence[int]) -> Iterator[tuple[int, list["_ScoredPassage"]]]:
        """Scores the passages of each position; all pairs of the answer go to the model at once."""
        chosen = list(self._chosen(answer, positions))
        contents = [source.content for source in answer.request.context]
        pairs = [
            (contents[passage.source_index][passage.start : passage.end], _without_gaps(answer.claims[at].text))
            for at, chosen_passages in chosen
            for passage in chosen_passages
        ]
        logits = [logit for some in _batches(pairs) for logit in self._scorer.score(some)]
        if len(logits) != len(pairs) or not all(map(math.isfinite, logits)):
            raise ValueError(
                f"{self._scorer.name} gave {len(logits)} scores for {len(pairs)} pairs, or not finite ones"
            )
        scores = iter(logits)
        for position, chosen_passages in chosen:
            yield position, [_ScoredPassage(passage, float(next(scores))) for passage in chosen_passages]

    def _chosen(self, answer: CheckInput, positions: Sequence[int]) -> Iterator[tuple[int, list[Evidence]]]:
        content = {position: content_words(words(answer.claims[position].text)) for position in positions}
        search = search_sources(answer.request.context, frozenset[str]().union(*content.values()))
        for position in positions:
            claim = answer.claims[position]
            room = max(HEAD_CHARACTERS, self._scorer.max_tokens * CHARACTERS_PER_TOKEN - len(claim.text))
            chosen = passages(search, answer.request, claim, content[position], room)
            if chosen:
                yield position, chosen

    def _finding(self, claim: CheckedClaim, by_words: ClaimFinding, scored: Sequence["_ScoredPassage"]) -> ClaimFinding:
        lexical = by_words.score
        cited = {citation.source_index for citation in claim.citations}
        threshold = self._weights.threshold(None if lexical is None else self._lexical.supported_at)
        best = _best(scored)
        of_cited = _best([passage for passage in scored if passage.passage.source_index in cited])
        if of_cited is not None and self._weights.probability(lexical, of_cited.logit) >= threshold:
            best = of_cited
        assert best is not None
        probability = self._weights.probability(lexical, best.logit)
        supported = probability >= threshold
        alone = self._weights.alone(best.logit)
        miscited = supported and bool(cited) and best.passage.source_index not in cited
        # The model tells support from no support: a contradiction that it does not lift stays one.
        denied = Verdict.CONTRADICTED if by_words.verdict is Verdict.CONTRADICTED else Verdict.UNSUPPORTED
        if by_words.verdict is Verdict.UNDECIDED and abs(alone - 0.5) < NO_OPINION:
            return ClaimFinding(reason=self._reason(alone, supported=supported, miscited=False))
        return ClaimFinding(
            verdict=Verdict.SUPPORTED if supported else denied,
            score=round(probability, 4),
            evidence=(best.passage.model_copy(update={"score": round(alone, 4)}),),
            miscited=miscited,
            reason=self._reason(alone, supported=supported, miscited=miscited),
        )

    def _reason(self, alone: float, *, supported: bool, miscited: bool) -> str:
        says = f"the local model {self._scorer.name} gives the best passage {alone:.2f}"
        if supported != (alone >= 0.5):  # noqa: PLR2004 - more likely than not
            says += ", the words outweigh it"
        return f"supported by a source that it does not cite; {says}" if miscited else says


class _ScoredPassage(NamedTuple):
    passage: Evidence
    logit: float


def _batches(pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    """Cuts the pairs so that the model stops soon after the time of the check is up."""
    for start in range(0, len(pairs), SCORE_PAIRS):
        ensure_time()
        yield pairs[start : start + SCORE_PAIRS]


_GAP = re.compile(r"\s+(?=[.,;:!?])|\s+(?=\s)")


def _without_gaps(claim: str) -> str:
    """Removes the blanks that citation markers leave in a claim, because models read them."""
    return _GAP.sub("", claim).strip()


def _best(scored: Sequence[_ScoredPassage]) -> _ScoredPassage | None:
    """Passage of the highest score; the earliest among equals, which holds more of the words."""
    return max(scored, key=lambda passage: passage.logit, default=None)


def identity_of(scorer: ClaimScorer) -> str:
    """Name and version of a model, as records and calibrations name it."""
    return f"{scorer.name}-{scorer.version}"


def without_judge(findings: Mapping[CheckerName, Sequence[ClaimFinding]]) -> Sequence[ClaimFinding] | None:
    """Findings to weigh a judge's verdict against: the local model's where it has a verdict, else the lexical ones.

    None when neither layer ran.
    """
    lexical, local = findings.get(CheckerName.LEXICAL), findings.get(CheckerName.LOCAL)
    if lexical is None or local is None:
        return lexical or local
    return [
        by_model if by_model.verdict is not None else by_words
        for by_model, by_words in zip(local, lexical, strict=True)
    ]


DECIDED_BY_WORDS = frozenset({Verdict.SUPPORTED, Verdict.CONTRADICTED})
"""Verdicts of words that stand: no reader is asked about them."""


def open_claims(claims: Sequence[CheckedClaim], by_words: Sequence[ClaimFinding] | None) -> list[int]:
    """Positions of the claims that words leave open; where they were not compared (None) all others than below.

    A claim whose citations all point to unknown sources is left out: no reading supports it.
    """
    return [
        position
        for position, claim in enumerate(claims)
        if not (claim.unknown and not claim.citations)
        and not (by_words and by_words[position].verdict in DECIDED_BY_WORDS)
    ]


def claims_to_judge(
    claims: Sequence[CheckedClaim], findings: Mapping[CheckerName, Sequence[ClaimFinding]]
) -> list[int]:
    """Positions of the claims that words leave open and that a local model, if there is one, is not sure of."""
    local = findings.get(CheckerName.LOCAL)
    return [
        position
        for position in open_claims(claims, findings.get(CheckerName.LEXICAL))
        if not (local and is_sure(local[position].score))
    ]


def is_sure(score: float | None) -> bool:
    """True if a local model's probability of a claim decides alone, so that no judge is asked."""
    return score is not None and (score <= SURELY_UNSUPPORTED or score >= SURELY_SUPPORTED)


def passages(
    search: SourceSearch, request: JobRequest, claim: CheckedClaim, content: frozenset[str], room: int
) -> list[Evidence]:
    """Chooses passages for a claim, best first: of its cited sources, then of any; beginnings if its words stand nowhere.

    Args:
        search: over the request's sources.
        request: the job.
        claim: the claim.
        content: its content words, part of the search's vocabulary.
        room: largest number of characters of a passage.
    """
    cited = {citation.source_index for citation in claim.citations}
    matches = [match for source in range(len(request.context)) for match in search.several(content, source, PASSAGES)]
    matches.sort(key=lambda match: (-match.score, match.source_index, match.window))
    chosen = [match for match in matches if match.source_index in cited][:OF_CITED]
    chosen += [match for match in matches if match not in chosen][: PASSAGES - len(chosen)]
    places = [(match.source_index, search.around(match, room)) for match in chosen] or [
        (source, Span(0, min(len(request.context[source].content), room, HEAD_CHARACTERS)))
        for source in (sorted(cited) or range(len(request.context)))[:PASSAGES]
    ]
    return [Evidence(source_index=source, start=span.start, end=span.end) for source, span in places]
