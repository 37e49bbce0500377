"""Plans the request about the open claims of an answer, without the claims that have a cached verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.job import JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.grounding.findings import CheckedClaim, ClaimFinding
from tasks.grounding.judge.cache_key import ClaimPair, pair_of
from tasks.grounding.judge.judge_prompt import render_decision, render_judge
from tasks.grounding.judge.plan import PROBABILITIES, WRITTEN_VERDICTS, Selection, ask, text_of, widened
from tasks.grounding.judge.reply import probabilities_at, read_alone
from tasks.grounding.judge.windows import windows_for


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
    """

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    open: tuple[int, ...]
    pairs: Mapping[int, ClaimPair]
    selection: Selection
    prompt: Prompt
    cached: Mapping[int, ClaimFinding] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """True for a judge that gives a probability for each claim, and no more."""
        return bool(self.prompt.snapshot.questions)


def plan_request(
    request: JobRequest, claims: Sequence[CheckedClaim], open_: Sequence[int], *, decides: bool
) -> JudgeRequest:
    """Plans the request about the open claims of an answer; the same answer and sources always give the same.

    ``decides``: the judge gives probabilities.
    """
    places = windows_for(request, claims, open_)
    parts_of: Sequence[Sequence[SourcePart]] = widened(request, places)
    if decides:
        passages = ask(request, claims, open_, places, PROBABILITIES, wide=parts_of).passages
        parts = [SourcePart(source_index=part.source_index, start=part.start, end=part.end) for part in passages]
        parts_of = [parts] * len(open_)
    pairs = {
        at: pair_of(request, claims, at, windows, parts)
        for at, windows, parts in zip(open_, places, parts_of, strict=True)
    }
    return _request(request, tuple(claims), tuple(open_), pairs, open_, decides=decides)


def without_cached(question: JudgeRequest, findings: Mapping[int, ClaimFinding]) -> JudgeRequest:
    """The request without the claims of these findings, by their positions."""
    cached = {**question.cached, **findings}
    positions = [position for position in question.open if position not in cached]
    if not positions:
        return replace(question, selection=Selection((), (), (), (), (), ()), cached=cached)
    return replace(_with_positions(question, positions), cached=cached)


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
    return _request(
        question.request, question.claims, question.open, question.pairs, positions, decides=question.decided
    )


def _request(
    request: JobRequest,
    claims: tuple[CheckedClaim, ...],
    open_: tuple[int, ...],
    pairs: Mapping[int, ClaimPair],
    positions: Sequence[int],
    *,
    decides: bool,
) -> JudgeRequest:
    firsts = {pairs[position].sha256: position for position in reversed(positions)}
    distinct = [position for position in positions if firsts[pairs[position].sha256] == position]
    selection = ask(
        request,
        claims,
        distinct,
        [pairs[position].places for position in distinct],
        PROBABILITIES if decides else WRITTEN_VERDICTS,
        wide=[pairs[position].parts for position in distinct],
    )
    prompt = (render_decision if decides else render_judge)(request, selection)
    prompt = prompt.model_copy(update={"pairs": tuple(pairs[position].sha256 for position in selection.claims)})
    return JudgeRequest(request, claims, open_, pairs, selection, prompt)
