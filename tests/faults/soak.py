"""Ten thousand jobs while everything dies at random: ``python -m tests.faults.soak`` (``make soak``).

The seed decides which faults come, in which order and after which pauses; it is printed, and can be given again.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from genai_prices import Usage, calc_price

from tasks.errors import LedgerUnavailable
from tests.acceptance.conftest import questions
from tests.deadlines import scale_to_load
from tests.faults.lab import SLOTS, Lab, Report, open_lab
from tests.faults.proxy import Proxy, running_proxy
from tests.forking import REPOSITORY
from tests.stub import faults
from tests.stub.answers import USAGE
from worker.cli.exits import UNREACHABLE
from worker.process.main import BROKEN_EXIT
from worker.providers.prices import LANE_SHARES

PORTIONS = 40
"""Times at which jobs come in, evenly over the whole: faults meet jobs in every state to the end."""

TENANTS = 5
"""Each hands in a batch at each of these times, with a ceiling on its cost: 200 batches in all."""

CEILING_USD = 2
"""For each job, more than its calls can be charged at worst: money is counted, no job is held."""

SILENT_S = 10.0
"""The longest wait for a connection to send something into the silence."""

PAUSE_S = (0.5, 6.0)
"""Between two faults, least and most."""

BUSY = 0.65
"""Share of the time that the workers' slots would be taken if nothing broke; with what breaks there is always a backlog."""

LEASE_S = 5
"""Short, so that what a dead worker held is taken up before the next fault; a busy machine has longer ones."""

LANES: tuple[dict[str, Any], ...] = (
    {"lane": "provider_batch"},
    {"lane": "background"},
    {"lane": "background_2h"},
    {"lane": "auto"},
    {"lane": "auto", "hours_left": 3},
)
"""Lanes of the jobs that are not called at once, in turn; with a deadline in three hours ``auto`` first takes the background."""

LANE_SETTINGS = {"provider_batch_gather_s": 2, "provider_batch_look_s": 1, "provider_batch_create_s": 10}

ENDS_AFTER_S = 3.0
"""Time that a batch or a response in the background takes."""

Fault = Callable[[], None]

ENDS = (UNREACHABLE, BROKEN_EXIT)
"""How a worker may end by itself."""

PROVIDER_FAULTS: tuple[Callable[[], Any], ...] = (
    lambda: faults.reset,
    lambda: faults.truncated,
    lambda: faults.raw(b'{"id": '),
    lambda: faults.raw(faults.HTML.encode(), "text/html"),
    lambda: faults.slow(4),
    lambda: faults.openai_error(429, "rate_limit_exceeded", retry_after="1"),
    lambda: faults.openai_error(500, "server_error"),
    lambda: faults.openai_error(503, "slow_down"),
    lambda: faults.status(502, faults.HTML),
)


