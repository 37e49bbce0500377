"""Breaks a running system part by part, and waits for the alert of each fault, then for its end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from schemas.states import HeldReason
from tests.acceptance.conftest import questions
from tests.deployment import REPOSITORY
from tests.faults.lab import Lab, open_lab
from tests.forking import PROGRAM
from tests.monitoring.prometheus import Prometheus, free_port, running_prometheus
from tests.monitoring.promtool import Unfit
from tests.stub import faults
from worker.scheduling.dispatch import Pace
from worker.telemetry import metrics

HELD_BACK = "A loan is repaid in three years."
DASHBOARDS = sorted((REPOSITORY / "deploy" / "monitoring" / "dashboards").glob("*.json"))


class Drill:
    """The system under a Prometheus, and the faults in their order."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.port = free_port()
        self.service = self._serve()
        self.prometheus: Prometheus

    def _serve(self) -> subprocess.Popen[bytes]:
        with (self.folder / "serve.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *PROGRAM, "serve", "--port", str(self.port)],
                env=self.lab.environment(), stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def stop(self) -> None:
        """Ends the service."""
        self.service.terminate()
        self.service.wait(timeout=60)

    def ask(self, count: int, **config: Any) -> None:
        """Submits questions that no earlier ones are the same as."""
        stamp = time.monotonic_ns()
        jobs = [{**job, "query": f"{job['query']} ({stamp})", **config} for job in questions(count)]
        self.lab.submit(jobs, name=f"drill {stamp}")

    def wait_for_end(self, within_s: float = 180) -> None:
        """Waits until all jobs are final."""
        self.lab.until(self.lab.all_final, within_s=within_s, what="all jobs final")

    # ---- the faults ----

    def no_workers(self) -> None:
        self.ask(20)
        self._expect("NightdeskNoWorkers", "NightdeskDutiesNotLed", "NightdeskQueueOld")
        self.lab.work()
        self.wait_for_end()
        self._over("NightdeskNoWorkers", "NightdeskDutiesNotLed", "NightdeskQueueOld")

    def killed_worker(self) -> None:
        self.lab.stub.latency_s = 30
        self.ask(20)
        self.lab.until_calling(10)
        for worker in self.lab.workers:
            self.lab.kill(worker)
        # No other worker is there to rescue.
        self._expect("NightdeskFindings")
        self.lab.stub.latency_s = 0.2
        self.lab.work()
        self._expect("NightdeskWorkersLost")
        self.wait_for_end()
        self._over("NightdeskFindings")

    def refusing_provider(self) -> None:
        for rates, alerts in (
            ({429: 0.7}, ("NightdeskRateLimited",)),
            ({500: 0.8}, ("NightdeskUnknownOutcomes", "NightdeskProviderFailing")),
            ({400: 0.8}, ("NightdeskJobsFailing",)),
        ):
            self.lab.stub.error_rates = rates
            self._while_asking(*alerts)
        self.lab.stub.error_rates = {}
        self.wait_for_end(400)

    def used_up_quota(self) -> None:
        self.lab.stub.then(*[faults.openai_error(429, "insufficient_quota")] * 5)
        self.ask(20)
        self._expect("NightdeskLanePaused", "NightdeskJobsHeld")
        self.lab.stub.acts.clear()
        self.lab.with_ledger(lambda ledger: ledger.actions.release(None, HeldReason.LANE_PAUSED, "ada"))
        self.wait_for_end()
        self._over("NightdeskLanePaused", "NightdeskJobsHeld")

    def expired_jobs(self) -> None:
        deadline = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
        self.lab.stub.latency_s = 20
        self.ask(5, deadline=deadline)
        self._expect("NightdeskJobsExpire")
        self.lab.stub.latency_s = 0.2
        self.wait_for_end()

    def wrong_answers(self) -> None:
        job = {"query": "When is it repaid?", "context": [HELD_BACK], "config": {"checkers": ["structure", "lexical"]}}
        if not self.lab.workers:
            self.lab.work()
        for number in range(8):
            answers = [
                f"The loan is repaid in {9 + number + at} years. It costs {at} euros a month." for at in range(40)
            ]
            self.lab.submit([{**job, "response": answer} for answer in answers])
            self.wait_for_end()
            if "NightdeskClaimsUnsupported" in self.prometheus.firing():
                break
            time.sleep(6)
        self._expect("NightdeskClaimsUnsupported")

    def unreachable_provider(self) -> None:
        for worker in self.lab.workers:
            self.lab.kill(worker)
        address, os.environ["OPENAI_BASE_URL"] = os.environ["OPENAI_BASE_URL"], "http://127.0.0.1:1/v1"
        self.ask(10)
        worker = self.lab.work()
        os.environ["OPENAI_BASE_URL"] = address
        self._expect("NightdeskProviderUnreachable")
        self.lab.kill(worker)
        self.lab.work()
        self.lab.execute("UPDATE job SET scheduled_at = nightdesk_now() WHERE state = 'scheduled'")
        self.wait_for_end()
        self._over("NightdeskProviderUnreachable")

    def no_key(self) -> None:
        """Calls that a worker parked wait in the background for the key, which the next worker has not."""
        for worker in self.lab.workers:
            self.lab.kill(worker)
        self.lab.stub.background.ends_after_s = 5
        self.ask(5, config={"lane": "background"})
        worker = self.lab.work(provider_batch_look_s=5)
        self.lab.until(lambda: self.lab.count("job WHERE state = 'pending'") == 5, within_s=60, what="parked calls")
        self.lab.kill(worker)
        key = os.environ.pop("OPENAI_API_KEY")
        worker = self.lab.work(provider_batch_look_s=5)
        os.environ["OPENAI_API_KEY"] = key
        self._expect("NightdeskLaneUnserved")
        self.lab.kill(worker)
        self.lab.work(provider_batch_look_s=5)
        self.wait_for_end()
        self._over("NightdeskLaneUnserved")

    def small_counters(self) -> None:
        """A worker can count no job that ends."""
        for worker in self.lab.workers:
            self.lab.kill(worker)
        program, self.lab.program = self.lab.program, ("-m", "tests.monitoring.small_counters")
        worker = self.lab.work()
        self.lab.program = program
        self._while_asking("NightdeskCountsIncomplete")
        self.wait_for_end()
        self.lab.kill(worker)
        self.lab.work()

    def late_check(self) -> None:
        """More answers wait than the check may have before it, and the only worker checks none."""
        for worker in self.lab.workers:
            self.lab.kill(worker)
        stamp = time.monotonic_ns()
        job = {"context": [HELD_BACK], "config": {"checkers": ["structure", "lexical"]}}
        many = range(Pace().check_backlog + 1)
        answers = [{**job, "query": f"When ({stamp})?", "response": f"In {number} years."} for number in many]
        batch, _ = self.lab.submit(answers)
        worker = self.lab.work("generate,submit")
        self._expect("NightdeskCheckBehind")
        self.lab.kill(worker)
        self.lab.with_ledger(lambda ledger: ledger.actions.cancel_batch(batch, "ada"))
        self.lab.work()
        self.wait_for_end()
        self._over("NightdeskCheckBehind")

    def redis_away(self) -> None:
        self.lab.crash("valkey")
        self._expect("NightdeskRedisAway")
        self.lab.restart()
        self._over("NightdeskRedisAway")

    def postgres_away(self) -> None:
        self.lab.crash("postgres")
        ends = time.monotonic() + 120
        expected = {"NightdeskLedgerAway"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30) as client:
            while not expected <= self.prometheus.fired.keys() and time.monotonic() < ends:
                for _ in range(10):
                    client.get("/v1/batches")
                self.prometheus.firing()
                time.sleep(0.3)
        self._expect(*expected)
        self.lab.restart()
        # Its counts of that time are scraped now.
        self._expect("NightdeskServiceErrors")
        self._over("NightdeskLedgerAway")

    def service_away(self) -> None:
        self.stop()
        self._expect("NightdeskServiceAway")
        self.service = self._serve()
        self._over("NightdeskServiceAway")

    # ---- looks ----

    def check_names_and_queries(self) -> tuple[int, int, int]:
        """Numbers of rules, of queries of the dashboards, and of those with a result now. Raises ``Unfit``."""
        exposed = self.prometheus.exposed()
        described = {
            metric.name if not metric.samples[0].endswith("_total") else metric.samples[0] for metric in metrics.ALL
        }
        if missing := described - exposed:
            raise Unfit(f"not exposed: {sorted(missing)}")
        queries = [
            target["expr"]
            for path in DASHBOARDS
            for panel in json.loads(path.read_text())["panels"]
            for target in panel.get("targets", ())
        ]
        filled = [self.prometheus.check_query(query) for query in queries]
        for query, has_result in zip(queries, filled, strict=True):
            if not has_result:
                print(f"no result now: {query}")  # noqa: T201
        return self.prometheus.check_rules(), len(queries), sum(filled)

    def _expect(self, *alerts: str) -> None:
        began = time.monotonic()
        self.prometheus.wait_for(*alerts)
        print(f"fired: {', '.join(alerts)} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201

    def _over(self, *alerts: str) -> None:
        self.prometheus.wait_until_over(*alerts)
        print(f"resolved: {', '.join(alerts)}", flush=True)  # noqa: T201

    def _while_asking(self, *alerts: str) -> None:
        """Keeps the system busy until the alerts fire; what it counts comes every ten seconds."""
        ends = time.monotonic() + 150
        while not set(alerts) <= self.prometheus.fired.keys() and time.monotonic() < ends:
            self.ask(60)
            for _ in range(10):
                self.prometheus.firing()
                time.sleep(0.5)
        self._expect(*alerts)


# Wrong answers early: right ones of the other faults would make their share too small.
FAULTS: tuple[Callable[[Drill], None], ...] = (
    Drill.no_workers, Drill.wrong_answers, Drill.killed_worker, Drill.refusing_provider, Drill.used_up_quota,
    Drill.expired_jobs, Drill.late_check, Drill.no_key, Drill.small_counters, Drill.unreachable_provider, Drill.redis_away,
    Drill.postgres_away, Drill.service_away,
)  # fmt: skip


def drill(folder: Path, names: Sequence[str]) -> Prometheus:
    """Runs all faults, or those of these names; raises ``Unfit`` for an alert that does not fire or resolve."""
    with open_lab(folder, 0, latency_s=0.2) as lab:
        lab.settings = {"slots": 20, "unreachable_s": 600, "drain_s": 2}
        whole = Drill(lab, folder)
        try:
            with running_prometheus(folder, whole.port) as prometheus:
                whole.prometheus = prometheus
                prometheus.wait_until_over("NightdeskServiceAway")
                for fault in FAULTS:
                    if names and fault.__name__ not in names:
                        continue
                    print(f"--- {fault.__name__.replace('_', ' ')}", flush=True)  # noqa: T201
                    fault(whole)
                    if fault is Drill.used_up_quota:
                        rules, queries, filled = whole.check_names_and_queries()
                        print(f"{rules} rules and {queries} queries evaluated, {filled} with a result", flush=True)  # noqa: T201
                prometheus.check_rules()
                return prometheus
        finally:
            whole.stop()
