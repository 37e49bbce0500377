"""Choose which claims a judge is asked about, and where the sources speak of them."""

from collections.abc import Mapping, Sequence

from schemas.generation import CheckerName
from schemas.job import JobRequest
from schemas.prompt import SourcePart
from tasks.checkers.answer import CheckedClaim, ClaimFinding
from tasks.checkers.local import without_judge
from tasks.text.evidence import SourceSearch, content_words
from tasks.text.sentences import words

SURELY_UNSUPPORTED = 0.12
SURELY_SUPPORTED = 0.71
"""Calibrated probabilities by words at and beyond which no judge is asked. Below the first the words are right more
often than a judge is; above the second as often (see ``weighing.DEFAULT``). docs/checks.md has what that saves and loses."""

WINDOWS = 3
"""Places shown for a claim, at most."""

HEAD_CHARACTERS = 1_500
"""Of a source's beginning, shown where no word of a claim stands in any source: it may be said in another language."""


def undecided(claims: Sequence[CheckedClaim], findings: Mapping[CheckerName, Sequence[ClaimFinding]]) -> list[int]:
    """The positions of the claims that the layers which ran leave open.

    Not a claim that cites only sources which were not given: no reading makes that right. Without a calibrated layer
    all others.
    """
    lexical = without_judge(findings)
    return [
        position
        for position, claim in enumerate(claims)
        if not (claim.unknown and not claim.citations) and not (lexical and is_sure(lexical[position].score))
    ]


def is_sure(score: float | None) -> bool:
    """Whether a claim is decided without a judge, by the calibrated probability of the other layers."""
    return score is not None and (score <= SURELY_UNSUPPORTED or score >= SURELY_SUPPORTED)


def windows_for(
    request: JobRequest, claims: Sequence[CheckedClaim], positions: Sequence[int]
) -> list[list[SourcePart]]:
    """For each position, where to look, best first: what the claim quotes, then where its words stand together."""
    said = {position: content_words(words(claims[position].text)) for position in positions}
    search = SourceSearch(request.context, frozenset[str]().union(*said.values()))
    return [[*_quoted(claims[at]), *_found(search, request, said[at])][:WINDOWS] or _heads(request) for at in positions]


def _quoted(claim: CheckedClaim) -> list[SourcePart]:
    return [
        SourcePart(source_index=one.source_index, start=one.source_start, end=one.source_end)
        for one in claim.citations
        if one.verified and one.source_start is not None and one.source_end is not None
    ]


def _found(search: SourceSearch, request: JobRequest, said: frozenset[str]) -> list[SourcePart]:
    matches = [match for at in range(len(request.context)) if (match := search.best(said, at)) is not None]
    matches.sort(key=lambda match: (-match.score, match.source_index))
    parts = []
    for match in matches[:WINDOWS]:
        span = search.span(match, said)
        parts.append(SourcePart(source_index=match.source_index, start=span.start, end=span.end))
    return parts


def _heads(request: JobRequest) -> list[SourcePart]:
    return [
        SourcePart(source_index=at, start=0, end=min(len(source.content), HEAD_CHARACTERS))
        for at, source in enumerate(request.context[:WINDOWS])
    ]