@dataclass
class Soak:
    """A run under way: what breaks, what was broken, and what is left to submit."""

    lab: Lab
    chance: random.Random
    portions: list[list[dict[str, Any]]]
    log: Callable[[str], None]
    postgres: Proxy
    redis: Proxy
    """What the workers connect through."""
    done: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    lease_s: float = field(default_factory=lambda: round(scale_to_load(LEASE_S), 1))
    deadlocks: int = 0
    """Counted by servers that were killed since: a killed PostgreSQL forgets its statistics."""

    def run(self, seconds: float) -> None:
        """Submit and break for so long; at the end everything runs and all is submitted."""
        started = time.monotonic()
        # Each kind once, in random order; then as they come.
        self._unseen = [kind for kind, _ in self._kinds()]
        self.chance.shuffle(self._unseen)
        self.workers = [self._worker(), self._worker()]
        every = seconds / len(self.portions)
        while (now := time.monotonic() - started) < seconds:
            while self.submitted < len(self.portions) and self.submitted * every <= now:
                self._submit()
            self._supervise()
            self._break(started)
            self.lab.pause(self.chance.uniform(*PAUSE_S))
        self.lab.restart()
        self._supervise()
        while self.submitted < len(self.portions):
            self._submit()

    def _submit(self) -> None:
        """A producer's submission: its key makes trying again harmless."""
        portion = self.portions[self.submitted]
        for number in range(TENANTS):
            if jobs := portion[number::TENANTS]:
                self._submit_batch(jobs, f"tenant-{number}")
        self.submitted += 1

    def _submit_batch(self, jobs: list[dict[str, Any]], tenant: str) -> None:
        key, ceiling = f"soak-{self.submitted}", CEILING_USD * len(jobs)
        while True:
            try:
                self.lab.submit(jobs, tenant=tenant, key=key, max_cost_usd=ceiling)
            except LedgerUnavailable:
                self.lab.restart()
                continue
            return

    def _supervise(self) -> None:
        """Restart workers that ended by themselves, as an operator does: a worker that starts while the ledger is away ends."""
        for at, worker in enumerate(self.workers):
            if (code := worker.poll()) is not None:
                assert code in ENDS, (
                    f"a worker ended with {code}: {self.lab.log(self.lab.workers.index(worker))[-3000:]}"
                )
                self.log(f"a worker ended with {code}, another is started")
                self.done["a worker restarted"] += 1
                self.workers[at] = self._worker()

    def _worker(self) -> subprocess.Popen[bytes]:
        return self.lab.work(lease_s=self.lease_s, database_url=self.postgres.url, redis_url=self.redis.url)

    def _break(self, started: float) -> None:
        fault = self._unseen.pop() if self._unseen else self._draw()
        self.log(f"{time.monotonic() - started:7.1f} s  {fault.__name__.replace('_', ' ')}")
        fault()
        self.done[fault.__name__.replace("_", " ")] += 1

    def _draw(self) -> Fault:
        kinds = self._kinds()
        return self.chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]

    def _kinds(self) -> list[tuple[Fault, int]]:
        """Faults and how often each comes."""
        return [
            (self.a_worker_killed, 6),
            (self.both_workers_killed, 2),
            (self.a_worker_frozen, 2),
            (self.redis_killed, 2),
            (self.redis_emptied, 2),
            (self.postgres_killed, 3),
            (self.postgres_read_only, 3),
            (self.connections_cut, 3),
            (self.connections_to_postgres_silent, 3),
            (self.connections_to_redis_silent, 2),
            (self.the_provider_fails, 8),
        ]

    # ---- what breaks: each fault ends by itself ----

    def a_worker_killed(self) -> None:
        at = self.chance.randrange(len(self.workers))
        self.lab.kill(self.workers[at])
        self.lab.pause(self.chance.uniform(0, 3))
        self.workers[at] = self._worker()

    def both_workers_killed(self) -> None:
        """The leader of dispatch is among them."""
        for worker in self.workers:
            self.lab.kill(worker)
        self.lab.pause(self.chance.uniform(0, 3))
        self.workers = [self._worker(), self._worker()]

    def a_worker_frozen(self) -> None:
        """Freezes a worker for longer than its leases, then resumes it; its jobs belong to another worker by then."""
        thaw = self.lab.freeze_worker(self.chance.choice(self.workers))
        try:
            self.lab.pause(self.chance.uniform(self.lease_s, 2 * self.lease_s))
        finally:
            thaw()

    def redis_killed(self) -> None:
        self.lab.crash("valkey")
        self.lab.pause(self.chance.uniform(0, 4))
        self.lab.restart()

    def redis_emptied(self) -> None:
        with self.lab.redis() as client:
            client.flushall()

    def postgres_killed(self) -> None:
        self.deadlocks += count_deadlocks(self.lab)
        self.lab.crash("postgres")
        self.lab.pause(self.chance.uniform(0, 4))
        self.lab.restart()

    def connections_cut(self) -> None:
        self.lab.terminate_connections()

    def postgres_read_only(self) -> None:
        """Every session refuses to write, as on a primary that became a standby."""
        self.lab.admin("ALTER SYSTEM SET default_transaction_read_only = on")
        self.lab.admin("SELECT pg_reload_conf()")
        try:
            self.lab.pause(self.chance.uniform(1, 2 * self.lease_s))
        finally:
            self.lab.admin("ALTER SYSTEM RESET default_transaction_read_only")
            self.lab.admin("SELECT pg_reload_conf()")

    def connections_to_postgres_silent(self) -> None:
        self._silence(self.postgres)

    def connections_to_redis_silent(self) -> None:
        self._silence(self.redis)

    def _silence(self, proxy: Proxy) -> None:
        """Forward nothing on the connections that are used next, and close none of them; new ones work."""
        proxy.swallowed.clear()
        proxy.stall()
        proxy.swallowed.wait(SILENT_S)
        proxy.heal()

    def the_provider_fails(self) -> None:
        self.lab.stub.then(*[self.chance.choice(PROVIDER_FAULTS)() for _ in range(self.chance.randint(1, 12))])


