"""The judge: a model asked, in one call per answer, about the claims that the other layers could not decide.

triage    which claims are left to it, and where the sources speak of them
asking    which of them it is asked about, and which passages it is shown
pairs     what names a claim with its evidence, so that it is asked about once
wording   the prompt with its numbered claims, or with a question about each for a judge that gives probabilities
question  what is open, what is asked of it, and what is known already
reading   its reply to findings, with every quote looked up
weighing  what its word is worth beside the words' own evidence
labelled  fitting that on labelled claims, with what it changes
verdicts  one finding per claim of all that

All of it is pure; the call is an attempt like any other and made by the check step.
"""

from tasks.grounding.judge.cache_key import key_of
from tasks.grounding.judge.judge_weights import JudgeWeights, LabelledVerdict, fit, weigh
from tasks.grounding.judge.plan import Selection, ask
from tasks.grounding.judge.reply import read_probabilities, read_verdicts
from tasks.grounding.judge.request import (
    JudgeRequest,
    as_stored,
    cacheable_claims,
    plan_request,
    read_pairs,
    without_cached,
)
from tasks.grounding.judge.triage import undecided
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply, verdicts
from tasks.grounding.judge.wording import render_decision, render_judge

__all__ = [
    "NO_JUDGE",
    "JudgeReply",
    "JudgeRequest",
    "JudgeWeights",
    "LabelledVerdict",
    "Selection",
    "as_stored",
    "ask",
    "cacheable_claims",
    "fit",
    "key_of",
    "plan_request",
    "read_pairs",
    "read_probabilities",
    "read_verdicts",
    "render_decision",
    "render_judge",
    "undecided",
    "verdicts",
    "weigh",
    "without_cached",
]
