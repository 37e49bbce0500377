from pathlib import Path
from typing import Any

import pytest

from schemas.states import HeldReason, Step
from worker.cli.commands.diagnosis import show_report
from worker.doctor.backlog import check_workers
from worker.doctor.environment import (
    check_disk,
    check_postgres,
    check_provider,
    check_redis,
    check_spool,
)
from worker.doctor.finding import Finding, Report, Severity
from worker.ledger.inspection import MANY, Connected, LedgerHealth
from worker.ledger.schema_version import Standing, head_revision
from worker.operations.overview import RELEASES
from worker.provider_settings import ProviderKind, ProviderSettings
from worker.settings import Settings

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


def test_the_worst_comes_first_all_are_summed_up_and_none_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    examined = report(Severity.NOTE, Severity.UNREACHABLE)
    examined.add("more", Finding("c", Severity.NOTE, "\x1b[31mred[/]", "[bold]do it"))
    show_report(examined)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1:2]] == ["unreachable", "note", "note"]
    assert [line.strip() for line in lines[1:-1:2]] == ["→ do it", "→ do it", "→ [bold]do it"]
    assert lines[-1] == "looked at jobs, more; found 1 unreachable, 2 notes"
    assert "\x1b" not in "".join(lines)


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


@pytest.mark.parametrize(
    ("promises", "named"),
    [
        ({"standbys": 1}, ["standby"]),
        ({"standbys": 1, "waits_for_standby": True}, []),
        ({"loses_commits": "fsync = off"}, ["durability"]),
        ({"has_identity": False}, ["failover"]),
        ({"version": 14}, ["postgres_version"]),
    ],
)
def test_an_old_server_and_one_that_may_lose_commits_is_a_finding(promises: dict[str, Any], named: list[str]) -> None:
    server = Connected(**{"version": 18, "revision": head_revision(), "standing": Standing.CURRENT, **promises})
    assert [finding.check for finding in check_postgres(server)] == named


WITH_MODEL = Settings(local_model="a.module:Model")
ALL, SERVED = frozenset(Step), {"served": frozenset({Step.GENERATE, Step.CHECK})}
LOCAL_WAITS = {"available": {**dict.fromkeys(Step, 0), Step.LOCAL: 7}}
CHECKS_WAIT = {"available": {**dict.fromkeys(Step, 0), Step.CHECK: MANY}}


@pytest.mark.parametrize(
    ("settings", "changes", "finding"),
    [
        (Settings(), {}, "workers: no worker is alive"),
        (Settings(), LOCAL_WAITS, "workers: no worker is alive; 7 jobs wait"),
        (Settings(), {"urgent_workers": True}, ""),
        (Settings(), {"urgent_workers": True, **LOCAL_WAITS}, "workers: only workers of urgent jobs are alive; 7 jobs wait"),
        (Settings(), SERVED, ""),
        (Settings(), {"served": frozenset({Step.GENERATE})}, "queue_check: no worker serves the queue check"),
        (Settings(), {"served": frozenset({Step.GENERATE}), **CHECKS_WAIT}, "queue_check: no worker serves the queue check; 10,000 or more jobs wait"),
        (WITH_MODEL, SERVED, "queue_local: no worker serves the queue local"),
        (Settings(), {**SERVED, **LOCAL_WAITS}, "queue_local: no worker serves the queue local; 7 jobs wait"),
        (WITH_MODEL, {"served": ALL, **LOCAL_WAITS}, ""),
        (Settings(urgent_processes=1), SERVED, "urgent_workers: no worker takes urgent jobs alone"),
        (Settings(urgent_processes=1), {**SERVED, "urgent_workers": True}, ""),
    ],
)  # fmt: skip
def test_each_step_has_a_worker(settings: Settings, changes: dict[str, Any], finding: str) -> None:
    findings = list(check_workers(health(**changes), settings))
    assert [
        f"{each.check}: {each.what.partition(',')[0] if 'urgent_' in each.check else each.what}" for each in findings
    ] == ([finding] if finding else [])
    assert all(
        each.severity is (Severity.PROBLEM if "jobs wait" in each.what else Severity.WARNING) for each in findings
    )


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


KEYED = ProviderSettings(kind=ProviderKind.OPENAI, api_key_env="OUR_KEY")
OWN = ProviderSettings(kind=ProviderKind.OPENAI_CHAT, base_url="http://127.0.0.1:1/v1", model="m")


@pytest.mark.parametrize(
    ("settings", "key", "finding"),
    [
        ({"provider": "anthropic"}, "OPENAI_API_KEY", "set ANTHROPIC_API_KEY"),
        ({"provider": "openai", "providers": {"openai": OWN}}, "", ""),
        ({"providers": {"other": KEYED}}, "", "'other' needs a key: set OUR_KEY"),
        ({"fallbacks": ("opneai",)}, "", "NIGHTDESK_FALLBACKS names 'opneai'"),
        ({"model": "gpt-6-luna"}, "", "the provider 'extractive' has no model but its own"),
        ({"model": "gpt-6-luna"}, "OPENAI_API_KEY", ""),
    ],
)
def test_providers_of_the_settings_can_be_called(settings: dict[str, Any], key: str, finding: str) -> None:
    findings = list(check_provider(Settings(**settings), {key: "k"}))
    assert [(each.check, each.severity) for each in findings] == [("provider", Severity.PROBLEM)] * bool(finding)
    assert all(finding in each.what for each in findings)


def test_a_full_disk_is_a_finding_before_the_home_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path / "not" / "there")
    assert list(check_disk(settings)) == []
    monkeypatch.setattr("worker.operations.free_disk.LEAST_FREE", 1 << 62)
    (finding,) = check_disk(settings)
    assert str(settings.home) in finding.what
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
