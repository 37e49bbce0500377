"""Estimates a submission, or other new jobs, by the code that plans their calls, without making one."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Any, NamedTuple
from uuid import UUID

from schemas.generation import Lane
from schemas.job import JobRequest
from schemas.window import parse_window
from tasks.estimates.call_history import History
from tasks.estimates.estimate import CallLimits, Estimate, Estimator, ModelEstimate, Spread, first_lease
from tasks.lanes.choice import LaneChooser
from tasks.ports import NewBatch, NewJob, Refused
from tasks.ports.remote_batches import BatchTimes
from worker.ledger.postgres import PostgresLedger
from worker.limits.rates import lane_terms, rates_of
from worker.operations.answerers import Answerer
from worker.operations.file_submission import Submission
from worker.settings import Settings

PAGE = 200
"""Jobs planned at a time."""


class Estimation(NamedTuple):
    """The estimate of an input with the lines that would be refused."""

    estimate: Estimate
    lines: int
    refused: Sequence[Refused] = ()
    repeats: int = 0
    """Jobs that the ledger knows by their idempotency key."""
    max_cost_usd: Decimal | None = None
    history: bool = True
    """A ledger was there to learn from."""
    time_left_s: float | None = None
    """From the first call to the last moment for one before the deadline; None: there is no deadline."""
    unchanged: int = 0
    """Jobs that earlier batches with the same settings have: a run would take those."""
    default: str | None = None
    """The provider of jobs that name none; None: jobs that are there already are estimated."""
    why: str = ""
    """The reason for which that provider is assumed, for people; empty: a run here starts workers with it."""

    @property
    def late_s(self) -> float | None:
        """The usual time beyond the deadline; None: the jobs are in time, or nothing tells."""
        seconds = self.estimate.seconds
        if seconds is None or self.time_left_s is None or not self.estimate.calls:
            return None
        late_s = seconds.usual - self.time_left_s
        return late_s if late_s > 0 else None


class _Planner:
    """Plans new jobs, and counts those that the ledger has."""

    def __init__(self, answerer: Answerer, ledger: PostgresLedger | None, batch: NewBatch, history: History) -> None:
        settings, providers = answerer.settings, answerer.providers
        times = _unobserved if ledger is None else ledger.remote_batches.times
        self._ledger, self._batch, self._settings = ledger, batch, settings
        self._lanes = LaneChooser(providers, times, lane_terms(settings))
        self.repeats = 0
        self.estimator = Estimator(
            providers,
            history,
            self._limits,
            settings.prompts,
            settings.judge,
            settings.default_judge_share,
            settings.judge_lane == "job",
            settings.slots,
            self._lanes,
        )

    def _limits(self, provider: str, model: str | None) -> CallLimits:
        rates = rates_of(self._settings, provider, model or "")
        requests, tokens_in, tokens_out, _ = rates.most
        return CallLimits(requests, tokens_in, tokens_out, rates.concurrency)

    async def add_all(self, jobs: Iterable[NewJob], on_page: Callable[[int], None] = lambda _: None) -> int:
        """Plans new jobs page by page, each followed by their number so far; returns their number."""
        count, remaining = 0, iter(jobs)
        while page := list(islice(remaining, PAGE)):
            keys = [job.idempotency_key for job in page if job.idempotency_key]
            keys_of_jobs = (
                await self._ledger.history.known_keys(self._batch.tenant, keys) if self._ledger else set[str]()
            )
            for job in page:
                if job.idempotency_key in keys_of_jobs:
                    self.repeats += 1
                    continue
                request = JobRequest.model_validate_json(job.request)
                if request.config.lane is not Lane.STANDARD:
                    await self._lanes.refresh(request.config)
                self.estimator.add(first_lease(job.id, request, self._batch, job.replay))
            count += len(page)
            on_page(count)
            # A signal that ends the command is seen between pages.
            await asyncio.sleep(0)
        return count


def _time_left_s(batch: NewBatch) -> float | None:
    if batch.deadline is None:
        return None
    begin, end = max(filter(None, (datetime.now(UTC), batch.not_before))), batch.deadline
    if batch.window is not None:
        window = parse_window(batch.window)
        begin, end = window.opening(begin), window.last_moment(end)
    return (end - begin).total_seconds()


async def _unobserved(provider: str, model: str, lane: Lane) -> BatchTimes:  # noqa: ARG001 - as the ledger's
    return BatchTimes()


async def estimate_jobs(
    jobs: Iterable[NewJob], batch: NewBatch, settings: Settings, ledger: PostgresLedger, refused: Sequence[Refused] = ()
) -> Estimation:
    """Estimates new jobs that are to be written as a batch, beside those that were refused."""
    planner = _Planner(Answerer(settings), ledger, batch, await ledger.history.past(batch.tenant))
    count = await planner.add_all(jobs)
    estimate = planner.estimator.result()
    return Estimation(estimate, count + len(refused), refused, planner.repeats, batch.max_cost_usd)


async def estimate_submission(
    submission: Submission,
    ledger: PostgresLedger | None,
    trial: UUID | None = None,
    on_page: Callable[[int], None] = lambda _: None,
) -> Estimation:
    """Estimates the jobs of a submission in place of writing it; raises ``InputError``.

    Args:
        submission: of which nothing but the first lines was read.
        ledger: tells what earlier calls used and which jobs are known; None: nothing is known.
        trial: a batch whose calls alone are the basis; None: the newest calls.
        on_page: receives the number of jobs so far, again and again.
    """
    intake, answerers, batch = submission.intake, submission.answerers, submission.batch
    history = await ledger.history.past(batch.tenant, trial) if ledger is not None else History()
    if ledger is not None:
        await submission.take_unchanged(ledger.contents)
    planner = _Planner(answerers.first, ledger, batch, history)
    unchanged = submission.batch.unchanged
    jobs = chain.from_iterable(submission.chunks())
    await planner.add_all((job for job in jobs if job.position not in unchanged), on_page)
    intake.warn_of_jobs(submission.warn)
    return Estimation(
        planner.estimator.result(),
        intake.lines,
        tuple(intake.refused),
        planner.repeats,
        batch.max_cost_usd,
        history=ledger is not None,
        time_left_s=_time_left_s(batch),
        unchanged=len(unchanged),
        default=answerers.first.providers.default,
        why=answerers.why,
    )


def to_json(estimation: Estimation) -> dict[str, Any]:
    """The estimate, for programs; amounts in USD are strings."""
    estimate, seconds = estimation.estimate, estimation.estimate.seconds
    return {
        "lines": estimation.lines,
        "jobs": estimate.jobs,
        "calls": estimate.calls,
        "no_call": {outcome.value: count for outcome, count in estimate.uncalled.items()},
        "unchanged": estimation.unchanged,
        "check_only": estimate.check_only,
        "known_jobs": estimation.repeats,
        "problems": dict(estimate.problems),
        "refused": [
            {"position": line.position, "where": line.place, "field": line.field, "message": line.message}
            for line in estimation.refused
        ],
        "models": [_row(row) for row in estimate.models],
        "input_tokens": _whole(estimate.input_tokens),
        "output_tokens": _whole(estimate.output_tokens),
        "cost_usd": _usd(estimate.cost_usd),
        "unknown_prices": list(estimate.unpriced),
        "largest_reservation_usd": f"{estimate.reserve_usd:f}",
        "max_cost_usd": None if estimation.max_cost_usd is None else f"{estimation.max_cost_usd:f}",
        "seconds": None if seconds is None else {name: round(value, 3) for name, value in seconds._asdict().items()},
        "bound_by": estimate.bound_by,
        "late_s": None if estimation.late_s is None else round(estimation.late_s, 3),
        "history": estimation.history,
        "default_provider": estimation.default,
        "told_by": estimation.why or None,
    }


def _row(row: ModelEstimate) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model,
        "lane": row.lane,
        "calls": row.calls,
        "input_tokens": _whole(row.input_tokens),
        "output_tokens": _whole(row.output_tokens),
        "cost_usd": _usd(row.cost_usd),
        "further_cost_usd": _usd(row.further_usd),
        "input_counted_by": row.counted_by,
        "output_from": row.output_from,
        "further_cost_from": row.further_from or None,
        "latency_s": row.latency_s and round(row.latency_s, 3),
    }


def _whole(spread: Spread) -> dict[str, int]:
    return {name: round(value) for name, value in spread._asdict().items()}


def _usd(spread: Spread | None) -> dict[str, str] | None:
    return None if spread is None else {name: f"{value:.6f}" for name, value in spread._asdict().items()}
