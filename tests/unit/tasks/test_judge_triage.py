"""The claims that a judge is asked about: those that words leave open, and every near copy that is no copy."""

import pytest

from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import check_claims, fuse_layers, judge_request
from tasks.grounding.checkers import ClaimFinding
from tasks.grounding.judge.request import JudgeRequest
from tasks.grounding.judge.triage import by_weight
from tasks.grounding.judge.verdicts import JudgeReply
from tests.judge_harness import verdict, verdicts_json

LEASE = (
    "The notice period is three months. The deposit is six monthly rents. The tenant may keep one cat. Repairs of more than"
    " 120 euros must be announced before the work begins. The landlord shall not enter without notice."
)
SOURCES = (
    LEASE,
    "Die Kündigungsfrist beträgt drei Monate. Die Kaution beträgt sechs Monatsmieten. Der Mieter darf eine Katze halten.",
    "El plazo de preaviso es de tres meses. La fianza es de seis mensualidades. El inquilino puede tener un gato.",
    "Le délai de préavis est de trois mois. Le dépôt de garantie est de six mois de loyer. Le locataire peut avoir un chat.",
)
COPIES = (
    "The notice period is three months.",
    "Repairs of more than 120 euros must be announced before the work begins.",
    "The landlord shall not enter without notice.",
    "Die Kündigungsfrist beträgt drei Monate.",
    "La fianza es de seis mensualidades.",
    "Le délai de préavis est de trois mois.",
)
CHANGED = (
    "The notice period is six months.",
    "The deposit is three monthly rents.",
    "The notice period is not three months.",
    "Repairs of more than 120 euros must be announced after the work begins.",
    "Repairs of more than 120 euros may be announced before the work begins.",
    "The landlord shall enter without notice.",
    "The tenant must keep one cat.",
    "Die Kündigungsfrist beträgt sechs Monate.",
    "Die Kündigungsfrist beträgt nicht drei Monate.",
    "Der Mieter muss eine Katze halten.",
    "El plazo de preaviso es de seis meses.",
    "El plazo de preaviso no es de tres meses.",
    "Le délai de préavis est de six mois.",
    "Le locataire ne peut pas avoir un chat.",
)
JUDGED = {"checkers": ["structure", "lexical", "judge"]}


def answer(*claims: str) -> JobRequest:
    return JobRequest(query="q", context=list(SOURCES), response="\n\n".join(claims), config=JUDGED)  # type: ignore[arg-type]


@pytest.mark.parametrize("claim", CHANGED)
def test_a_copy_with_a_change_is_asked_about_and_ends_as_a_right_judge_says(claim: str) -> None:
    request = answer(claim)
    layers = check_claims(request, postprocess(request, None, None))
    question = judge_request(layers)
    if question is None:
        # Words alone are sure against it.
        (finding,) = layers.findings[CheckerName.LEXICAL]
        assert finding.verdict is not Verdict.SUPPORTED
        return
    assert question.open == (0,)

    for label, quote in (("contradicted", best_window(question)), ("unsupported", "")):
        reply = JudgeReply("p:m", verdicts_json(verdict(1, label, quote)))
        (judged,) = fuse_layers(layers, question, reply).claims
        assert judged.verdict is not Verdict.SUPPORTED
        # A judge that finds a claim in no source takes nothing back from a contradiction by its words.
        (by_words,) = layers.findings[CheckerName.LEXICAL]
        assert judged.verdict.value == label or judged.verdict is by_words.verdict, judged
        assert judged.checker == "judge"


def best_window(question: JudgeRequest) -> str:
    place = question.pairs[0].places[0]
    return question.request.context[place.source_index].content[place.start : place.end]


@pytest.mark.parametrize("claim", COPIES)
def test_a_copy_word_for_word_is_not_asked_about(claim: str) -> None:
    request = answer(claim)
    layers = check_claims(request, postprocess(request, None, None))

    assert judge_request(layers) is None
    (claim_result,) = fuse_layers(layers, None, JudgeReply()).claims
    assert claim_result.verdict is Verdict.SUPPORTED


def test_words_that_are_surer_than_usual_do_not_outvote_a_judge_about_a_near_copy() -> None:
    request = answer("The notice period is six months.")
    layers = check_claims(request, postprocess(request, None, None))
    (finding,) = layers.findings[CheckerName.LEXICAL]
    # A calibration may be as sure as this of a claim whose words all stand there.
    layers.findings[CheckerName.LEXICAL] = [
        ClaimFinding(Verdict.SUPPORTED, 0.97, finding.evidence, attribution=finding.attribution)
    ]
    question = judge_request(layers)
    assert question is not None

    reply = JudgeReply("p:m", verdicts_json(verdict(1, "unsupported")))
    (judged,) = fuse_layers(layers, question, reply).claims

    assert judged.verdict is Verdict.UNSUPPORTED
    assert judged.judge is not None
    assert judged.judge.before == 0.97


def test_near_copies_come_first_then_doubtful_support_then_doubtful_rejections() -> None:
    findings = [
        ClaimFinding(Verdict.UNSUPPORTED, 0.2),
        ClaimFinding(Verdict.SUPPORTED, 0.6),
        ClaimFinding(Verdict.SUPPORTED, 0.74),
        ClaimFinding(Verdict.UNSUPPORTED, 0.4),
        ClaimFinding(Verdict.SUPPORTED, 0.5),
    ]

    assert by_weight(range(5), findings) == (2, 4, 1, 3, 0)
