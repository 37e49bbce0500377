"""A judge decides every claim that words leave open, and none that they decide."""

from dataclasses import replace

from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import check_claims, fuse_layers, judge_request
from tasks.grounding.judge.verdicts import JudgeReply

JUDGED = {"checkers": ["structure", "lexical", "judge"]}


def test_the_judge_sees_the_words_that_are_not_accounted_for_and_what_the_prompt_shows_of_the_source() -> None:
    context = {"content": "The excess is 250 euros.", "title": "Car Plus", "section_hierarchy": ["Glass", "Windscreen"]}
    request = JobRequest(
        query="q", context=[context], response="With Car Basic you pay little for a new windscreen.", config=JUDGED
    )  # type: ignore[arg-type, list-item]
    layers = check_claims(request, postprocess(request, None, None))
    (finding,) = layers.findings[CheckerName.LEXICAL]
    layers.findings[CheckerName.LEXICAL] = [
        replace(finding, verdict=Verdict.UNDECIDED, unaccounted=("Car Basic", "little"))
    ]

    question = judge_request(layers)

    assert question is not None
    (_, system), (_, user) = question.prompt.snapshot.texts([context["content"]])
    assert 'title="Car Plus" section_hierarchy="Glass / Windscreen"' in user
    assert "a new windscreen. {Car Basic, little}" in user
    assert "in braces" in system
    (claim,) = fuse_layers(layers, None, JudgeReply()).claims
    assert (claim.verdict, claim.unaccounted) == (Verdict.UNDECIDED, ("Car Basic", "little"))
