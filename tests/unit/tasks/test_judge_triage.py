"""A judge decides every claim that words leave open, and none that they decide."""

from dataclasses import replace

import pytest

from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import check_claims, fuse_layers, judge_request
from tasks.grounding.judge.request import JudgeRequest
from tasks.grounding.judge.verdicts import JudgeReply
from tasks.grounding.local import DECIDED_BY_WORDS
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
PARAPHRASES = (
    "Whoever wants to leave has to say so a quarter of a year ahead.",
    "Owners need to give warning before coming in.",
    "Wer ausziehen will, sagt das ein Vierteljahr vorher.",
    "Quien se marcha avisa con un trimestre.",
    "Qui veut partir prévient un trimestre avant.",
)
UNTRUE = (
    "Whoever wants to leave may go at once.",
    "Owners come in whenever they like.",
    "Wer ausziehen will, geht sofort.",
    "Quien se marcha no avisa a nadie.",
    "Qui veut partir s'en va sans un mot.",
)
JUDGED = {"checkers": ["structure", "lexical", "judge"]}


def answer(*claims: str) -> JobRequest:
    return JobRequest(query="q", context=list(SOURCES), response="\n\n".join(claims), config=JUDGED)  # type: ignore[arg-type]


def test_every_claim_that_words_leave_open_ends_as_a_right_judge_says() -> None:
    stated = [*COPIES, *PARAPHRASES, *UNTRUE]
    request = answer(*stated)
    layers = check_claims(request, postprocess(request, None, None))
    question = judge_request(layers)
    assert question is not None
    words = layers.findings[CheckerName.LEXICAL]
    assert {at for at, finding in enumerate(words) if finding.verdict not in DECIDED_BY_WORDS} == set(question.open)
    assert set(range(len(COPIES), len(stated))) <= set(question.open)

    replies = [
        verdict(number, "supported", best_window(question, at))
        if stated[at] in PARAPHRASES
        else verdict(number, "unsupported")
        for number, at in enumerate(question.selection.claims, start=1)
    ]
    results = fuse_layers(layers, question, JudgeReply("p:m", verdicts_json(*replies))).claims

    for at, claim in enumerate(results):
        right = Verdict.UNSUPPORTED if stated[at] in UNTRUE else Verdict.SUPPORTED
        assert (claim.verdict, claim.checker) == (right, "judge" if at in question.open else "lexical"), claim
        assert (claim.score or 0.0) > 0.5 or right is Verdict.UNSUPPORTED


def best_window(question: JudgeRequest, at: int) -> str:
    place = question.pairs[at].places[0]
    return question.request.context[place.source_index].content[place.start : place.end]


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


@pytest.mark.parametrize("claim", COPIES)
def test_a_copy_word_for_word_is_not_asked_about(claim: str) -> None:
    request = answer(claim)
    layers = check_claims(request, postprocess(request, None, None))

    assert judge_request(layers) is None
    (claim_result,) = fuse_layers(layers, None, JudgeReply()).claims
    assert claim_result.verdict is Verdict.SUPPORTED
