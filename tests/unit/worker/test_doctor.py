import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemas.failure import FailureKind
from schemas.states import HeldReason, Step
from worker.cli.commands.diagnosis import exit_code, show_report, to_json
from worker.cli.terminal import write_json
from worker.doctor import Finding, Report, Severity
from worker.doctor.backlog import check_held, check_lanes
from worker.doctor.consumers import check_consumers, check_local, check_urgent
from worker.doctor.environment import (
    LEAST_FREE,
    check_default_judge,
    check_disk,
    check_postgres,
    check_provider,
    check_redis,
    check_spool,
)
from worker.ledger.fleet import LaneNotice
from worker.ledger.inspection import MANY, Connected, HeldJobs, LedgerHealth
from worker.ledger.schema_version import Standing, head_revision
from worker.operations.overview import RELEASES
from worker.provider_settings import ProviderKind, ProviderSettings
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[3]

REDIS: dict[str, Any] = {
    "redis_version": "7.2.4",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "maxmemory": 0,
    "used_memory": 1 << 20,
}


def health(**changes: Any) -> LedgerHealth:
    nothing = dict.fromkeys(("running", "working", "stuck", "overdue", "unpublished", "billed_twice", "left_open"), 0)
    return LedgerHealth(**{"available": dict.fromkeys(Step, 0), **nothing, **changes})


def report(*severities: Severity) -> Report:
    findings = [Finding(f"check_{at}", severity, f"what {at}", "do it") for at, severity in enumerate(severities)]
    return Report(["jobs"], findings)


@pytest.mark.parametrize(
    ("severities", "code"),
    [
        ([], 0),
        ([Severity.NOTE], 0),
        ([Severity.NOTE, Severity.WARNING], 1),
        ([Severity.PROBLEM, Severity.NOTE], 1),
        ([Severity.UNREACHABLE, Severity.PROBLEM], 3),
    ],
)
def test_the_exit_code_is_that_of_the_worst_finding(severities: list[Severity], code: int) -> None:
    assert exit_code(report(*severities)) == code


def test_the_worst_comes_first_and_all_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(report(Severity.NOTE, Severity.UNREACHABLE, Severity.NOTE))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1:2]] == ["unreachable", "note", "note"]
    assert [line.strip() for line in lines[1:-1:2]] == ["→ do it"] * 3
    assert lines[-1] == "looked at jobs; found 1 unreachable, 2 notes"


def test_text_from_outside_can_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(Report(["jobs"], [Finding("c", Severity.NOTE, "\x1b[31mred[/]", "[bold]do[/bold]")]))
    stderr = capsys.readouterr().out
    assert "\x1b" not in stderr
    assert "[bold]do[/bold]" in stderr


def test_json_has_every_field(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_json(to_json(report(Severity.WARNING)))
    assert json.loads(capsysbinary.readouterr().out) == {
        "worst": "warning",
        "checked": ["jobs"],
        "findings": [{"check": "check_0", "severity": "warning", "what": "what 0", "remedy": "do it"}],
    }


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"redis_version": "6.2.1"}, "redis_version"),
        ({"maxmemory_policy": "volatile-lru"}, "redis_eviction"),
        ({"maxmemory_policy": None}, "redis_eviction"),
        ({"aof_enabled": 0}, "redis_durability"),
        ({"maxmemory": 100, "used_memory": 80}, "redis_memory"),
    ],
)
def test_each_fault_of_redis_is_one_finding(changes: dict[str, Any], check: str) -> None:
    assert [finding.check for finding in check_redis({**REDIS, **changes})] == [check]


def test_an_old_postgres_is_named() -> None:
    (finding,) = check_postgres(Connected(14, head_revision(), Standing.CURRENT))
    assert finding.check == "postgres_version"
    assert "PostgreSQL 14" in finding.what


@pytest.mark.parametrize(
    ("promises", "named"),
    [
        ({"standbys": 1}, ["standby"]),
        ({"standbys": 1, "waits_for_standby": True}, []),
        ({"loses_commits": "fsync = off"}, ["durability"]),
        ({"has_identity": False}, ["failover"]),
    ],
)
def test_a_server_that_may_lose_commits_is_a_finding(promises: dict[str, Any], named: list[str]) -> None:
    server = Connected(18, head_revision(), Standing.CURRENT, **promises)
    assert [finding.check for finding in check_postgres(server)] == named


