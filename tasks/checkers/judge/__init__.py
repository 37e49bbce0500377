"""The judge: a model asked, in one call per answer, about the claims that the other layers could not decide.

asking    which passages it is shown, and the prompt with its numbered claims
reading   its reply to findings, with every quote looked up
weighing  what its word is worth beside the words' own evidence

All of it is pure; the call is an attempt like any other and made by the check step.
"""

from tasks.checkers.judge.asking import Asked, ask, render_judge
from tasks.checkers.judge.reading import read_verdicts
from tasks.checkers.judge.weighing import Weights, fit, weigh

__all__ = ["Asked", "Weights", "ask", "fit", "read_verdicts", "render_judge", "weigh"]
