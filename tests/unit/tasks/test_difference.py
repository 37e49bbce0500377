"""Two answers side by side: words, citations, claims and cost."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from schemas.answer import Citation
from schemas.grounding import Claim, Grounding, Verdict
from schemas.states import JobState, Outcome
from tasks.policy.difference import MOST_WORDS, Difference
from tasks.ports import JobView, Replay
from tests.builders import make_prompt, make_record, make_request, new_id
from tests.contract.situations import submit_and_take, view
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Registry, ScriptedProvider, answers
from tests.unit.tasks.test_generate import GenerateHarness


def citation(number: int, quote: str = "the words", start: int = 0) -> Citation:
    return Citation(
        source_index=number, rank=1, chunk_id=f"chunk {number}", document_id="d", quoted_text=quote, text_snippet="",
        start_pos=0, end_pos=3, source_start=start, source_end=start + len(quote), verified=True,
    )  # fmt: skip


def claim(text: str, verdict: Verdict = Verdict.SUPPORTED) -> Claim:
    return Claim(text=text, start_pos=0, end_pos=len(text), verdict=verdict)


def answered(answer: str, *claims: Claim, cost: str | None = "0.01", **record: Any) -> JobView:
    """A final job with this answer."""

    async def work() -> JobView:
        ledger = LentLedger()
        job = await submit_and_take(ledger)
        grounding = Grounding(grounding_score=1.0, claims=claims)
        record_of_job = make_record(job, answer=answer, grounding=grounding, **record)
        final = replace(
            await view(ledger, job.job_id),
            state=JobState.COMPLETED,
            outcome=Outcome.ANSWERED,
            finished_at=job.created_at,
        )
        return replace(final, record=record_of_job, cost_usd=None if cost is None else Decimal(cost))

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The desk opens at nine.", "The desk opens at ten."),
        ("\n\n- A list", "  - A list "),
        ("One\n\nTwo  three", "Two three four"),
        ("word " * (MOST_WORDS + 10), "word " * (MOST_WORDS + 9) + "end."),
        ("".join(f"Satz {n}. " for n in range(MOST_WORDS)), "".join(f"Satz {n}.\n" for n in range(9, MOST_WORDS))),
    ],
)
def test_the_pieces_make_up_both_texts(before: str, after: str) -> None:
    difference = Difference.of(answered(before), answered(after))

    assert "".join(text for kind, text in difference.words if kind != "added") == before
    assert "".join(text for kind, text in difference.words if kind != "removed") == after
    assert all(text for _, text in difference.words)
    assert difference.differs


def test_citations_are_the_same_by_source_and_span_and_each_counts_once() -> None:
    before = answered("A", citations=(citation(0), citation(0), citation(1)))
    after = answered("A", citations=(citation(1), citation(0), citation(0, start=5)))
    difference = Difference.of(before, after)

    assert difference.common_citations == 2
    assert difference.former_citations == [citation(0)]
    assert difference.new_citations == [citation(0, start=5)]
    assert difference.differs


def test_claims_are_paired_by_text_and_listed_where_text_or_verdict_differs() -> None:
    stable, former = claim("It opens at nine."), claim("It closes.", Verdict.UNSUPPORTED)
    other = claim("It  opens at nine.", Verdict.CONTRADICTED)
    difference = Difference.of(answered("A", stable, stable, former), answered("A", stable, other, claim("New.")))

    assert difference.claims == [(stable, other), (former, None), (None, claim("New."))]
    assert difference.second.verdicts == {Verdict.SUPPORTED: 2, Verdict.CONTRADICTED: 1}


def test_equal_answers_do_not_differ_whatever_they_cost() -> None:
    fields: dict[str, Any] = {"citations": (citation(0),), "messages_snapshot": make_prompt().snapshot}
    before, after = (answered("A [1].", claim("A."), cost=cost, **fields) for cost in ("0.01", "0.004"))
    difference = Difference.of(before, after)

    assert (difference.differs, difference.same_messages, difference.more_usd) == (False, True, Decimal("-0.006"))
    unknown = Difference.of(before, replace(after, cost_usd=None, outcome=None))
    assert (unknown.more_usd, unknown.second.view.ending, unknown.differs) == (None, "completed", True)


async def test_stored_messages_that_do_not_give_their_hash_are_not_sent() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider))
    prompt = make_prompt(source="Words that no source of the request has, and more than there are of its own.")
    after = await harness.generate(replace(await harness.lease(make_request()), replay=Replay(new_id(), prompt)))

    assert provider.calls == []
    assert after.record is not None
    assert "no longer give the recorded hash" in (after.record.error_message or "")