def in_lanes(jobs: list[dict[str, Any]], share: float, chance: random.Random) -> list[dict[str, Any]]:
    """The jobs, a share of which is to be answered in a provider batch or the background."""
    chosen = sorted(chance.sample(range(len(jobs)), round(share * len(jobs))))
    for turn, at in enumerate(chosen):
        config = dict(LANES[turn % len(LANES)])
        if hours := config.pop("hours_left", 0):
            jobs[at]["deadline"] = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
        # A call of these lanes may break as often as the provider does.
        jobs[at]["config"] = {**config, "max_attempts": 8}
    return jobs


def count_deadlocks(lab: Lab) -> int:
    """Deadlocks that PostgreSQL found since it was started."""
    return int(lab.scalar("SELECT sum(deadlocks) FROM pg_stat_database"))


# ---- the end -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Money:
    """The ledger's cost beside the provider's count of answers that it would charge."""

    answers: int
    """Whole answers that the provider gave."""
    recorded: int
    """Attempts that ended well, one recorded answer each."""
    wrong_usd: int
    """Of these, attempts whose cost is not the price of the answer."""
    recorded_usd: Decimal
    due_usd: Decimal
    """The price of as many answers."""
    uncovered: int
    """Answers beyond the recorded ones without an attempt that says 'unknown'."""
    uncertain_calls: int
    """Answers beyond the recorded ones: given, never heard."""
    unheard_usd: Decimal
    worst: int
    """Attempts charged at the worst case: unknown, or answered with what can't be read."""
    worst_usd: Decimal

    @property
    def agrees(self) -> bool:
        """True if every charge is recorded, at its price, or covered by an unknown outcome."""
        return self.wrong_usd == self.uncovered == 0 and self.recorded_usd == self.due_usd


def count_money(lab: Lab) -> Money:
    """Compare both accounts, request by request."""
    billed = lab.stub.billed
    ok, worst = Counter[str](), Counter[str]()
    units: dict[str, Decimal] = {}
    recorded_usd, worst_usd, wrong, due_usd = Decimal(0), Decimal(0), 0, Decimal(0)
    for digest, outcome, model, lane, cost, count in lab.rows(
        "SELECT encode(request_hash, 'hex'), outcome, model, lane, cost_usd, count(*) FROM attempt GROUP BY 1, 2, 3, 4, 5"
    ):
        unit = units[digest] = price(model, lane)
        if outcome == "ok":
            ok[digest] += count
            due_usd += unit * count
            wrong += count if cost != unit else 0
            recorded_usd += (cost or 0) * count
        else:
            worst[digest] += count if outcome == "unknown" else 0
            worst_usd += (cost or 0) * count
    due_usd -= sum((units[digest] * max(0, count - billed[digest]) for digest, count in ok.items()), Decimal(0))
    beyond = {digest: count - ok[digest] for digest, count in billed.items() if count > ok[digest]}
    return Money(
        answers=sum(billed.values()),
        recorded=sum(ok.values()),
        wrong_usd=wrong,
        recorded_usd=recorded_usd,
        due_usd=due_usd,
        uncovered=sum(max(0, count - worst[digest]) for digest, count in beyond.items()),
        uncertain_calls=sum(beyond.values()),
        unheard_usd=sum((units.get(digest, Decimal(0)) * count for digest, count in beyond.items()), Decimal(0)),
        worst=sum(worst.values()),
        worst_usd=worst_usd,
    )


