"""Plans the request about the open claims of an answer with their evidence, without claims that have a cached verdict."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from schemas.job import JobRequest
from schemas.model_call import Prompt, SourcePart
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.judge.plan import (
    PROBABILITIES,
    WRITTEN_VERDICTS,
    Selection,
    ask,
    render_decision,
    render_judge,
    text_before,
    text_of,
    widened,
)
from tasks.grounding.judge.reply import probabilities_at, read_alone
from tasks.prompting.messages import source_attributes
from tasks.text.evidence import SourceSearch, search_sources
from tasks.text.sentences import words
from tasks.text.wording import content_words


@dataclass(frozen=True, slots=True)
class ClaimPair:
    """An open claim with its evidence in a judge's prompt.

    Attributes:
        sha256: in hex, over the claim's words, those of the claim before where it needs them, those that are not accounted
            for, and the metadata in the prompt and words of each part of ``parts``, in order. Offsets do not count: moved evidence is the same evidence.
        places: windows of the sources about the claim, best first.
        parts: the same with their neighbours, for a judge that quotes; all passages, for one that does not: its
            verdict may rest on any of them.
    """

    sha256: str
    places: tuple[SourcePart, ...]
    parts: tuple[SourcePart, ...]


def pair_of(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    position: int,
    places: Sequence[SourcePart],
    parts: Sequence[SourcePart],
) -> ClaimPair:
    """Pairs the claim at a position with its evidence."""
    words = [text_of(claims[position]), text_before(claims, position), *claims[position].unaccounted]
    for part in parts:
        words += [
            source_attributes(request.context[part.source_index]),
            request.context[part.source_index].content[part.start : part.end],
        ]
    return ClaimPair(_digest(words).hex(), tuple(places), tuple(parts))


def key_of(pair: str, judge: str, prompt: Prompt, recheck: UUID | None) -> bytes:
    """Cache key (32 bytes) of a verdict within a batch.

    Args:
        pair: ``ClaimPair.sha256``.
        judge: ``provider:model``.
        prompt: of the request: another template or version asks something else.
        recheck: the command that checks the answer again; None for a first check.
    """
    return _digest([pair, judge, prompt.name, prompt.version, prompt.template_sha256, str(recheck or "")])


def _digest(words: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for word in words:
        encoded = word.encode(errors="surrogatepass")
        # The length before each word keeps two different lists from giving the same bytes.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.digest()


NO_CLAIMS = Selection((), (), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """A request to a judge about one answer.

    Attributes:
        request: the job's request.
        claims: the checkable claims of the answer.
        open: the positions of all claims that need a verdict of the judge.
        pairs: by these positions.
        selection: the claims in the prompt: of equal pairs the first, and none that is ``cached``.
        prompt: the prompt of the selection; of an empty one, the prompt about all claims.
        cached: the judge's findings about equal pairs, in other calls.
        by_default: a judge that the job does not ask for is asked: it has little money, and sees the best windows alone.
    """

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    open: tuple[int, ...]
    pairs: Mapping[int, ClaimPair]
    selection: Selection
    prompt: Prompt
    cached: Mapping[int, ClaimFinding] = field(default_factory=dict)
    by_default: bool = False

    @property
    def decided(self) -> bool:
        """True for a judge that gives a probability for each claim, and no more."""
        return bool(self.prompt.snapshot.questions)


def plan_request(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    open_: Sequence[int],
    *,
    gives_probabilities: bool,
    by_default: bool = False,
) -> JudgeRequest:
    """Plans the request about the open claims of an answer; the same answer and sources always give the same.

    Args:
        request: the job's request.
        claims: the checkable claims of the answer.
        open_: positions of the open claims.
        gives_probabilities: the judge gives probabilities.
        by_default: see ``JudgeRequest``.
    """
    places = windows_for(request, claims, open_, LEAN_WINDOWS if by_default else WINDOWS)
    parts_of: Sequence[Sequence[SourcePart]] = places if by_default else widened(request, places)
    if gives_probabilities and not by_default:
        parts_of = [ask(claims, open_, places, parts_of, PROBABILITIES).passages] * len(open_)
    pairs = {
        at: pair_of(request, claims, at, windows, parts)
        for at, windows, parts in zip(open_, places, parts_of, strict=True)
    }
    selection, prompt = _ask(request, claims, pairs, open_, gives_probabilities=gives_probabilities)
    return JudgeRequest(request, tuple(claims), tuple(open_), pairs, selection, prompt, by_default=by_default)


def without_cached(question: JudgeRequest, findings: Mapping[int, ClaimFinding]) -> JudgeRequest:
    """The request without the claims of these findings, by their positions."""
    question = replace(question, cached={**question.cached, **findings})
    return with_first(question, len(question.open))


def with_first(question: JudgeRequest, most: int) -> JudgeRequest:
    """The request with so many of its first claims without a cached verdict."""
    remaining = [position for position in question.open if position not in question.cached][:most]
    return _with_positions(question, remaining) if remaining else replace(question, selection=NO_CLAIMS)


def as_stored(question: JudgeRequest, prompt: Prompt) -> JudgeRequest | None:
    """The request of a stored prompt; None: this version writes another prompt."""
    if prompt.pairs:
        at = {pair.sha256: position for position, pair in reversed([*question.pairs.items()])}
        if not all(pair in at for pair in prompt.pairs):
            return None
        question = _with_positions(question, [at[pair] for pair in prompt.pairs])
    return question if question.prompt.snapshot.sha256 == prompt.snapshot.sha256 else None


def cacheable_claims(question: JudgeRequest, reply: str) -> list[int]:
    """The numbers of the claims with a verdict that counts whatever other claims are in the request.

    Only a verdict by the claim's own windows, all of which are in the prompt: a quote from another claim's windows
    would not be there when the pair comes again.
    """
    selection = question.selection
    independent = {
        number: position
        for number, (position, whole) in enumerate(zip(selection.claims, selection.whole, strict=True), start=1)
        if whole
    }
    findings = read_pairs(question, reply, independent)
    return [number for number, finding in findings.items() if finding.verdict is not None]


def read_pairs(question: JudgeRequest, reply: str, positions: Mapping[int, int]) -> dict[int, ClaimFinding]:
    """The verdicts of a reply, each by its claim's own evidence alone.

    Args:
        question: the request with the claims and sources.
        reply: the judge's reply, maybe to another request with some of these pairs.
        positions: of the claims, by their numbers in the reply.
    """
    pairs, claims = question.pairs, question.claims
    if question.decided:
        places = {number: (text_of(claims[at]), pairs[at].places[0]) for number, at in positions.items()}
        return probabilities_at(reply, question.request, places)
    return read_alone(reply, question.request, {number: pairs[at].parts for number, at in positions.items()})


def _with_positions(question: JudgeRequest, positions: Sequence[int]) -> JudgeRequest:
    selection, prompt = _ask(
        question.request, question.claims, question.pairs, positions, gives_probabilities=question.decided
    )
    return replace(question, selection=selection, prompt=prompt)


def _ask(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    pairs: Mapping[int, ClaimPair],
    positions: Sequence[int],
    *,
    gives_probabilities: bool,
) -> tuple[Selection, Prompt]:
    """The selection and the prompt about the first of equal pairs."""
    firsts = {pairs[position].sha256: position for position in reversed(positions)}
    distinct = [position for position in positions if firsts[pairs[position].sha256] == position]
    selection = ask(
        claims,
        distinct,
        [pairs[position].places for position in distinct],
        [pairs[position].parts for position in distinct],
        PROBABILITIES if gives_probabilities else WRITTEN_VERDICTS,
    )
    prompt = (render_decision if gives_probabilities else render_judge)(request, selection)
    return selection, prompt.model_copy(
        update={"pairs": tuple(pairs[position].sha256 for position in selection.claims)}
    )


# ---- windows of a claim -------------------------------------------------------------------------------------------------

WINDOWS = 3
"""Windows of a claim at most."""

LEAN_WINDOWS = 1
"""The same for a judge by default, which must not cost more than a share of the answer."""

HEAD_CHARACTERS = 1_500
"""Beginning of a source, shown where no source has a word of a claim: it may be in another language."""


def windows_for(
    request: JobRequest, claims: Sequence[CheckedClaim], positions: Sequence[int], most: int = WINDOWS
) -> list[list[SourcePart]]:
    """Windows of each position, best first and at most so many: the claim's own quotes, then the best lexical windows."""
    content = {position: content_words(words(claims[position].text)) for position in positions}
    search = search_sources(request.context, frozenset[str]().union(*content.values()))
    return [
        [*_quotes(claims[at]), *_best_windows(search, request, content[at])][:most] or _heads(request)[:most]
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
    spans = [(match.source_index, search.span(match, content)) for match in matches[:WINDOWS]]
    return [SourcePart(source_index=source, start=span.start, end=span.end) for source, span in spans]


def _heads(request: JobRequest) -> list[SourcePart]:
    return [
        SourcePart(source_index=at, start=0, end=min(len(source.content), HEAD_CHARACTERS))
        for at, source in enumerate(request.context[:WINDOWS])
    ]
