"""Finds the judge of a job that asks for none, with the most that its call may cost: a share of the answer's cost."""

from dataclasses import dataclass
from decimal import Decimal

from schemas.generation import CheckerName
from schemas.job import GenerationConfig
from tasks.ports import CheapJudge, Leased, Providers, Turn

DEFAULT_LAYERS = frozenset({CheckerName.STRUCTURE, CheckerName.LEXICAL})
"""Layers of a job that names none. A job with other layers has those and no judge by default."""

REPLY_TOKENS, CLAIM_TOKENS = 48, 96
"""Most tokens of a written reply, and of each verdict in it: a line of JSON with a short quote takes 40 to 80."""


@dataclass(frozen=True, slots=True)
class DefaultJudge:
    """A judge that a job does not ask for, and the most that its call may cost."""

    judge: CheapJudge
    most_usd: Decimal

    @property
    def affords_a_call(self) -> bool:
        """False if no call can be so cheap; True without any money, where cached verdicts are taken and no call is made."""
        return not self.most_usd or self.most_usd >= self.judge.least_usd

    def max_tokens(self, claims: int) -> int:
        """Most tokens of a written reply about so many claims."""
        return REPLY_TOKENS + claims * CLAIM_TOKENS


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """Says which judge a job has, by the providers and the settings alone.

    Args:
        providers: those of this process.
        configured: the judge of the settings, before any other; None: they name none.
        share: of an answer's cost, for a judge that its job does not ask for; 0: there is none.
    """

    providers: Providers
    configured: str | None = None
    share: Decimal = Decimal(0)

    def by_default(self, job: Leased) -> DefaultJudge | None:
        """The judge of a job that asks for none; None: the job has no judge, or asks for one.

        It judges what a model wrote for money, in jobs with the layers by default whose claims must be grounded. An
        answer that another job paid for has no money for a call, and takes only cached verdicts.
        """
        if not self.share or job.stored is None or not job.stored.paid_for or not wants_default(job.request.config):
            return None
        completion = job.stored.completion
        snapshot = completion.snapshot
        judge = CheapJudge(Turn.parse(self.configured)) if self.configured else None
        judge = judge or self.providers.cheap_judge(snapshot.provider, snapshot.model_returned or snapshot.model_asked)
        return None if judge is None else DefaultJudge(judge, (completion.cost_usd or Decimal(0)) * self.share)

    def turn(self, job: Leased, default: DefaultJudge | None) -> Turn | None:
        """The provider and the model to ask; None: there is no judge."""
        if default is not None:
            return default.judge.turn
        name = job.request.config.judge or self.configured
        return None if name is None else Turn.parse(name)

    def gives_probabilities(self, job: Leased) -> bool:
        """True if the job's judge gives probabilities, so that its prompt takes that form.

        A stored reply has the form of its prompt. False where there is no judge: the call says why.
        """
        if job.judged is not None:
            return bool(job.judged.prompt.snapshot.questions)
        turn = self.turn(job, self.by_default(job))
        return turn is not None and self.providers.gives_probabilities(turn.provider)


def wants_default(config: GenerationConfig) -> bool:
    """Tells whether a judge by default would be asked about the answer of a job with this config."""
    layers = frozenset(name for name in config.checkers if isinstance(name, CheckerName))
    return config.require_grounding and layers == DEFAULT_LAYERS