def price(model: str, lane: str) -> Decimal:
    """The price of the stub's answer by the public price list and its lane, to the ledger's eight places."""
    usage = Usage(
        input_tokens=USAGE["input"],
        output_tokens=USAGE["output"],
        cache_read_tokens=USAGE["cached"],
        cache_write_tokens=USAGE["written"],
    )
    share = {"provider_batch": Decimal("0.5"), **LANE_SHARES}.get(lane, Decimal(1))
    return round(calc_price(usage, model, provider_id="openai").total_price * share, 8)


def broken_invariants(lab: Lab) -> list[str]:
    """Findings of ``nightdesk doctor --invariants``, run as an operator runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "worker.cli", "doctor", "--invariants", "--json"],
        cwd=REPOSITORY,
        env=lab.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = json.loads(done.stdout)
    assert any("invariants" in part for part in report["checked"]), done.stderr
    return [finding["what"] for finding in report["findings"] if finding["check"].startswith("invariant_")]


def main() -> int:
    """Soak, and say whether the promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--lanes", type=float, default=0.2, help="share of the jobs that are not called at once")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()

    def log(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    log(f"seed {options.seed}, {options.jobs} jobs, {options.seconds:.0f} s")
    portions = min(PORTIONS, options.jobs)
    latency_s = BUSY * 2 * SLOTS * options.seconds / options.jobs
    jobs = in_lanes(questions(options.jobs), options.lanes, random.Random(options.seed))
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-soak-") as folder,
        open_lab(Path(folder), 0, latency_s=latency_s, lean=True) as lab,
        running_proxy(lab.database_url) as postgres,
        running_proxy(lab.redis_url) as redis,
    ):
        lab.settings |= LANE_SETTINGS
        lab.stub.remote.ends_after_s = lab.stub.background.ends_after_s = ENDS_AFTER_S
        waves = [jobs[at::portions] for at in range(portions)]
        soak = Soak(lab, random.Random(options.seed), waves, log, postgres, redis)
        soak.run(options.seconds)
        lab.start_recovery()
        report = lab.report(options.jobs, within_s=600)
        runs = lab.scalar("SELECT count(*) FROM generation_record")
        states = dict(lab.rows("SELECT state, count(*) FROM job GROUP BY state"))
        left_open = lab.count("attempt WHERE closed_at IS NULL")
        soak.deadlocks += count_deadlocks(lab)
        return _log_report(log, soak, report, count_money(lab), broken_invariants(lab), runs, states, left_open)


def _log_report(
    log: Callable[[str], None],
    soak: Soak,
    report: Report,
    money: Money,
    broken: list[str],
    runs: int,
    states: dict[str, int],
    left_open: int,
) -> int:
    log("faults: " + ", ".join(f"{count} {name}" for name, count in soak.done.most_common()))
    log(f"jobs {report.jobs}: {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}")
    log(f"final records {runs}, lost {report.lost}, attempts left open {left_open}")
    log(
        f"calls {report.calls}: called twice without need {report.needless}, not in the ledger {report.unrecorded}, "
        f"outcome unknown {report.unknown}, answered late by a frozen worker {report.late}"
    )
    log(
        f"recorded answers {money.recorded} for {money.recorded_usd} USD, due {money.due_usd} USD; "
        f"{money.wrong_usd} at another price"
    )
    log(
        f"answers given but never heard {money.uncertain_calls} ({money.unheard_usd} USD), {money.uncovered} of them not covered "
        f"by an unknown outcome; {money.worst} unknown outcomes; charged at worst {money.worst_usd} USD"
    )
    answered = soak.lab.rows("SELECT lane, count(*) FROM attempt WHERE outcome = 'ok' GROUP BY 1 ORDER BY 1")
    log("answers by lane: " + ", ".join(f"{count} {lane}" for lane, count in answered))
    log(f"batches {soak.lab.count('batch')}, with a ceiling each; deadlocks {soak.deadlocks}")
    log(f"invariants: {'; '.join(broken) or 'all hold'}")
    log(f"recovery after the last fault {report.recovery_s:.1f} s")
    clean = (
        report.promises_hold
        and money.agrees
        and not broken
        and left_open == soak.deadlocks == 0
        and runs == report.jobs
    )
    log("the promises were kept" if clean else "A PROMISE WAS BROKEN")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
