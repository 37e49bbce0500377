"""Runs promtool over the rules: their syntax, and each alert with series that let it fire and resolve."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deployment import REPOSITORY
from tests.monitoring.alert_series import CASES, MINUTES, Case

RULES = REPOSITORY / "deploy" / "monitoring" / "rules.yml"
PROMETHEUS_FILE = REPOSITORY / "deploy" / "monitoring" / "prometheus.yml"


class Unfit(Exception):
    """A check failed; its text is what promtool says."""


def promtool(*arguments: str | Path) -> str:
    """Runs promtool; raises ``Unfit``."""
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit(f"promtool {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_files(folder: Path) -> None:
    """Checks the rules and the file of Prometheus, with the paths of the container brought here."""
    promtool("check", "rules", RULES)
    key = folder / "key"
    key.write_text("ndk_none")
    text = PROMETHEUS_FILE.read_text().replace("/etc/prometheus/rules.yml", str(RULES))
    here = folder / "prometheus.yml"
    here.write_text(text.replace("/etc/prometheus/nightdesk-key", str(key)))
    promtool("check", "config", here)


def test_alerts(folder: Path) -> list[str]:
    """Lets each alert fire and resolve with sample series; returns their names. Raises ``Unfit``."""
    document = yaml.safe_load(RULES.read_text())
    alerts = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        # promtool compares them as text, values included; the labels say enough.
        del rule["annotations"]
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(document))
    cases = {case.alert: case for case in CASES}
    if set(cases) != {rule["alert"] for rule in alerts}:
        raise Unfit(f"alerts without series, or the other way round: {set(cases) ^ {rule['alert'] for rule in alerts}}")
    tests = [_document(cases[rule["alert"]], rule) for rule in alerts]
    file = folder / "rules_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)
    return list(cases)


def _document(case: Case, rule: dict[str, Any]) -> dict[str, Any]:
    # Two processes that serve: what they read from the ledger must not count twice.
    series = [
        {"series": _of(sample.series, instance), "values": f"{sample.fault} {sample.well}"}
        for sample in case.samples
        for instance in ("a", "b")
    ]
    fires = {
        "exp_labels": {**case.labels, "severity": rule["labels"]["severity"]},
    }
    return {
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": f"{MINUTES - 1}m", "alertname": case.alert, "exp_alerts": [fires]},
            {"eval_time": f"{2 * MINUTES - 1}m", "alertname": case.alert, "exp_alerts": []},
        ],
    }


def _of(series: str, instance: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{instance="{instance}"{", " + labels if labels else "}"}'
