"""The judge: a model asked, in one call per answer, about the claims that the other layers could not decide.

triage    which claims are left to it, and where the sources speak of them
asking    which passages it is shown, and the prompt with its numbered claims
pairs     what names a claim with its evidence, so that it is asked about once
question  what is open, what is asked of it, and what is known already
reading   its reply to findings, with every quote looked up
weighing  what its word is worth beside the words' own evidence
verdicts  one finding per claim of all that

All of it is pure; the call is an attempt like any other and made by the check step.
"""

from tasks.checkers.judge.asking import Asked, ask, render_judge
from tasks.checkers.judge.pairs import key_of
from tasks.checkers.judge.question import Question, as_put_before, narrowed, pose, told_alone
from tasks.checkers.judge.reading import read_alone, read_verdicts
from tasks.checkers.judge.triage import undecided
from tasks.checkers.judge.verdicts import NO_JUDGE, Heard, verdicts
from tasks.checkers.judge.weighing import Weights, fit, weigh

__all__ = [
    "NO_JUDGE",
    "Asked",
    "Heard",
    "Question",
    "Weights",
    "as_put_before",
    "ask",
    "fit",
    "key_of",
    "narrowed",
    "pose",
    "read_alone",
    "read_verdicts",
    "render_judge",
    "told_alone",
    "undecided",
    "verdicts",
    "weigh",
]
