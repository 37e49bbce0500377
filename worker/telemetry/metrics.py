"""Names all metrics of Nightdesk, each with its help, its labels and, for a histogram, its buckets.

Labels are bounded: names of this program, providers, lanes, and models up to a number. No label holds a job, a tenant or a
text of a producer; the name of a batch is one of the few that are under way.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kind of a metric, as Prometheus has it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``name`` is the family's, so that the samples of a counter end in ``_total``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples, as queries have them."""
        if self.kind is Kind.COUNTER:
            return (f"{self.name}_total",)
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
CALL_S = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 3600, 86_400)
"""To a day: a call of the lane ``provider_batch`` takes hours."""
PART_S = (0.005, 0.025, 0.1, 0.5, 2, 8, 30, 120, 600, 3600, 14_400, 86_400)
SCORE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

# ---- each process of nightdesk serve, for itself ----

HTTP_REQUESTS = Metric(
    "nightdesk_http_requests", Kind.COUNTER, "Answers by route, method and status", ("route", "method", "status")
)
HTTP_SECONDS = Metric(
    "nightdesk_http_request_seconds", Kind.HISTOGRAM, "Time to the end of an answer, waits of polls included", ("route",),
    REQUEST_S,
)  # fmt: skip
HTTP_OPEN = Metric("nightdesk_http_requests_open", Kind.GAUGE, "Requests under way")
LEDGER_UP = Metric("nightdesk_ledger_up", Kind.GAUGE, "1 if the ledger could be read")
LEDGER_READ_SECONDS = Metric("nightdesk_ledger_read_seconds", Kind.GAUGE, "Time to read the figures of the ledger")
REDIS_UP = Metric("nightdesk_redis_up", Kind.GAUGE, "1 if Redis answers this process")

# ---- of the ledger as it stands, the same from each process ----

JOBS = Metric("nightdesk_jobs", Kind.GAUGE, "Jobs of all batches", ("state", "outcome", "held_reason"))
AVAILABLE = Metric("nightdesk_jobs_available", Kind.GAUGE, "Jobs that a worker may take, up to 10,000", ("step",))
QUEUE_AGE = Metric(
    "nightdesk_queue_age_seconds",
    Kind.GAUGE,
    "Age of the oldest of the next 10,000 jobs that a worker may take",
    ("step",),
)
FINDINGS = Metric("nightdesk_findings", Kind.GAUGE, "Faults, as nightdesk doctor counts them", ("kind",))
WORKERS = Metric(
    "nightdesk_workers",
    Kind.GAUGE,
    "Workers seen within 20 seconds, by the step they serve; `urgent`: of urgent jobs alone",
    ("step",),
)
WORKING = Metric("nightdesk_workers_with_jobs", Kind.GAUGE, "Workers that hold a lease")
LANES_PAUSED = Metric("nightdesk_lanes_paused", Kind.GAUGE, "Lanes without calls", ("provider", "lane", "cause"))
LANES_UNSERVED = Metric(
    "nightdesk_lanes_unserved", Kind.GAUGE, "Lanes whose calls wait for a worker with the key", ("provider", "lane")
)
UNREACHABLE = Metric("nightdesk_providers_unreachable", Kind.GAUGE, "Providers without a connection", ("provider",))
LED = Metric("nightdesk_duties_led", Kind.GAUGE, "1 if a worker leads the duties of dispatch")
LEADER_BROKER = Metric("nightdesk_leader_reaches_redis", Kind.GAUGE, "1 if the worker that leads reaches Redis")
CHECK_BEHIND = Metric("nightdesk_check_behind", Kind.GAUGE, "1 while generating waits for the check")
BATCH_JOBS = Metric("nightdesk_batch_jobs", Kind.GAUGE, "Jobs of the newest 20 batches under way", ("batch", "name"))
BATCH_FINAL = Metric("nightdesk_batch_jobs_final", Kind.GAUGE, "Final jobs of the same batches", ("batch", "name"))

# ---- of all workers together: they add them up in the ledger ----

FINISHED = Metric(
    "nightdesk_jobs_finished", Kind.COUNTER, "Jobs that workers ended, by outcome or cause of failure",
    ("state", "outcome", "cause"),
)  # fmt: skip
EDGES = Metric("nightdesk_job_edges", Kind.COUNTER, "Jobs sent back after a call: retry, snooze, hold", ("event",))
JOB_SECONDS = Metric("nightdesk_job_seconds", Kind.HISTOGRAM, "Time of a job by part", ("part",), PART_S)
CALLS = Metric(
    "nightdesk_calls", Kind.COUNTER, "Calls of providers, by outcome: ok, unknown or the kind of failure",
    ("provider", "model", "lane", "purpose", "outcome"),
)  # fmt: skip
CALL_SECONDS = Metric(
    "nightdesk_call_seconds", Kind.HISTOGRAM, "Time of an answered call", ("provider", "model", "lane"), CALL_S
)
CALL_TOKENS = Metric(
    "nightdesk_call_tokens",
    Kind.COUNTER,
    "Tokens of calls; cached ones are among the input",
    ("provider", "model", "kind"),
)
CALL_COST = Metric(
    "nightdesk_call_cost_usd", Kind.COUNTER, "Cost of calls in US dollars", ("provider", "model", "lane")
)
UNPRICED = Metric("nightdesk_calls_unpriced", Kind.COUNTER, "Answered calls of unknown cost", ("provider", "model"))
PERMIT_SECONDS = Metric(
    "nightdesk_permit_wait_seconds", Kind.HISTOGRAM, "Wait of a call for its permit", ("provider",), PART_S
)
SHARED = Metric("nightdesk_shared_answers", Kind.COUNTER, "Calls saved by the answer of an identical one")
CLAIMS = Metric("nightdesk_claims", Kind.COUNTER, "Checked claims and values, by verdict", ("verdict",))
GROUNDING = Metric(
    "nightdesk_grounding_score", Kind.HISTOGRAM, "Share of checkable claims that are supported", (), SCORE
)
RESCUES = Metric("nightdesk_rescues", Kind.COUNTER, "Jobs taken from workers that stopped renewing")
EXPIRED = Metric("nightdesk_jobs_expired", Kind.COUNTER, "Jobs that met their deadline")
DROPPED = Metric("nightdesk_observations_dropped", Kind.COUNTER, "Jobs and calls that a worker could not count")

PROCESS = (HTTP_REQUESTS, HTTP_SECONDS, HTTP_OPEN, LEDGER_UP, LEDGER_READ_SECONDS, REDIS_UP)
LEDGER = (
    JOBS, AVAILABLE, QUEUE_AGE, FINDINGS, WORKERS, WORKING, LANES_PAUSED, LANES_UNSERVED, UNREACHABLE, LED,
    LEADER_BROKER, CHECK_BEHIND, BATCH_JOBS, BATCH_FINAL,
)  # fmt: skip
TOTALS = (
    FINISHED, EDGES, JOB_SECONDS, CALLS, CALL_SECONDS, CALL_TOKENS, CALL_COST, UNPRICED, PERMIT_SECONDS, SHARED, CLAIMS,
    GROUNDING, RESCUES, EXPIRED, DROPPED,
)  # fmt: skip
ALL = (*PROCESS, *LEDGER, *TOTALS)
