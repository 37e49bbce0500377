"""Rules and dashboards use metrics that exist, and each alert says what to do."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deployment import KUBERNETES, REPOSITORY, objects_of
from worker.telemetry import metrics

MONITORING = REPOSITORY / "deploy" / "monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"] for rule in group["rules"]]
NAME = re.compile(r"\bnightdesk[a-z0-9_:]*")


def dashboards() -> Iterator[dict[str, Any]]:
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        yield json.loads(path.read_text())


def queries() -> list[str]:
    return [
        target["expr"] for board in dashboards() for panel in board["panels"] for target in panel.get("targets", ())
    ]


def test_rules_and_dashboards_use_only_metrics_and_labels_that_exist() -> None:
    labels = {sample: {*metric.labels, "le"} for metric in metrics.ALL for sample in metric.samples}
    recorded = {rule["record"]: {*labels[NAME.search(rule["expr"])[0]]} for rule in RULES if "record" in rule}  # type: ignore[index]
    labels_of = labels | recorded
    for query in (*queries(), *(rule["expr"] for rule in RULES)):
        used = set(NAME.findall(query))
        assert used <= labels_of.keys(), f"{used - labels_of.keys()} in {query}"
        for name, selector in re.findall(r"\b(nightdesk[a-z0-9_:]*)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)\s*[=!]~?", selector)) <= labels_of[name], query
        grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in labels.split(", ")}
        assert grouped <= {label for name in used for label in labels_of[name]}, query


def test_the_operator_of_a_cluster_reads_the_same_rules_and_scrapes_with_a_key_of_its_own() -> None:
    scrape, rules = objects_of(KUBERNETES / "components" / "monitoring")
    assert rules["spec"] == yaml.safe_load((MONITORING / "rules.yml").read_text())
    _, service, *_ = objects_of(KUBERNETES / "components" / "http")
    assert scrape["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = scrape["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"] == {"name": "nightdesk-metrics", "key": "key"}


def test_every_metric_is_looked_at() -> None:
    text = " ".join((*queries(), *(rule["expr"] for rule in RULES)))
    assert [metric.name for metric in metrics.ALL if not any(sample in text for sample in metric.samples)] == []


def test_every_alert_has_its_line_for_the_operator() -> None:
    page = (REPOSITORY / "docs" / "operate.md").read_text()
    alerts = [rule["alert"] for rule in RULES if "alert" in rule]
    assert alerts == re.findall(r"^\| `(Nightdesk\w+)` \| \S", page, re.MULTILINE)
    for rule in RULES:
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert rule["annotations"]["runbook"] == "docs/operate.md#alerts"
            assert rule["annotations"]["summary"]
