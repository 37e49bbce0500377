"""Providers and checkers of one's own: found by path or entry point, and each failure told with their name."""

import asyncio
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered
from tasks.prompting.messages import render
from worker.provider_settings import ProviderSettings
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "extensions"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example package as pip installs it: its code on the path, and its metadata beside."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = {
        group: "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    }
    (metadata / "entry_points.txt").write_text("\n".join(f"[{group}]\n{lines}\n" for group, lines in groups.items()))
    (metadata / "top_level.txt").write_text("nightdesk_example\n")
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("nightdesk_example")]:
        monkeypatch.delitem(sys.modules, name)


def providers(plugin: str, environment: dict[str, str] | None = None, **settings: Any) -> ConfiguredProviders:
    entry = ProviderSettings.model_validate({"plugin": plugin, **settings})
    return ConfiguredProviders(Settings(provider="mine", providers={"mine": entry}), environment or {})


def call(registry: ConfiguredProviders, query: str = "When?", **config: Any) -> Answered:
    provider = registry.get("mine")
    request = JobRequest(query=query, context=("It closes at nine. Bye.",), config=GenerationConfig(**config))
    plan = provider.plan(request, render(request, provider.protocol(request.config)))
    return asyncio.run(provider.call(plan))


@pytest.mark.parametrize("path", ["nightdesk_example:FirstSentence", "first_sentence"])
@pytest.mark.usefixtures("example")
def test_the_example_answers_and_the_snapshot_names_package_and_version(path: str) -> None:
    answered = call(providers(path, model="m-1", options={"opening": "Note: "}), temperature=0.5, stream=True)

    completion, snapshot = answered.completion, answered.completion.snapshot
    assert completion.text == "Note: It closes at nine. [1]"
    assert (completion.protocol, completion.cost_usd) == (AnswerProtocol.MARKERS, None)
    assert completion.usage is not None
    assert completion.usage.input_tokens > 10
    assert (snapshot.provider, snapshot.model_asked, snapshot.sdk) == ("mine", "m-1", "nightdesk-example 1.0.0")
    assert snapshot.parameters_sent == {"max_tokens": 1024, "temperature": 0.5}
    assert list(snapshot.parameters_dropped) == ["stream"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("no_such_module:Thing", "'no_such_module:Thing', which can't be loaded: ModuleNotFoundError"),
        ("tests.plugins:Missing", "AttributeError: module 'tests.plugins' has no attribute 'Missing'"),
        ("tests.plugins:FailureKind.OVERLOADED", "can't be loaded: AttributeError"),
        ("tests.plugins:__name__", "neither a class nor a function"),
        ("missing", r"'missing', which is no entry point of the group nightdesk.providers \(installed: none\)"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_stops_its_workers_by_name(path: str, problem: str) -> None:
    registry = providers(path)
    registry.import_ahead(answers=False, judges=False)
    with pytest.raises(ConfigurationError, match=rf"^NIGHTDESK_PROVIDERS: the provider 'mine' names .*{problem}"):
        registry.import_ahead(answers=True, judges=False)


def test_a_plugin_that_cannot_be_built_is_named_without_its_key() -> None:
    key = "sk-very-secret-0123456789"
    registry = providers("tests.plugins:Moody", {"MINE": key}, api_key_env="MINE", options={"mood": "grumpy"})
    with pytest.raises(ConfigurationError, match=r"'mine' \(tests\) can't be built: ValueError: no .*masked") as raised:
        registry.get("mine")
    assert "0123456789" not in str(raised.value)
    with pytest.raises(ConfigurationError, match=r"\(tests\) has no 'async def complete"):
        providers("tests.plugins:Blocking").get("mine")


@pytest.mark.parametrize(
    ("question", "kind", "message"),
    [
        ("overloaded?", FailureKind.OVERLOADED, "mine is busy"),
        ("exit?", FailureKind.UNKNOWN_OUTCOME, r"mine \(tests\) broke: SystemExit: 3 \(.*plugins\.py, line \d+\)"),
        ("divide?", FailureKind.UNKNOWN_OUTCOME, r"mine \(tests\) broke: ZeroDivisionError: by nought"),
        ("nothing?", FailureKind.BAD_ANSWER, r"mine \(tests\) returned no Reply"),
    ],
)
def test_an_exception_in_a_call_is_a_failure_that_names_the_plugin(
    question: str, kind: FailureKind, message: str
) -> None:
    registry = providers("tests.plugins:Moody")
    with pytest.raises(ProviderError, match=message) as raised:
        call(registry, question)
    assert raised.value.kind is kind
    assert call(registry).completion.text == "Fine. [1]", "the next call is made"
