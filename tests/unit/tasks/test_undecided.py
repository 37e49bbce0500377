"""An answer with a claim that words can't decide: what each strictness makes of it, and that every reader knows the words."""

import json
from dataclasses import replace

import pytest

from schemas.generation import OnUngrounded, Strictness
from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.states import Outcome
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.policy.outcome import CheckedAnswer, amend, another_round, decide_outcome, with_appendix, with_warnings
from tasks.prompting.messages import render
from tests.stub import hostile
from tests.unit.tasks.test_redact import any_job

SOURCE = "The fee is 250 euros. It is due in May."


def answer(second: Verdict = Verdict.UNDECIDED, **config: object) -> CheckedAnswer:
    """An answer of two cited sentences, of which the second has this verdict."""
    request = JobRequest(query="What is the fee?", context=({"content": SOURCE},), config=config)
    quotes = ("The fee is 250 euros.", "It is due in May.")
    segments = [{"text": quote, "citations": [{"source": 1, "quote": quote}]} for quote in quotes]
    completion = hostile.completion(hostile.Reply(json.dumps({"sufficient": True, "segments": segments})))
    processed = postprocess(request, render(request, completion.protocol), completion)
    grounding = ground(request, processed)
    first, other = grounding.claims
    assert first.verdict is Verdict.SUPPORTED
    other = other.model_copy(update={"verdict": second, "unaccounted": ("May",)})
    grounding = grounding.model_copy(update={"claims": (first, other)})
    return CheckedAnswer(replace(any_job(), request=request), completion, processed, grounding)


def outcome(checked: CheckedAnswer) -> Outcome:
    return decide_outcome(checked, checked.processed).outcome


@pytest.mark.parametrize(
    ("strictness", "expected"),
    [
        (None, Outcome.UNVERIFIED),
        (Strictness.STRICT, Outcome.PARTIAL),
        (Strictness.BALANCED, Outcome.UNVERIFIED),
        (Strictness.LENIENT, Outcome.ANSWERED),
    ],
)
def test_strictness_weighs_a_claim_that_nothing_speaks_against(
    strictness: Strictness | None, expected: Outcome
) -> None:
    assert outcome(answer(strictness=strictness)) is expected
    assert outcome(answer(Verdict.SUPPORTED, strictness=strictness)) is Outcome.ANSWERED
    assert outcome(answer(Verdict.CONTRADICTED, strictness=strictness)) is Outcome.PARTIAL
    assert outcome(answer(strictness=strictness, require_grounding=False)) is Outcome.ANSWERED


@pytest.mark.parametrize("treatment", OnUngrounded)
def test_only_a_strict_job_treats_an_undecided_claim_as_without_support(treatment: OnUngrounded) -> None:
    lax, strict = answer(on_ungrounded=treatment), answer(on_ungrounded=treatment, strictness=Strictness.STRICT)
    assert outcome(lax) is Outcome.UNVERIFIED
    assert another_round(lax) is None
    assert amend(lax) == (lax, ())
    assert with_appendix(lax.job.request, lax.processed, lax.grounding) == lax.processed.response

    treated = {
        OnUngrounded.FLAG: "May"
        in with_appendix(strict.job.request, strict.processed, strict.grounding).partition("---")[2],
        OnUngrounded.RETRY: another_round(strict) is not None,
        OnUngrounded.REDACT: "May" not in amend(strict)[0].processed.response,
        OnUngrounded.REJECT: outcome(strict) is Outcome.REJECTED,
    }
    assert treated[treatment]


def test_an_undecided_claim_is_told_in_a_warning_and_the_reasoning() -> None:
    checked = answer()
    warnings = with_warnings(checked.job.request, checked.processed, checked.grounding).warnings
    assert "words can't tell whether the sources support it: It is due in May." in warnings
    assert decide_outcome(checked, checked.processed).reasons == ("words can't decide 1 of 2 claims",)


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        ("Claims must be reported within 30 days of the loss.", "Claims must be reported within 45 days of the loss."),
        ("The notice period is three months.", "In general the notice period is six months."),
        ("The warranty covers water damage.", "The warranty does not cover water damage."),
        ("Die Gebühr beträgt 40 Euro im Jahr.", "Die Gebühr beträgt 55 Euro im Jahr."),
        ("The fee is $100.", "The fee is $120."),
        ("The CEO is Anna Meyer.", "The CEO is Bob Smith."),
    ],
)
def test_sources_that_differ_on_a_supported_claim_are_told(claim: str, other: str) -> None:
    request = JobRequest(
        query="What holds?", context=({"content": claim}, {"content": other}), response=f"{claim[:-1]} [1]."
    )
    processed = postprocess(request, None, None)
    grounding = ground(request, processed)
    assert [each.verdict for each in grounding.claims] == [Verdict.SUPPORTED]
    (warning,) = with_warnings(request, processed, grounding).warnings
    assert warning.startswith("the sources differ: ")
    assert other in warning


@pytest.mark.parametrize(
    "other",
    [
        "The premium is 100 euros for children.",
        "The premium was last changed in 2019.",
        "The premium is 200 euros for adults.",
        "Half of the premium of 200 euros for adults is refunded.",
    ],
)
def test_sources_that_speak_of_another_thing_do_not_differ(other: str) -> None:
    claim = "The premium is 200 euros for adults."
    request = JobRequest(query="What is it?", context=({"content": claim}, {"content": other}), response=claim)
    processed = postprocess(request, None, None)
    assert with_warnings(request, processed, ground(request, processed)).warnings == ()
