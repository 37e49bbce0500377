"""Finds the windows of the sources about each claim that a judge is asked about."""

from collections.abc import Sequence

from schemas.job import JobRequest
from schemas.prompt import SourcePart
from tasks.grounding.findings import CheckedClaim
from tasks.text.evidence import SourceSearch, content_words
from tasks.text.sentences import words

WINDOWS = 3
"""Windows of a claim at most."""

HEAD_CHARACTERS = 1_500
"""Beginning of a source, shown where no word of a claim stands in any source: it may be in another language."""


def windows_for(
    request: JobRequest, claims: Sequence[CheckedClaim], positions: Sequence[int]
) -> list[list[SourcePart]]:
    """Windows of each position, best first: the claim's own quotes, then the best lexical windows."""
    content = {position: content_words(words(claims[position].text)) for position in positions}
    search = SourceSearch(request.context, frozenset[str]().union(*content.values()))
    return [
        [*_quotes(claims[at]), *_best_windows(search, request, content[at])][:WINDOWS] or _heads(request)
        for at in positions
    ]


def _quotes(claim: CheckedClaim) -> list[SourcePart]:
    return [
        SourcePart(source_index=citation.source_index, start=citation.source_start, end=citation.source_end)
        for citation in claim.citations
        if citation.verified and citation.source_start is not None and citation.source_end is not None
    ]


def _best_windows(search: SourceSearch, request: JobRequest, content: frozenset[str]) -> list[SourcePart]:
    matches = [match for at in range(len(request.context)) if (match := search.best(content, at)) is not None]
    matches.sort(key=lambda match: (-match.score, match.source_index))
    parts = []
    for match in matches[:WINDOWS]:
        span = search.span(match, content)
        parts.append(SourcePart(source_index=match.source_index, start=span.start, end=span.end))
    return parts


def _heads(request: JobRequest) -> list[SourcePart]:
    return [
        SourcePart(source_index=at, start=0, end=min(len(source.content), HEAD_CHARACTERS))
        for at, source in enumerate(request.context[:WINDOWS])
    ]
