"""Make findings of a judge's word: its verdict weighed against the words' own, and no verdict where it gave none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.grounding import Evidence, JudgeWord, Verdict
from schemas.job import JobRequest
from schemas.prompt import Prompt
from tasks.checkers.answer import CheckedClaim, ClaimFinding
from tasks.checkers.judge.asking import DECIDED, WRITTEN, Asked, ask
from tasks.checkers.judge.reading import OFF_THE_SCALE, UNREADABLE, read_probabilities, read_verdicts
from tasks.checkers.judge.triage import windows_for
from tasks.checkers.judge.weighing import DEFAULT, Weights, weigh
from tasks.checkers.judge.wording import render_decision, render_judge

NOT_ASKED = "more claims were open than a judge is asked about in one answer"


@dataclass(frozen=True, slots=True)
class Question:
    """What a judge is asked about one answer; ``open`` are the positions of all claims that its word was wanted for."""

    open: tuple[int, ...]
    asked: Asked
    prompt: Prompt

    @property
    def decided(self) -> bool:
        """Whether it is put to a judge that gives a probability for each claim, and no more."""
        return bool(self.prompt.snapshot.questions)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of asking: a reply, or the reason why there is none. ``judge`` is ``provider:model``."""

    judge: str = ""
    reply: str | None = None
    failure: str | None = None


NO_JUDGE = Heard(failure="no judge is configured: set NIGHTDESK_JUDGE, or 'judge' in the job's config")


def pose(request: JobRequest, claims: Sequence[CheckedClaim], open_: Sequence[int], *, decides: bool) -> Question:
    """Put the question about the open claims of an answer; the same answer and sources always give the same.

    ``decides``: to a judge that gives probabilities.
    """
    asked = ask(request, claims, open_, windows_for(request, claims, open_), DECIDED if decides else WRITTEN)
    render = render_decision if decides else render_judge
    return Question(tuple(open_), asked, render(request, asked))


def verdicts(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    lexical: Sequence[ClaimFinding] | None,
    question: Question,
    heard: Heard,
    *,
    weights: Mapping[str, Weights],
) -> tuple[list[ClaimFinding], str | None]:
    """One finding per claim, and why the judge gave no verdict at all, if so.

    A claim that was open and got no word of the judge is ``unchecked``, whatever the words made of it: it was open
    because they decide nothing. Claims that were not open have no finding here (verdict None).
    """
    told = dict(zip(question.asked.claims, _read(request, question, heard), strict=True))
    shown = frozenset(passage.source_index for passage in question.asked.passages)
    worth = weights.get(heard.judge, DEFAULT)
    findings = [ClaimFinding() for _ in claims]
    for position in question.open:
        word = told.get(position, ClaimFinding(reason=heard.failure or NOT_ASKED))
        by_words = lexical[position] if lexical else None
        findings[position] = _weighed(claims[position], by_words, word, worth, shown)
    failure = heard.failure
    whys = {word.reason for word in told.values()}
    if failure is None and len(whys) == 1 and whys <= {UNREADABLE, OFF_THE_SCALE}:
        (failure,) = whys
    return findings, failure


def _read(request: JobRequest, question: Question, heard: Heard) -> list[ClaimFinding]:
    if heard.reply is None:
        return [ClaimFinding(reason=f"the judge gave no verdict: {heard.failure}") for _ in question.asked.claims]
    read = read_probabilities if question.decided else read_verdicts
    return read(heard.reply, request, question.asked)


def _weighed(
    claim: CheckedClaim, by_words: ClaimFinding | None, word: ClaimFinding, weights: Weights, shown: frozenset[int]
) -> ClaimFinding:
    if word.verdict is None:
        return ClaimFinding(Verdict.UNCHECKED, reason=word.reason)
    before = by_words.score if by_words else None
    chance = weigh(before, word.verdict, weights, probability=word.score)
    assert chance is not None
    supported = chance >= weights.supported_at
    agrees = supported == (word.verdict is Verdict.SUPPORTED)
    evidence = _together(word.evidence, by_words.evidence if by_words else (), first=agrees)
    verdict = Verdict.SUPPORTED
    if not supported:
        verdict = Verdict.CONTRADICTED if word.verdict is Verdict.CONTRADICTED else Verdict.UNSUPPORTED
    reason = word.reason
    if not agrees:
        says = f"says {word.verdict.value}" if word.score is None else f"gives it a probability of {word.score:.2f}"
        reason = f"the judge {says}; weighed with what the words show it is {'' if supported else 'not '}supported"
    cited = {citation.source_index for citation in claim.citations}
    # A probability comes without its place: it may rest on any passage that was shown.
    relied_on = {one.source_index for one in word.evidence} if word.score is None else shown
    miscited = supported and agrees and bool(cited) and not cited & relied_on
    heard = JudgeWord(verdict=word.verdict, probability=word.score, before=before)
    return ClaimFinding(verdict, round(chance, 4), evidence, miscited, reason, heard=heard)


def _together(judged: Sequence[Evidence], by_words: Sequence[Evidence], *, first: bool) -> tuple[Evidence, ...]:
    """The judge's quote first where its word decided; otherwise only what the words show."""
    if not first:
        return tuple(by_words)
    places = {(one.source_index, one.start, one.end) for one in judged}
    return (*judged, *(one for one in by_words if (one.source_index, one.start, one.end) not in places))
