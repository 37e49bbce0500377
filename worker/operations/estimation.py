"""Estimates a submission or a stored batch by the code that plans its calls, without making one, and compares it with the truth."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Any, NamedTuple
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.generation import Lane
from schemas.job import JobRequest
from schemas.window import parse_window
from tasks.estimates.call_history import History, calls_in
from tasks.estimates.estimate import CallLimits, Estimate, Estimator, ModelEstimate, Spread, first_lease
from tasks.lanes.choice import LaneChooser
from tasks.ports import NewBatch, NewJob, Refused, Replay
from tasks.ports.remote_batches import BatchTimes
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.limits.rates import lane_terms, rates_of
from worker.operations.answerers import Answerer
from worker.operations.file_submission import Submission
from worker.settings import Settings

PAGE = 200
"""Jobs planned at a time."""


class Estimation(NamedTuple):
    """The estimate of an input with the lines that would be refused, and the truth of a stored batch beside it."""

    estimate: Estimate
    lines: int
    refused: Sequence[Refused] = ()
    repeats: int = 0
    """Jobs that the ledger knows by their idempotency key."""
    max_cost_usd: Decimal | None = None
    history: bool = True
    """A ledger was there to learn from."""
    truth: dict[str, Any] | None = None
    """The use of the stored batch so far, for programs; amounts in USD are strings."""
    trial_calls: int | None = None
    """Answered calls of the batch that is the basis; None: the newest calls are."""
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
        seconds = self.estimate.time.seconds
        if seconds is None or self.time_left_s is None or not self.estimate.calls:
            return None
        late_s = seconds.usual - self.time_left_s
        return late_s if late_s > 0 else None


class PlannedJob(NamedTuple):
    """A job whose calls are planned; none, if the ledger knows its ``key``."""

    job_id: UUID
    request: JobRequest
    key: str | None = None
    replay: Replay | None = None


@dataclass
class _Planner:
    answerer: Answerer
    ledger: PostgresLedger | None
    batch: NewBatch
    history: History
    at: datetime | None = None
    """Moment of the estimate; None: now."""
    repeats: int = 0

    def __post_init__(self) -> None:
        settings, providers = self.answerer.settings, self.answerer.providers
        times = _unobserved if self.ledger is None else self.ledger.remote_batches.times
        self.estimator = Estimator(
            providers,
            self.history,
            self._limits,
            settings.prompts,
            settings.judge,
            Decimal(str(settings.default_judge_share)),
            settings.judge_max_tokens,
            settings.judge_lane == "job",
            settings.slots,
            LaneChooser(providers, times, lane_terms(settings)),
        )

    def _limits(self, provider: str, model: str | None) -> CallLimits:
        rates = rates_of(self.answerer.settings, provider, model or "")
        requests, tokens_in, tokens_out, _ = rates.most
        return CallLimits(requests, tokens_in, tokens_out, rates.concurrency)

    async def add(self, page: Sequence[PlannedJob]) -> None:
        """Plans some jobs, asks the ledger once for what it knows of them, and adds them up."""
        repeats: set[str] = set()
        if self.ledger is not None and self.at is None:
            keys = [job.key for job in page if job.key]
            repeats = await self.ledger.history.known_keys(self.batch.tenant, keys)
        for job in page:
            if job.key in repeats:
                self.repeats += 1
                continue
            await self.estimator.read_lanes(job.request.config)
            lease = first_lease(job.job_id, job.request, self.batch, job.replay, self.at)
            self.estimator.add(self.estimator.forecast(lease))

    async def add_all(self, jobs: Iterable[NewJob], on_page: Callable[[int], None] = lambda _: None) -> int:
        """Plans new jobs page by page, each followed by their number so far; returns their number."""
        planned = (
            PlannedJob(job.id, JobRequest.model_validate_json(job.request), job.idempotency_key, job.replay)
            for job in jobs
        )
        count = 0
        while page := list(islice(planned, PAGE)):
            await self.add(page)
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


def _trial_calls(history: History) -> int | None:
    return calls_in([past for past in history.calls if past.answer is None]) if history.trial else None


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
    history = await ledger.history.past(batch.tenant, batch_id=trial) if ledger is not None else History()
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
        trial_calls=_trial_calls(history),
        time_left_s=_time_left_s(batch),
        unchanged=len(unchanged),
        default=answerers.first.providers.default,
        why=answerers.why,
    )


async def estimate_batch(
    batch_id: UUID, settings: Settings, ledger: PostgresLedger, trial: UUID | None = None
) -> Estimation:
    """Estimates a stored batch by what was known when it was submitted, with the truth beside it; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    history = await ledger.history.past(status.tenant, status.created_at, trial)
    batch = NewBatch(
        batch_id, status.tenant, not_before=status.not_before, window=status.window, deadline=status.deadline,
        max_cost_usd=status.max_cost_usd,
    )  # fmt: skip
    planner = _Planner(Answerer(settings), ledger, batch, history, status.created_at)
    stored = (
        PlannedJob(view.job_id, view.request)
        async for view in ledger.reading.batch_views(batch_id)
        if view.unreadable is None
    )
    async for page in in_pages(stored, PAGE):
        await planner.add(page)
    estimate = planner.estimator.result()
    return Estimation(
        estimate,
        estimate.jobs,
        max_cost_usd=status.max_cost_usd,
        truth=await _truth(ledger, status),
        trial_calls=_trial_calls(history),
    )


async def _truth(ledger: PostgresLedger, status: BatchStatus) -> dict[str, Any]:
    calls = await ledger.history.used(status.batch_id)
    return {
        "jobs": status.jobs,
        "final": status.final,
        "seconds": round(max((each.seconds for each in calls), default=0.0), 3),
        "models": [
            {**asdict(each), "cost_usd": None if each.cost_usd is None else f"{each.cost_usd:f}"} for each in calls
        ],
    }


def to_json(estimation: Estimation) -> dict[str, Any]:
    """The estimate, for programs; amounts in USD are strings."""
    estimate = estimation.estimate
    seconds = estimate.time.seconds
    return {
        "lines": estimation.lines,
        "jobs": estimate.jobs,
        "calls": estimate.calls,
        "unobserved_calls": estimate.unobserved,
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
        "cost_usd": estimate.cost_usd and _usd(estimate.cost_usd),
        "unknown_prices": list(estimate.unpriced),
        "largest_reservation_usd": f"{estimate.reserve_usd:f}",
        "max_cost_usd": None if estimation.max_cost_usd is None else f"{estimation.max_cost_usd:f}",
        "seconds": None if seconds is None else {name: round(value, 3) for name, value in seconds._asdict().items()},
        "bound_by": estimate.time.bound_by,
        "late_s": None if estimation.late_s is None else round(estimation.late_s, 3),
        "history": estimation.history,
        "default_provider": estimation.default,
        "told_by": estimation.why or None,
        "truth": estimation.truth,
    }


def _row(row: ModelEstimate) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model,
        "lane": row.lane,
        "purpose": row.purpose,
        "calls": _whole(row.calls),
        "input_tokens": _whole(row.input_tokens),
        "output_tokens": _whole(row.output_tokens),
        "cost_usd": row.cost_usd and _usd(row.cost_usd),
        "input_counted_by": row.counted_by,
        "output_from": row.output_from,
        "latency_s": row.latency_s and round(row.latency_s, 3),
    }


def _whole(spread: Spread) -> dict[str, int]:
    return {name: round(value) for name, value in spread._asdict().items()}


def _usd(spread: Spread) -> dict[str, str]:
    return {name: f"{value:.6f}" for name, value in spread._asdict().items()}
