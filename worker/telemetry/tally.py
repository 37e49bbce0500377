"""Adds up what the workers' jobs and calls were, for the metrics of all workers together."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from tasks.ports import CacheResult, ClosedAttempt, FinalFacts, Observation
from worker.ledger.metric_totals import Total
from worker.telemetry import metrics
from worker.telemetry.metrics import Metric

Series = tuple[str, tuple[str, ...]]
"""Name of a sample and the values of its labels; the last one of a bucket is its upper bound."""

MOST_MODELS = 100
"""Models that have series of their own, over all processes: the first that answer."""
OTHER = "other"

NO_BOUND = "+Inf"


class Tally:
    """Sums since they were last taken, by series."""

    def __init__(self) -> None:
        self._sums: defaultdict[Series, float] = defaultdict(float)
        self._models: set[str] = set()

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter."""
        self._sums[f"{metric.name}_total", labels] += by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Adds a value to a histogram; its buckets are kept one by one, not each with those below."""
        at = bisect_left(metric.buckets, value)
        bound = str(float(metric.buckets[at])) if at < len(metric.buckets) else NO_BOUND
        self._sums[f"{metric.name}_bucket", (*labels, bound)] += 1
        self._sums[f"{metric.name}_sum", labels] += value

    def add(self, observation: Observation) -> None:
        """Adds what became of a job or a call."""
        if isinstance(observation, FinalFacts):
            self._add_job(observation)
        elif isinstance(observation, ClosedAttempt):
            self._add_call(observation)
        elif isinstance(observation, CacheResult):
            self.count(metrics.SHARED)

    def take(self) -> dict[Series, float]:
        """The sums, which begin again."""
        sums, self._sums = self._sums, defaultdict(float)
        return dict(sums)

    def restore(self, sums: dict[Series, float]) -> None:
        """Adds sums again that could not be stored."""
        for series, value in sums.items():
            self._sums[series] += value

    def _add_job(self, job: FinalFacts) -> None:
        self.count(metrics.FINISHED, job.state.value, job.outcome.value if job.outcome else "", job.failure_kind or "")
        for part, ms in job.timing_ms.items():
            self.observe(metrics.JOB_SECONDS, ms / 1000, part)
        for verdict, claims in (job.claims or {}).items():
            self.count(metrics.CLAIMS, verdict, by=claims)
        if job.grounding_score is not None:
            self.observe(metrics.GROUNDING, job.grounding_score)

    def _add_call(self, closed: ClosedAttempt) -> None:
        if closed.then is not None and closed.then.event is not None:
            self.count(metrics.EDGES, closed.then.event)
        if (facts := closed.facts) is None:
            return
        outcome = closed.outcome.removeprefix("error:")
        provider, model = facts.provider, self._model(facts.model or "", answers=outcome == "ok")
        self.count(metrics.CALLS, provider, model, facts.lane, facts.purpose.value, outcome)
        self.observe(metrics.PERMIT_SECONDS, facts.permit_wait_ms / 1000, provider)
        if closed.cost_usd:
            self.count(metrics.CALL_COST, provider, model, facts.lane, by=float(closed.cost_usd))
        if outcome != "ok" or closed.answer is None:
            return
        if closed.cost_usd is None:
            self.count(metrics.UNPRICED, provider, model)
        self.observe(metrics.CALL_SECONDS, facts.ms / 1000, provider, model, facts.lane)
        for kind, tokens in closed.answer.completion.usage or ():
            if tokens:
                self.count(metrics.CALL_TOKENS, provider, model, kind.removesuffix("_tokens"), by=tokens)

    def know(self, totals: Iterable[Total]) -> None:
        """Takes over the models that have series already, of other processes and of those before."""
        answered = f"{metrics.CALL_SECONDS.name}_sum"
        self._models.update(total.labels[1] for total in totals if total.name == answered)

    def _model(self, model: str, *, answers: bool) -> str:
        if model not in self._models:
            # Jobs may ask for any number of names that nobody has.
            if not answers or len(self._models) >= MOST_MODELS:
                return OTHER
            self._models.add(model)
        return model
