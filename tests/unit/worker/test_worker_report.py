"""A worker's report lets others name its providers, models and prices, and holds no key."""

import orjson
import pytest

from schemas.job import GenerationConfig
from worker.operations.answerers import Answerer, answerers_of
from worker.operations.preflight import models_line
from worker.providers.worker_report import report_of, reported
from worker.settings import Settings

SECRET = "sk-never-told"
LOCAL = {"mine": {"preset": "vllm", "model": "qwen", "base_url": "http://10.0.0.1:8000/v1", "options": {}}}


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({}, {}),
        ({}, {"OPENAI_API_KEY": SECRET}),
        ({"provider": "anthropic", "model": "claude-x"}, {"ANTHROPIC_API_KEY": SECRET}),
        ({"provider": "mine", "providers": LOCAL, "fallbacks": ("openai:gpt-6-luna",)}, {"OPENAI_API_KEY": SECRET}),
        ({}, {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"http://me:{SECRET}@host/v1"}),
    ],
)
def test_a_reader_of_a_report_says_what_its_worker_would_say(settings: object, environment: dict[str, str]) -> None:
    settings_there = Settings.model_validate(settings)
    raw = orjson.dumps(report_of(settings_there, environment))
    assert SECRET.encode() not in raw

    view = reported(Settings(provider="extractive", slots=7), orjson.loads(raw))

    assert view is not None
    there = Answerer(*view)
    assert there.settings.slots == 7, "what decides no answer stays"
    assert there.providers.default == Answerer(settings_there, environment).providers.default
    if "@" not in environment.get("OPENAI_BASE_URL", ""):
        line = models_line(there.providers, there.settings, [GenerationConfig()])
        assert line == models_line(
            Answerer(settings_there, environment).providers, settings_there, [GenerationConfig()]
        )


def test_a_report_of_another_version_is_no_claim() -> None:
    settings = Settings(provider="extractive")
    for report in (None, {}, {"settings": {"provider": 5}, "keys": [], "addresses": {}}):
        answerers = answerers_of(settings, [report], starts=True)
        assert not answerers.certain
        assert "another version" in answerers.why


def test_workers_with_different_settings_each_count() -> None:
    settings = Settings(provider="extractive")
    reports = [report_of(settings), report_of(Settings(provider="anthropic"), {"ANTHROPIC_API_KEY": SECRET})]
    answerers = answerers_of(settings, reports, starts=True)
    assert [kind.providers.default for kind in answerers.kinds] == ["extractive", "anthropic"]
    assert (answerers.certain, answerers.here) == (False, False)
    assert "the workers that run differ" in answerers.why
