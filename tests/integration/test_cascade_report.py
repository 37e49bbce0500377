"""A cascade over PostgreSQL: the record of each job, and what the report says that each model bought."""

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from schemas.states import FINAL_STATES, Outcome, Step
from tasks.ports import JobView
from tests.builders import make_batch, make_jobs
from tests.lent_ledger import KeptLedger
from tests.scripted_provider import ScriptedProvider, answers
from tests.unit.tasks.test_cascade import CascadeHarness
from tests.unit.tasks.test_rounds import BAD, GOOD, record_of, requesting
from worker.operations.batch_report import collect, document
from worker.operations.report_page import page

STRONG_USD = Decimal("0.03")


@dataclass
class Night(CascadeHarness):
    """A batch of jobs, taken from step to step until all are final."""

    ledger: Any = None
    views: list[JobView] = field(default_factory=list)

    async def pass_through(self, *jobs: Any) -> dict[str, Any]:
        receipt = await self.ledger.submission.submit(make_batch(), [make_jobs(*jobs)])
        self.job_ids = receipt.job_ids
        while not all(view.state in FINAL_STATES for view in await self.ledger.reading.views(self.job_ids)):
            for step, work in ((Step.GENERATE, self.generate), (Step.CHECK, self.check)):
                while job := await self.lease(step):
                    await work(job)
        self.views = list(await self.ledger.reading.views(self.job_ids))
        return document(await collect(self.ledger, receipt.batch_id, worst=0))


def test_the_report_says_what_each_model_bought(database_url: str) -> None:
    # Good at once; repaired by the strong model; better, but not good; no better.
    weak = [answers(GOOD), answers(f"{GOOD} {BAD}"), answers(f"{BAD} {BAD}"), answers(f"{GOOD} {BAD}")]
    strong = [
        answers(text, cost_usd=STRONG_USD) for text in (GOOD, f"{GOOD} {BAD}", f"{BAD} {BAD}")
    ]  # fmt: skip

    async def work() -> tuple[dict[str, Any], list[JobView]]:
        async with KeptLedger(database_url) as ledger:
            models = (ScriptedProvider(*weak), ScriptedProvider(*strong, name="strong", model="strong-1"))
            night = Night(models[0], stronger=models[1:], ledger=ledger)
            return await night.pass_through(*[requesting(escalate=["strong"])] * 4), night.views

    content, views = asyncio.run(work())

    assert sorted((view.outcome or "", view.round) for view in views) == [
        (Outcome.ANSWERED, 0), (Outcome.ANSWERED, 2), (Outcome.PARTIAL, 0), (Outcome.PARTIAL, 2)
    ]  # fmt: skip
    weak_wins = next(view for view in views if (view.outcome, view.round) == (Outcome.PARTIAL, 0))
    assert [(ask.level, ask.won, ask.cost_usd) for ask in record_of(weak_wins).asks or ()] == [
        (0, True, Decimal("0.002")), (1, False, STRONG_USD)
    ]  # fmt: skip
    first, second = content["levels"]
    assert (first["jobs"], first["won"], first["answered"], first["cost_usd"]) == (4, 2, 1, Decimal("0.008"))
    assert (second["models"], second["jobs"], second["won"]) == (["strong:strong-1"], 3, 2)
    assert (second["newly_answered"], second["cost_usd"], second["usd_each"]) == (1, 3 * STRONG_USD, 3 * STRONG_USD)
    assert (second["ungrounded_before"], second["ungrounded"]) == (2, 1)
    html = page(content)
    assert "<h2>Cascade: what each further model bought</h2>" in html
    assert "strong:strong-1" in html