def test_a_queue_without_a_consumer_is_a_problem_when_jobs_wait() -> None:
    consumers = {"nightdesk@a:1": frozenset({"generate"}), "nightdesk@b:1": frozenset({"submit"})}
    waiting = health(available={Step.GENERATE: 0, Step.CHECK: MANY})
    (finding,) = check_consumers(consumers, waiting)
    assert (finding.check, finding.severity) == ("queue_check", Severity.PROBLEM)
    assert "10,000 or more jobs wait" in finding.what
    (finding,) = check_consumers(consumers, health())
    assert finding.severity is Severity.WARNING


WITH_MODEL = Settings(local_model="a.module:Model")
LOCAL_WAITS = {**dict.fromkeys(Step, 0), Step.LOCAL: 7}


@pytest.mark.parametrize(
    ("settings", "changes", "severity", "text"),
    [
        (WITH_MODEL, {"available": LOCAL_WAITS}, Severity.PROBLEM, "7 jobs wait for it, to be .* after 120 s"),
        (WITH_MODEL, {}, Severity.WARNING, "no worker serves the queue local$"),
        (Settings(), {"available": LOCAL_WAITS}, Severity.PROBLEM, "without the local model at once"),
        (Settings(), {}, None, ""),
        (WITH_MODEL, {"available": LOCAL_WAITS, "served": frozenset({Step.LOCAL})}, None, ""),
        (WITH_MODEL, {"available": LOCAL_WAITS, "served": frozenset()}, None, ""),
    ],
)
def test_the_local_queue_needs_a_worker_if_a_model_is_set_or_jobs_need_it(
    settings: Settings, changes: dict[str, Any], severity: Severity | None, text: str
) -> None:
    findings = list(check_local(health(**{"served": frozenset({Step.CHECK}), **changes}), settings))
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    for finding in findings:
        assert finding.check == "queue_local"
        assert re.search(text, finding.what)
        assert "nightdesk worker --queues local" in finding.remedy
        assert ("NIGHTDESK_LOCAL_MODEL" in finding.remedy) == (settings.local_model is None)


@pytest.mark.parametrize(
    ("processes", "changes", "checks"),
    [
        (0, {}, []),
        (1, {}, []),
        (1, {"served": frozenset({Step.CHECK})}, [("urgent_workers", Severity.WARNING)]),
        (1, {"served": frozenset({Step.CHECK}), "urgent_workers": True}, []),
        (0, {"urgent_workers": True}, []),
        (0, {"urgent_workers": True, "available": LOCAL_WAITS}, [("workers", Severity.PROBLEM)]),
        (0, {"urgent_workers": True, "available": LOCAL_WAITS, "served": frozenset({Step.CHECK})}, []),
    ],
)
def test_workers_of_urgent_jobs_are_there_if_they_should_be_and_not_alone(
    processes: int, changes: dict[str, Any], checks: list[tuple[str, Severity]]
) -> None:
    findings = list(check_urgent(health(**changes), Settings(urgent_processes=processes)))
    assert [(finding.check, finding.severity) for finding in findings] == checks


def test_consumers_are_checked_without_a_ledger() -> None:
    (finding,) = check_consumers({}, None)
    assert (finding.check, finding.what) == ("workers", "no worker is alive")


def test_every_reason_to_hold_says_how_to_release() -> None:
    assert RELEASES.keys() == set(HeldReason)
    with_money = {
        HeldReason.BUDGET: "--max-cost-usd",
        HeldReason.KEY_BUDGET: "nightdesk keys limit",
        HeldReason.TENANT_BUDGET: "nightdesk budget set",
    }
    by_a_person = {reason: remedy for reason, (_, remedy) in RELEASES.items() if reason not in with_money}
    assert all(f"--reason {reason.value}" in remedy for reason, remedy in by_a_person.items())
    assert all(command in RELEASES[reason][1] for reason, command in with_money.items())


def test_a_paused_lane_is_named_with_its_reason() -> None:
    since = datetime(2026, 11, 22, 3, 4, tzinfo=UTC)
    (finding,) = check_lanes(
        [LaneNotice("openai", "standard", "", since, FailureKind.QUOTA, "openai answered 429: no credit", paused=True)]
    )
    assert "openai in the lane standard since 2026-11-22 03:04 UTC: openai answered 429: no credit" in finding.what
    assert "--reason lane_paused" in finding.remedy


