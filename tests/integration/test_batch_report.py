"""The report of a batch over PostgreSQL: its figures, and a page on which text from outside stays text."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from decimal import Decimal
from functools import partial
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.grounding import Claim, Evidence, Grounding, Verdict
from schemas.model_call import Usage
from schemas.record import TimingMs
from schemas.states import Outcome, Step
from tasks.errors import NotFound
from tasks.ports import Refused
from tests.builders import (
    closed_ok,
    make_answer,
    make_attempt,
    make_batch,
    make_completion,
    make_failed,
    make_final,
    make_jobs,
    make_record,
    make_request,
    to_check,
)  # fmt: skip
from tests.contract.situations import submit, take
from tests.lent_ledger import KeptLedger
from worker.ledger.postgres import PostgresLedger
from worker.operations.batch_report import Report, collect, document
from worker.operations.overview import batch_overview, failure_lines
from worker.operations.report_page import page

HOSTILE = (
    "\u202e\x1b[2J</style><script>alert('x')</script><img src=https://evil.example/a onerror=alert(1)>\"'&{{ 7 * 7 }}"
)
SOURCE = f"The desk opens at nine. {HOSTILE} The porter has the key."
USAGE = Usage(input_tokens=90, output_tokens=40, cached_input_tokens=45)


def scenario(database_url: str, work: Callable[[PostgresLedger], Awaitable[Report]]) -> Report:
    async def run() -> Report:
        async with KeptLedger(database_url) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def grounding(score: float, *wrong: Verdict) -> Grounding:
    claims = tuple(
        Claim(
            text=f"It opens at ten. {HOSTILE}",
            start_pos=0,
            end_pos=5,
            verdict=verdict,
            unaccounted=("ten",) if verdict is Verdict.UNDECIDED else (),
            reason=HOSTILE,
            evidence=(Evidence(source_index=0, start=4, end=17),),
        )
        for verdict in wrong
    )
    counts = {verdict: wrong.count(verdict) for verdict in wrong}
    return Grounding(grounding_score=score, claims=claims, counts=counts)


async def night(ledger: PostgresLedger, *, worst: int = 20, unpriced: Collection[int] = ()) -> Report:
    """Four jobs: two answers without fault, one that is contradicted, one failure; and one that is not final.

    A line of the input is no job, and the calls of some jobs have no price.
    """
    requests = [make_request(f"Question {number}? {HOSTILE}", context=[SOURCE]) for number in range(5)]
    jobs = [make_jobs(*requests)]
    receipt = await ledger.submission.submit(
        make_batch(name=HOSTILE), jobs, refused=[Refused(5, "no 'query'", "query")]
    )
    leased = await take(ledger, receipt.job_ids[:4])
    for position, job in enumerate(leased):
        attempt = make_attempt(job, provider="house", model="m-1")
        await ledger.attempts.open_attempts([attempt])
        price = None if position in unpriced else Decimal("0.002")
        answer = replace(make_answer(), completion=make_completion(usage=USAGE, cost_usd=price))
        await ledger.attempts.close_attempts([closed_ok(job, attempt, answer=answer, then=to_check(job))])
    checked = await take(ledger, receipt.job_ids[:4], Step.CHECK)
    checks = [
        grounding(1),
        grounding(1),
        grounding(0.5, Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.CONTRADICTED),
    ]
    for job, check in zip(checked[:3], checks, strict=True):
        record = make_record(
            job,
            grounding=check,
            prompt_name="grounded",
            prompt_version="2",
            model_provider="house",
            model_name="m-1",
            timing_ms=TimingMs(llm=1000 * (job is checked[0]) + 500, total=2000),
            answer=HOSTILE,
        )
        await ledger.queue.finish(
            [make_final(job, record=record, outcome=Outcome.PARTIAL if check.claims else Outcome.ANSWERED)]
        )
    await ledger.queue.finish([make_failed(checked[3], FailureKind.BAD_ANSWER)])
    assert receipt.batch_id is not None
    return await collect(ledger, receipt.batch_id, worst=worst)


def test_the_failures_of_a_batch_are_told_by_cause_with_the_command_that_helps(database_url: str) -> None:
    lines: list[str] = []

    async def look(ledger: PostgresLedger) -> Report:
        report = await night(ledger)
        status = (await batch_overview(ledger, report.status.batch_id)).batches[0]
        assert status.failures is not None
        lines.extend(failure_lines(status.batch_id, status.failures))
        return report

    batch_id = scenario(database_url, look).status.batch_id
    assert lines[0].startswith(f"1 job failed (bad_answer), such as {batch_id}:line4: ")
    assert lines[1].endswith(f": nightdesk retry {batch_id} --cause bad_answer")


def test_the_figures_count_each_job_and_call_once(database_url: str) -> None:
    report = scenario(database_url, night)
    content = document(report)

    assert sum(row["jobs"] for row in content["throughput"]) == 4
    assert {row["ending"]: row["jobs"] for row in content["throughput"]}.keys() == {"answered", "partial", "failed"}
    (call,) = content["calls"]
    assert (call["provider"], call["model"], call["lane"], call["purpose"]) == ("house", "m-1", "standard", "generate")
    assert (call["calls"], call["input_tokens"], call["cached_tokens"], call["output_tokens"]) == (4, 360, 180, 160)
    (llm,) = [row for row in content["latency_ms"] if row["part"] == "llm"]
    assert (llm["jobs"], llm["p50"]) == (3, 500)
    assert llm["p95"] == pytest.approx(1400)
    scores = {(row["name"], row["bin"]): row["jobs"] for row in content["scores"]}
    assert scores == {
        ("grounding", 20): 2,
        ("grounding", 11): 1,
        ("decided", 14): 1,
    }
    (failure,) = content["failures"]
    assert (failure["kind"], failure["jobs"], failure["position"]) == ("bad_answer", 1, 3)
    (variant,) = content["variants"]
    assert (variant["prompt_version"], variant["jobs"], variant["answered"]) == ("2", 3, 2)
    assert variant["answered_share"]["low"] < 2 / 3 < variant["answered_share"]["high"]


def test_an_unknown_price_is_no_0_and_no_interval_leaves_its_scale(database_url: str) -> None:
    def variant(unpriced: set[int]) -> tuple[dict[str, Any], str]:
        content = document(scenario(database_url, partial(night, unpriced=unpriced)))
        (row,) = content["variants"]
        return row, page(content)

    row, html = variant({0})
    assert (row["priced"], row["cost_usd"]) == (2, {"value": 0.002, "low": 0.002, "high": 0.002})
    assert row["grounding"]["high"] <= 1
    assert "<dd>0.006 USD and 1 job of unknown price</dd>" in html
    assert "1 of unknown price</span>" in html
    assert "<p>1 line was not valid and made no job" in html
    row, html = variant({0, 1, 2, 3})
    assert row["cost_usd"] is None
    assert "<dd>unknown for 4 jobs</dd>" in html
    assert "0.00 USD" not in html
    row, _ = variant({0, 1})
    assert row["cost_usd"] == {"value": 0.002, "low": None, "high": None}, "one price tells nothing of the others"


def test_the_line_of_a_job_finds_it(database_url: str) -> None:
    ids: list[UUID] = []

    async def look(ledger: PostgresLedger) -> Report:
        report = await night(ledger)
        batch_id = report.status.batch_id
        ids.extend([await ledger.reading.locate(batch_id, name) for name in ("line4", "line 4", "3")])
        with pytest.raises(NotFound):
            await ledger.reading.locate(batch_id, "line0")
        return report

    report = scenario(database_url, look)
    assert len(set(ids)) == 1
    assert f"{report.status.batch_id}:line4)" in page(document(report))


def test_the_worst_answer_has_its_claims_at_their_span_of_the_source(database_url: str) -> None:
    (worst,) = document(scenario(database_url, night))["worst"]

    assert [claim["verdict"] for claim in worst["claims"]] == ["contradicted", "undecided"]
    assert worst["claims"][1]["unaccounted"] == ("ten",)
    (span,) = worst["claims"][0]["spans"]
    assert (span["before"], span["span"]) == ("The ", "desk opens at")
    assert span["before"] + span["span"] + span["after"] == SOURCE


class Elements(HTMLParser):
    """The elements of a page with all that they name, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_text_from_outside_stays_text_on_the_page(database_url: str) -> None:
    html = page(document(scenario(database_url, night)))
    elements = Elements()
    elements.feed(html)

    assert not elements.names & {"script", "img", "link", "iframe", "object", "a", "form"}
    assert not {name for name in elements.attributes if name.startswith("on")} | elements.attributes & {
        "src",
        "href",
        "style",
    }
    # In the title, the heading, the question, the answer, a claim, its reason and the source.
    words = HOSTILE.replace("\u202e", "[U+202E]").replace("\x1b", "[U+001B]")
    assert "".join(elements.text).count(words) >= 7
    assert not {"\u202e", "\x1b"} & {*html}
    assert html.count("<style>") == 1
    assert re.search(r"default-src &#39;none&#39;; style-src &#39;sha256-", html)


def test_a_batch_without_a_final_job_has_a_page_that_says_so(database_url: str) -> None:
    async def work(ledger: PostgresLedger) -> Report:
        receipt = await submit(ledger, make_request())
        assert receipt.batch_id is not None
        return await collect(ledger, receipt.batch_id, worst=5)

    html = page(document(scenario(database_url, work)))
    assert "1 of 1 jobs are not final yet" in html
    assert "No final answer has a claim that lacks support." in html
