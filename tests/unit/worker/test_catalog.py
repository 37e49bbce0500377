"""Refusals of requests that the installation does not serve, by line and field, and warnings."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.job import GenerationConfig
from tasks.errors import InputError
from tasks.submit import parse_request
from worker.cli.submitting import new_submission
from worker.ledger.fleet import LaneNotice
from worker.operations.file_intake import InputOrder
from worker.provider_settings import ProviderSettings
from worker.providers.registry import Installation
from worker.settings import Settings

LOCAL = {"local": ProviderSettings.model_validate({"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1"})}
KEYS = {"OPENAI_API_KEY": "sk-1"}


def installed(*, same: bool = True, **settings: Any) -> Installation:
    return Installation(Settings(providers=LOCAL, **settings), same_for_workers=same, environment=KEYS)


def fields(catalog: Installation, *, generates: bool = True, priced: bool = False, **config: Any) -> list[str]:
    objections = catalog.objections(GenerationConfig(**config), generates=generates, priced=priced)
    return [objection.field for objection in objections]


@pytest.mark.parametrize(
    ("config", "priced", "expected"),
    [
        ({}, False, []),
        ({"provider": "opanai"}, False, ["config.provider"]),
        ({"provider": "openai_decisions"}, False, ["config.provider"]),
        ({"provider": "local", "model": "m"}, True, ["config.model"]),
        ({"provider": "openai"}, True, []),
        ({"provider": "extractive", "model": "nosuch"}, False, ["config.model"]),
        (
            {"fallbacks": ("extractive:nosuch",), "escalate": ("extractive:m",)},
            False,
            ["config.fallbacks.0", "config.escalate.0"],
        ),
        ({"model": "gpt-6-sol", "escalate": ("local:m", "openai:gpt-6-sol")}, False, ["config.escalate.1"]),
        ({"lane": "background_2h", "provider": "local", "model": "m"}, False, ["config.lane"]),
        ({"lane": "background", "fallbacks": ("local:m", "extractive")}, False, ["config.fallbacks.0"]),
        ({"lane": "provider_batch", "provider": "extractive"}, False, ["config.lane"]),
        ({"judge": "extractive", "checkers": ("judge",)}, False, ["config.judge"]),
        ({"judge": "local:m", "checkers": ("judge",)}, True, ["config.judge"]),
    ],
)
def test_an_unserved_option_is_named_by_its_field(config: dict[str, Any], priced: bool, expected: list[str]) -> None:  # noqa: FBT001
    assert fields(installed(), priced=priced, **config) == expected


@pytest.mark.parametrize(
    ("config", "field"),
    [({"prompt_name": "poem"}, "config.prompt_name"), ({"prompt_version": "999"}, "config.prompt_version")],
)
def test_a_prompt_that_does_not_exist_is_refused_at_the_door(config: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_request({"query": "A?", "config": config})
    assert refused.value.field == field
    parse_request({"response": "It is so.", "config": config})


def test_a_setting_that_names_no_provider_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"query": "A?", "context": ["A."]}\n' * 3)
    with pytest.raises(
        InputError, match="no provider 'opanai' of NIGHTDESK_PROVIDER is configured; there is anthropic"
    ):
        new_submission(InputOrder([str(path)]), Settings(provider="opanai"))


def test_a_fault_that_every_line_has_is_warned_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"query": "A?", "context": ["A."], "config": {"prompt_name": "poem"}}\n' * 30 + "no JSON\n")
    submission = new_submission(InputOrder([str(path)]), Settings(provider="extractive"))
    assert submission.empty
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"warning: {path}, lines 1, 2, 3, 4, 5, ... (30 lines): config.prompt_name: ")
    assert second.startswith(f"warning: {path}, line 31: not valid JSON")


@pytest.mark.parametrize("paused", [True, False])
def test_the_words_of_a_provider_bring_no_full_stop_of_their_own(*, paused: bool) -> None:
    why = "check your plan and billing details."
    lane = LaneNotice("openai", "standard", "", datetime(2026, 11, 2, tzinfo=UTC), FailureKind.QUOTA, why, paused)
    assert lane.event.endswith("billing details")
