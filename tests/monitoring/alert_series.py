"""Series that let each alert fire, and then let it resolve, in the notation of promtool."""

from dataclasses import dataclass

MINUTES = 120
"""Length of each phase: longer than all windows and waits of the rules."""


@dataclass(frozen=True)
class Sample:
    """A series with its values a minute while the fault lasts, and after it."""

    series: str
    fault: str
    well: str


@dataclass(frozen=True)
class Case:
    """The samples of one alert, and the labels with which it fires."""

    alert: str
    labels: dict[str, str]
    samples: tuple[Sample, ...]


def level(series: str, fault: float, well: float) -> Sample:
    """A gauge: one value with the fault, another without it."""
    return Sample(series, f"{fault}x{MINUTES}", f"{well}x{MINUTES}")


def growth(series: str, fault: float, well: float) -> Sample:
    """A counter that grows by so much a minute."""
    end = fault * MINUTES
    return Sample(series, f"0+{fault}x{MINUTES}", f"{end + well}+{well}x{MINUTES - 1}")


def _calls(provider: str, outcome: str) -> str:
    return f'nightdesk_calls_total{{provider="{provider}", model="m", lane="standard", purpose="generate", outcome="{outcome}"}}'


_FAILED = 'nightdesk_jobs_finished_total{state="failed", outcome="", cause="bad_answer"}'
_DONE = 'nightdesk_jobs_finished_total{state="completed", outcome="answered", cause=""}'

CASES = (
    Case("NightdeskServiceAway", {}, (Sample("nightdesk_ledger_up", f"_x{MINUTES}", f"1x{MINUTES}"),)),
    Case("NightdeskLedgerAway", {}, (level("nightdesk_ledger_up", 0, 1),)),
    Case("NightdeskRedisAway", {}, (level("nightdesk_redis_up", 0, 1),)),
    Case(
        "NightdeskNoWorkers", {"step": "generate"},
        (level('nightdesk_jobs_available{step="generate"}', 5, 5), level('nightdesk_workers{step="generate"}', 0, 1)),
    ),
    Case(
        "NightdeskDutiesNotLed", {},
        (level("nightdesk_duties_led", 0, 1), level('nightdesk_jobs{state="scheduled", outcome="", held_reason=""}', 4, 4)),
    ),
    Case("NightdeskQueueOld", {"step": "check"}, (level('nightdesk_queue_age_seconds{step="check"}', 3_601, 30),)),
    Case("NightdeskCheckBehind", {}, (level("nightdesk_check_behind", 1, 0),)),
    Case(
        "NightdeskJobsHeld", {"held_reason": "budget"},
        (level('nightdesk_jobs{state="scheduled", outcome="", held_reason="budget"}', 7, 0),),
    ),
    Case(
        "NightdeskLanePaused", {"provider": "openai", "lane": "standard", "cause": "quota"},
        (level('nightdesk_lanes_paused{provider="openai", lane="standard", cause="quota"}', 1, 0),),
    ),
    Case(
        "NightdeskLaneUnserved", {"provider": "openai", "lane": "provider_batch"},
        (level('nightdesk_lanes_unserved{provider="openai", lane="provider_batch"}', 1, 0),),
    ),
    Case(
        "NightdeskProviderUnreachable", {"provider": "openai"},
        (level('nightdesk_providers_unreachable{provider="openai"}', 1, 0),),
    ),
    Case(
        "NightdeskProviderFailing", {"provider": "openai"},
        (growth(_calls("openai", "ok"), 30, 30), growth(_calls("openai", "overloaded"), 10, 1)),
    ),
    Case(
        "NightdeskRateLimited", {"provider": "openai"},
        (growth(_calls("openai", "ok"), 30, 30), growth(_calls("openai", "rate_limited"), 20, 1)),
    ),
    Case(
        "NightdeskUnknownOutcomes", {"provider": "openai"},
        (growth(_calls("openai", "ok"), 900, 900), growth(_calls("openai", "unknown"), 2, 0)),
    ),
    Case("NightdeskJobsFailing", {}, (growth(_DONE, 30, 30), growth(_FAILED, 10, 1))),
    Case("NightdeskJobsExpire", {}, (growth("nightdesk_jobs_expired_total", 1, 0),)),
    Case("NightdeskWorkersLost", {}, (growth("nightdesk_rescues_total", 1, 0),)),
    Case(
        "NightdeskClaimsUnsupported", {},
        (
            growth('nightdesk_claims_total{verdict="supported"}', 10, 40),
            growth('nightdesk_claims_total{verdict="contradicted"}', 9, 1),
        ),
    ),
    Case("NightdeskFindings", {"kind": "stuck"}, (level('nightdesk_findings{kind="stuck"}', 1, 0),)),
    Case(
        "NightdeskServiceErrors", {},
        (
            growth('nightdesk_http_requests_total{route="/v1/jobs", method="POST", status="200"}', 40, 40),
            growth('nightdesk_http_requests_total{route="/v1/jobs", method="POST", status="503"}', 10, 0),
        ),
    ),
    Case("NightdeskCountsIncomplete", {}, (growth("nightdesk_observations_dropped_total", 1, 0),)),
)  # fmt: skip
