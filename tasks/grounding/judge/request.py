"""Put the question about the open claims of an answer, and narrow it to what is not known yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.job import JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.grounding.findings import CheckedClaim, ClaimFinding
from tasks.grounding.judge.cache_key import ClaimPair, pair_of
from tasks.grounding.judge.plan import DECIDED, WRITTEN, Selection, ask, text_of, widened
from tasks.grounding.judge.reply import probabilities_at, read_alone
from tasks.grounding.judge.triage import windows_for
from tasks.grounding.judge.wording import render_decision, render_judge


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """What a judge is asked about one answer.

    Attributes:
        request: of the job.
        claims: the checkable ones of the answer.
        open: the positions of all claims that its word is wanted for.
        pairs: by these positions.
        asked: those that it is asked about: of equal pairs the first, and none that is ``known``.
        prompt: of what is asked; while nothing is, the prompt that would ask about all.
        known: what it said before of such a pair, in another call.
    """

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    open: tuple[int, ...]
    pairs: Mapping[int, ClaimPair]
    asked: Selection
    prompt: Prompt
    known: Mapping[int, ClaimFinding] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """Whether it is put to a judge that gives a probability for each claim, and no more."""
        return bool(self.prompt.snapshot.questions)


def plan_request(
    request: JobRequest, claims: Sequence[CheckedClaim], open_: Sequence[int], *, decides: bool
) -> JudgeRequest:
    """Put the question about the open claims of an answer; the same answer and sources always give the same.

    ``decides``: to a judge that gives probabilities.
    """
    places = windows_for(request, claims, open_)
    shown: Sequence[Sequence[SourcePart]] = widened(request, places)
    if decides:
        passages = ask(request, claims, open_, places, DECIDED, wide=shown).passages
        shown = [[SourcePart(source_index=one.source_index, start=one.start, end=one.end) for one in passages]] * len(
            open_
        )
    pairs = {
        at: pair_of(request, claims, at, windows, parts)
        for at, windows, parts in zip(open_, places, shown, strict=True)
    }
    return _put(request, tuple(claims), tuple(open_), pairs, open_, decides=decides)


def without_cached(question: JudgeRequest, known: Mapping[int, ClaimFinding]) -> JudgeRequest:
    """The question without the claims that something is known of, by their positions."""
    known = {**question.known, **known}
    left = [position for position in question.open if position not in known]
    if not left:
        return replace(question, asked=Selection((), (), (), (), (), ()), known=known)
    return replace(_again(question, left), known=known)


def as_stored(question: JudgeRequest, prompt: Prompt) -> JudgeRequest | None:
    """The question as it was put by a prompt that is stored; None: this version would put it otherwise."""
    if prompt.pairs:
        at = {pair.sha256: position for position, pair in reversed([*question.pairs.items()])}
        if not all(pair in at for pair in prompt.pairs):
            return None
        positions = [at[pair] for pair in prompt.pairs]
        question = _again(question, positions)
    return question if question.prompt.snapshot.sha256 == prompt.snapshot.sha256 else None


def cacheable_claims(question: JudgeRequest, reply: str) -> list[int]:
    """The numbers of the claims of which a reply says something that counts whatever else is asked beside them.

    Only a verdict by the claim's own windows, all of which were shown: a quote from what another claim brought along
    would not be there when the pair comes again.
    """
    asked = question.asked
    alone = {
        number: position
        for number, (position, whole) in enumerate(zip(asked.claims, asked.whole, strict=True), start=1)
        if whole
    }
    found = read_pairs(question, reply, alone)
    return [number for number, finding in found.items() if finding.verdict is not None]


def read_pairs(question: JudgeRequest, reply: str, positions: Mapping[int, int]) -> dict[int, ClaimFinding]:
    """What a reply, maybe to another question with some of these pairs, says of each by its own evidence alone.

    Args:
        question: whose claims and sources are meant.
        reply: as the judge gave it.
        positions: of the claims, by their numbers in the reply.
    """
    pairs, claims = question.pairs, question.claims
    if question.decided:
        places = {number: (text_of(claims[at]), pairs[at].places[0]) for number, at in positions.items()}
        return probabilities_at(reply, question.request, places)
    return read_alone(reply, question.request, {number: pairs[at].parts for number, at in positions.items()})


def _again(question: JudgeRequest, positions: Sequence[int]) -> JudgeRequest:
    return _put(question.request, question.claims, question.open, question.pairs, positions, decides=question.decided)


def _put(
    request: JobRequest,
    claims: tuple[CheckedClaim, ...],
    open_: tuple[int, ...],
    pairs: Mapping[int, ClaimPair],
    positions: Sequence[int],
    *,
    decides: bool,
) -> JudgeRequest:
    firsts = {pairs[position].sha256: position for position in reversed(positions)}
    chosen = [position for position in positions if firsts[pairs[position].sha256] == position]
    asked = ask(
        request,
        claims,
        chosen,
        [pairs[position].places for position in chosen],
        DECIDED if decides else WRITTEN,
        wide=[pairs[position].parts for position in chosen],
    )
    prompt = (render_decision if decides else render_judge)(request, asked)
    prompt = prompt.model_copy(update={"pairs": tuple(pairs[position].sha256 for position in asked.claims)})
    return JudgeRequest(request, claims, open_, pairs, asked, prompt)
