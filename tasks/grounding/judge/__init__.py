"""The judge: a model asked, in one call per answer, about the claims that the other layers leave open.

windows       finds the windows of the sources about each open claim
plan          chooses the claims of a request, and its passages
cache_key     identifies a claim with its evidence, so that it is asked about once
judge_prompt  renders the prompt: numbered claims, or a question per claim for a judge that gives probabilities
request       the request about an answer: open claims, those to ask about, cached verdicts
reply         parses a reply into findings, and locates its quotes
verdicts      combines verdicts and lexical scores into one finding per claim
call          makes the call; ``verdict_cache`` shares verdicts between the jobs of a batch

All but the last line is pure.
"""

from tasks.grounding.judge.cache_key import key_of
from tasks.grounding.judge.judge_prompt import render_decision, render_judge
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
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply, verdicts

__all__ = [
    "NO_JUDGE",
    "JudgeReply",
    "JudgeRequest",
    "Selection",
    "as_stored",
    "ask",
    "cacheable_claims",
    "key_of",
    "plan_request",
    "read_pairs",
    "read_probabilities",
    "read_verdicts",
    "render_decision",
    "render_judge",
    "verdicts",
    "without_cached",
]
