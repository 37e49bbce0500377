"""A real Prometheus over a process of ``nightdesk serve``, with the rules' waits shortened to seconds."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import yaml

from tests.deployment import REPOSITORY
from tests.monitoring.promtool import RULES, Unfit

SCRAPE_S = 1
WAITS_S = 2
"""In place of the minutes that a rule waits."""
SHORTER = {"nightdesk_queue_age_seconds) > 3600": "nightdesk_queue_age_seconds) > 5"}
"""Bounds that no test should wait for."""


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    import socket  # noqa: PLC0415 - here alone

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """Asks it over its API, and remembers which alerts fired."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fired: dict[str, float] = {}
        """By alert: when it was seen first."""
        self._began = time.monotonic()

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; raises ``Unfit`` for an error."""
        answer = httpx2.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30).json()
        if answer["status"] != "success":
            raise Unfit(f"{path} {parameters}: {answer.get('error')}")
        return answer["data"]

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        alerts = {alert["labels"]["alertname"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}
        for alert in alerts:
            self.fired.setdefault(alert, time.monotonic() - self._began)
        return alerts

    def wait_for(self, *alerts: str, within_s: float = 120) -> None:
        """Waits until each of these fired; raises ``Unfit``."""
        ends = time.monotonic() + within_s
        while missing := set(alerts) - self.fired.keys():
            self.firing()
            if time.monotonic() > ends:
                raise Unfit(f"did not fire within {within_s:.0f} s: {', '.join(sorted(missing))}")
            time.sleep(0.5)

    def wait_until_over(self, *alerts: str, within_s: float = 120) -> None:
        """Waits until none of these fires; raises ``Unfit``."""
        ends = time.monotonic() + within_s
        while rest := set(alerts) & self.firing():
            if time.monotonic() > ends:
                raise Unfit(f"fires still after {within_s:.0f} s: {', '.join(sorted(rest))}")
            time.sleep(0.5)

    def check_rules(self) -> int:
        """The number of rules, all of which were evaluated without an error; raises ``Unfit``."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        if broken := [rule for rule in rules if rule["health"] != "ok" or rule.get("lastError")]:
            raise Unfit(f"rules that can't be evaluated: {broken}")
        return len(rules)

    def check_query(self, query: str) -> bool:
        """True if a query of a dashboard has a result now; raises ``Unfit`` when it can't be evaluated."""
        return bool(self.ask("query", query=query.replace("$__rate_interval", "1m"))["result"])

    def exposed(self) -> set[str]:
        """The names of all metrics that the service describes."""
        return {entry["metric"] for entry in self.ask("targets/metadata", match_target='{job="nightdesk"}')}


@contextmanager
def running_prometheus(folder: Path, port_of_service: int) -> Iterator[Prometheus]:
    """Prometheus over a service on loopback."""
    rules = folder / "rules.yml"
    text = re.sub(r"for: \d+m", f"for: {WAITS_S}s", RULES.read_text())
    for long, short in SHORTER.items():
        assert long in text
        text = text.replace(long, short)
    rules.write_text(text)
    configuration = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": "nightdesk", "static_configs": [{"targets": [f"127.0.0.1:{port_of_service}"]}]}
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)
    try:
        _until_ready(process, f"http://{address}/-/ready", folder / "prometheus.log")
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(timeout=30)


def _until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx2.get(url, timeout=2).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.2)
    raise Unfit(f"Prometheus did not start:\n{log.read_text()[-2000:]}")
