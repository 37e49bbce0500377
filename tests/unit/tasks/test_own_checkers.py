"""Checkers of the installation's own: their verdicts go first, and one that breaks costs only its own."""

from collections.abc import Iterator

import pytest

from schemas.grounding import Grounding, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError
from tasks.grounding import ground
from tasks.grounding.own_checkers import OWN_CHECKERS, use_own_checkers
from worker.process.main import _prepare_check
from worker.settings import Settings

SETTINGS = {"moody": "tests.plugins:MoodyChecker"}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    use_own_checkers(())


def checked(answer: str, *names: str) -> Grounding:
    config = {"checkers": ["structure", "lexical", *names]}
    request = JobRequest.model_validate({"response": answer, "context": ["The gate closes at nine."], "config": config})
    return ground(request, postprocess(request, None, None))


def test_a_verdict_of_an_own_checker_goes_before_the_words() -> None:
    _prepare_check(Settings.model_validate({"checkers": SETTINGS}), ["check"])
    answer = "The moon is made of old cheese."

    (claim,) = checked(answer, "moody").claims
    assert (claim.verdict, claim.checker, claim.score) == (Verdict.SUPPORTED, "moody", None)
    assert claim.reason.startswith("it says so; ")
    assert checked(answer, "moody").checkers["moody"] == "2 (tests)"
    (claim,) = checked(answer).claims
    assert (claim.verdict, claim.checker) == (Verdict.UNDECIDED, "lexical")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("The gate breaks at nine.", "KeyError: 'lost' (tests)"),
        ("The gate exits at nine.", "SystemExit: 3 (tests)"),
        ("The gate shortens at nine.", "ValueError: 0 findings for 1 claims (tests)"),
        ("The gate invents at nine.", "ValueError: evidence at 0-5 of source 9 does not exist (tests)"),
    ],
)
def test_one_that_breaks_costs_only_its_verdicts_and_is_named(answer: str, problem: str) -> None:
    _prepare_check(Settings.model_validate({"checkers": SETTINGS}), ["check"])

    grounding = checked(answer, "moody")

    assert grounding.failed_checkers == {"moody": problem}
    assert set(grounding.checkers) == {"structure", "lexical"}
    assert grounding.claims[0].checker == "lexical"


def test_one_that_this_worker_lacks_is_named_with_the_setting() -> None:
    assert "NIGHTDESK_CHECKERS" in checked("The gate closes at nine.", "other").failed_checkers["other"]


def test_a_worker_does_not_start_with_a_checker_that_cannot_be_loaded() -> None:
    for path, problem in (("nowhere:Thing", "ModuleNotFoundError"), ("tests.plugins:Versionless", "a 'version'")):
        with pytest.raises(ConfigurationError, match=f"^NIGHTDESK_CHECKERS: the checker 'moody' .*{problem}"):
            _prepare_check(Settings.model_validate({"checkers": {"moody": path}}), ["check"])
    assert OWN_CHECKERS == {}
