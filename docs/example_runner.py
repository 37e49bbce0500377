"""Runs the examples of the pages: each job goes through steps, adapters and real SDKs, and a stub answers as its script says."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from docs.formats import CONTEXT
from schemas.job import JobRequest
from schemas.record import JobResult
from schemas.states import FINAL_STATES, Step
from tasks.check import Check
from tasks.generate import Generate
from tasks.ports import JobDetail, Leased
from tasks.results import result_of
from tasks.submit import new_batch, new_job
from tests.fakes.inline import Inline
from tests.fakes.quiet import paid_calls
from tests.lent_ledger import LentLedger
from tests.stub import faults
from tests.stub.scripts import SCRIPTS, Piece, Script
from tests.stub.server import Stub
from worker.process.journal import LedgerJournal
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

QUESTION = "How long is the notice period for tenant and landlord, and how much may the rent rise?"

KEY = "no-key-at-all"
LEASE = timedelta(minutes=10)
"""Long, because a first import of the SDKs on a busy machine stops the loop for half a minute."""


def spaced(*script: Piece) -> Script:
    """Sentences as running text and cited blocks have them: a space before each but the first."""
    return tuple(Piece(f" {piece.text}" if at else piece.text, piece.citations) for at, piece in enumerate(script))


@dataclass
class ExampleRunner:
    """The steps over a ledger in memory, with the providers of some settings; those over HTTP call the stub."""

    stub: Stub
    ledger: LentLedger = field(default_factory=LentLedger)

    def providers(self) -> ConfiguredProviders:
        """The offline provider, both makers and a compatible server, all of them at the stub."""
        settings = Settings(
            home=Path(__file__).parent,
            provider="extractive",
            fallbacks=(),
            providers={"mine": {"kind": "openai_chat", "base_url": f"{self.stub.url}/v1", "model": "any"}},
        )
        urls = {"OPENAI_BASE_URL": f"{self.stub.url}/v1", "ANTHROPIC_BASE_URL": self.stub.url}
        return ConfiguredProviders(settings, {**urls, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY})

    async def answer(
        self, query: str = QUESTION, context: Sequence[Any] = CONTEXT, **request: Any
    ) -> tuple[JobResult, JobDetail]:
        """Takes one job from its submission to its end."""
        request_model = JobRequest(query=query, context=context, **request)
        (job_id,) = (
            await self.ledger.submission.submit(
                new_batch(None, tenant="docs"), [[new_job(request_model, position=0, tenant="docs")]]
            )
        ).job_ids
        providers, journal = self.providers(), LedgerJournal(self.ledger)
        calls = paid_calls(journal)
        generate = Generate(self.ledger.queue, journal, calls, providers, to_check=lambda _: None)
        check = Check(self.ledger.queue, journal, Inline())
        while job := await self.lease(Step.GENERATE) or await self.lease(Step.CHECK):
            await (generate.run(job) if job.step is Step.GENERATE else check.run(job))
        await journal.close()
        await providers.close()
        detail = await self.ledger.reading.job_detail(job_id)
        if detail.view.state not in FINAL_STATES:
            raise RuntimeError(f"{query!r} is {detail.view.state}: {detail.attempts}")
        return result_of(detail.view), detail

    async def lease(self, step: Step) -> Leased | None:
        """Leases the job of a step, if it is due."""
        await self.ledger.duties.promote(10)
        return next((job.read() for job in await self.ledger.queue.lease(step, "docs", LEASE, 1)), None)


@contextmanager
def scripted(*script: Piece, on: str = QUESTION) -> Iterator[None]:
    """Makes the stub answer a question with the script, in the requested form."""
    SCRIPTS[on] = script
    try:
        yield
    finally:
        del SCRIPTS[on]


def writes(*script: Piece, data: dict[str, Any] | None = None) -> faults.Act:
    """One answer of the server ``mine``, in segments, with the object beside it if there is one."""
    segments = [{"text": s.text, "citations": [{"source": n, "quote": q} for n, q in s.citations]} for s in script]
    answer_json = {"sufficient": True, "segments": segments, **({} if data is None else {"data": data})}

    def change(answer: dict[str, Any]) -> None:
        answer["choices"][0]["message"]["content"] = json.dumps(answer_json)

    return faults.changed(change)
