"""Prompt experiments: a job keeps its version, and many jobs keep the proportions."""

from collections import Counter
from uuid import UUID, uuid5

import pytest

from schemas.job import GenerationConfig, JobRequest
from tasks.calls.experiments import draw_version, with_variant
from tasks.errors import ConfigurationError
from worker.settings import load_settings

IDS = [uuid5(UUID(int=0), str(number)) for number in range(2000)]
SHARES = {"grounded": {"1": 0.2, "2": 0.8}}


def request(**config: str) -> JobRequest:
    return JobRequest(query="When?", context=("At nine.",), config=GenerationConfig(**config))


def test_many_jobs_get_the_versions_in_proportion_to_their_weights() -> None:
    drawn = Counter(draw_version(job_id, {"1": 1, "2": 4}) for job_id in IDS)
    # 400 expected; five standard deviations of a binomial are 89. The ids are fixed, so this never flickers.
    assert abs(drawn["1"] - 400) < 89
    assert drawn.total() == len(IDS)


def test_only_a_job_that_names_no_version_takes_part() -> None:
    versions = {with_variant(request(), job_id, SHARES).config.prompt_version for job_id in IDS[:50]}
    assert versions == {"1", "2"}
    for own in (request(prompt_version="1"), request(mode="simple"), request(prompt_name="analytical")):
        assert {with_variant(own, job_id, SHARES) is own for job_id in IDS[:50]} == {True}
    named = with_variant(request(mode="simple", prompt_name="grounded"), IDS[0], SHARES)
    assert named.config.prompt_version == draw_version(IDS[0], SHARES["grounded"])


@pytest.mark.parametrize(
    ("prompts", "problem"),
    [
        ({"grounde": {"1": 1}}, "no prompt 'grounde'; there are"),
        ({"grounded": {"1": 1, "99": 1}}, "prompt 'grounded' has no version '99'; there are 1, 2"),
        ({"grounded": {}}, "names no version of 'grounded'"),
        ({"grounded": {"1": 0}}, "more than 0"),
    ],
)
def test_an_impossible_experiment_is_refused_at_start(prompts: dict[str, dict[str, float]], problem: str) -> None:
    with pytest.raises(ConfigurationError, match="NIGHTDESK_PROMPTS") as caught:
        load_settings(prompts=prompts)
    assert problem in str(caught.value)
    assert "config." not in str(caught.value)