def test_many_held_batches_are_not_all_listed() -> None:
    batches = [uuid4() for _ in range(5)]
    (finding,) = check_held(health(holds=[HeldJobs(batch, HeldReason.BUDGET, 2) for batch in batches]))
    assert finding.what.startswith("10 jobs are held: ")
    assert finding.what.endswith(f"(batch {batches[0]}, {batches[1]}, {batches[2]} and others)")
    assert "release BATCH --max-cost-usd" in finding.remedy


def test_a_provider_without_its_key_is_a_finding() -> None:
    (finding,) = check_provider(Settings(provider="anthropic"), {"OPENAI_API_KEY": "k"})
    assert (finding.check, finding.severity) == ("provider", Severity.PROBLEM)
    assert "set ANTHROPIC_API_KEY" in finding.what
    assert "NIGHTDESK_PROVIDER=extractive" in finding.remedy


def test_a_server_of_ones_own_under_a_known_name_needs_no_key() -> None:
    own = ProviderSettings(kind=ProviderKind.OPENAI_CHAT, base_url="http://127.0.0.1:1/v1", model="m")
    assert list(check_provider(Settings(provider="openai", providers={"openai": own}), {})) == []


def test_each_provider_with_settings_is_checked() -> None:
    keyed = ProviderSettings(kind=ProviderKind.OPENAI, api_key_env="OUR_KEY")
    (finding,) = check_provider(Settings(providers={"other": keyed}), {})
    assert "'other' needs a key: set OUR_KEY" in finding.what
    assert "NIGHTDESK_PROVIDERS" in finding.remedy


def test_an_unknown_fallback_is_a_finding() -> None:
    (finding,) = check_provider(Settings(fallbacks=("opneai",)), {})
    assert "NIGHTDESK_FALLBACKS names 'opneai'" in finding.what


def test_a_model_that_the_offline_provider_lacks_is_a_finding() -> None:
    (finding,) = check_provider(Settings(model="gpt-6-luna"), {})
    assert finding.what.startswith(
        "NIGHTDESK_MODEL is 'gpt-6-luna', and the provider 'extractive' has no model but its own"
    )
    assert list(check_provider(Settings(model="gpt-6-luna"), {"OPENAI_API_KEY": "k"})) == []


@pytest.mark.parametrize(
    ("settings", "environment", "judge"),
    [
        ({"model": "gpt-6-sol"}, {"OPENAI_API_KEY": "k"}, "openai:gpt-6-luna"),
        ({}, {"OPENAI_API_KEY": "k"}, "openai_decisions:gpt-6-luna"),
        ({"judge": "anthropic:claude-haiku-5-5"}, {"OPENAI_API_KEY": "k"}, "anthropic:claude-haiku-5-5"),
    ],
)
def test_a_judge_by_default_is_named_with_its_most_cost(
    settings: dict[str, Any], environment: dict[str, str], judge: str
) -> None:
    (finding,) = check_default_judge(Settings(**settings), environment)
    assert (finding.check, finding.severity) == ("default_judge", Severity.NOTE)
    assert finding.what.startswith(
        f"{judge} reads the claims that words leave open, for at most 15% of what the answer"
    )
    assert "NIGHTDESK_DEFAULT_JUDGE_SHARE=0" in finding.remedy


def test_without_a_model_that_costs_money_there_is_no_judge_by_default() -> None:
    key = {"OPENAI_API_KEY": "k"}
    assert list(check_default_judge(Settings(), {})) == []
    assert list(check_default_judge(Settings(default_judge_share=0), key)) == []
    assert list(check_default_judge(Settings(provider="extractive", judge="openai"), key)) == []


def test_a_full_disk_is_a_finding_before_the_home_exists(tmp_path: Path) -> None:
    assert list(check_disk(tmp_path / "not" / "there", LEAST_FREE)) == []
    (finding,) = check_disk(tmp_path / "not" / "there", 5 << 20)
    assert "only 5 MiB are free" in finding.what
    assert str(tmp_path) in finding.what
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    "folder", ["00f3c2a19b7e", "018f0e5c-0000-7000-8000-000000000000"], ids=["by_address", "by_id"]
)
def test_answers_in_a_spool_without_a_writer_are_a_finding(tmp_path: Path, folder: str) -> None:
    settings = Settings(home=tmp_path)
    assert list(check_spool(settings)) == []
    spool = tmp_path / "spool" / folder
    spool.mkdir(parents=True)
    (spool / "a.jsonl").write_text("{}\n")
    (spool / "b.stored").write_text("{}\n")

    (finding,) = check_spool(settings)

    assert (finding.severity, str(spool) in finding.what) == (Severity.WARNING, True)
    assert (spool / "a.jsonl").exists()
