"""The judge: a model asked, in one call per answer, about the claims that the other layers could not decide.

triage    which claims are left to it, and where the sources speak of them
asking    which passages it is shown, and the prompt with its numbered claims
reading   its reply to findings, with every quote looked up
weighing  what its word is worth beside the words' own evidence
verdicts  one finding per claim of all that

All of it is pure; the call is an attempt like any other and made by the check step.
"""

from tasks.checkers.judge.asking import Asked, ask, render_judge
from tasks.checkers.judge.reading import read_verdicts
from tasks.checkers.judge.triage import undecided
from tasks.checkers.judge.verdicts import NO_JUDGE, Heard, Question, pose, verdicts
from tasks.checkers.judge.weighing import Weights, fit, weigh

__all__ = [
    "NO_JUDGE",
    "Asked",
    "Heard",
    "Question",
    "Weights",
    "ask",
    "fit",
    "pose",
    "read_verdicts",
    "render_judge",
    "undecided",
    "verdicts",
    "weigh",
]
