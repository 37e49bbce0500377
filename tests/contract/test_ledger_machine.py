"""Random lives of jobs: any order of verbs, crashes and late answers keeps every invariant, and no job is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schemas.failure import FailureKind
from schemas.job import Recheck
from schemas.model_call import Correction, FinishReason
from schemas.states import HeldReason, JobState, Step
from tasks.ports import Advance, ClosedAttempt, Leased, NewAttempt, Opened
from tests.builders import (
    closed_error,
    closed_ok,
    closed_unknown,
    later,
    lease_key,
    make_answer,
    make_attempt,
    make_batch,
    make_failed,
    make_final,
    make_jobs,
    make_request,
    make_terms,
    make_wanted,
    new_id,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import ACTOR, LEASE, SECOND
from worker.ledger.postgres import PostgresLedger

T = TypeVar("T")
ALL = 1_000
WORKERS = ("w1", "w2")
HOW = ("ok", "ok", "ok", "stay", "retry", "snooze", "hold", "unknown")
picks = st.integers(0, 3)
masks = st.integers(1, 63)
prices = st.sampled_from([None, "0", "0.05", "0.3"])


@dataclass
class Call:
    """An attempt, and the lease that it was opened under."""

    leased: Leased
    attempt: NewAttempt
    open: bool = True

    def ending(self, how: str, cost_usd: str | None) -> ClosedAttempt:
        """An end of it, which costs no more than it reserved."""
        leased, attempt = self.leased, self.attempt
        reserved = attempt.reserved_usd or Decimal(0)
        answer = make_answer(f"answer {attempt.number}", cost_usd=cost_usd and min(Decimal(cost_usd), reserved))
        again = later(leased, delay=30 * SECOND, event="retry")
        if how in {"ok", "stay"}:
            next_round = Advance(state=JobState.AVAILABLE, step=Step.GENERATE, round=leased.round + 1)
            then = to_check(leased) if leased.step is Step.GENERATE else next_round
            return closed_ok(leased, attempt, answer=answer, then=then if how == "ok" else None)
        if how == "unknown":
            part = make_answer("answ", finish_reason=FinishReason.INTERRUPTED, cost_usd=None)
            return closed_unknown(leased, attempt, answer=part if attempt.number % 2 else None, then=again)
        if how == "retry":
            return closed_error(leased, attempt, then=again)
        then = later(leased, held_reason=HeldReason.LANE_PAUSED if how == "hold" else None, event=how)
        return closed_error(leased, attempt, FailureKind.RATE_LIMITED, spent=False, then=then)


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, a dispatcher and a person act on one ledger, which refuses each change of a state that no table has."""

    def __init__(self, ledger: PostgresLedger, clock: Clock, runner: asyncio.Runner) -> None:
        super().__init__()
        self.ledger, self.clock, self.runner = ledger, clock, runner
        self.order: list[UUID] = []
        self.batches: list[UUID] = []
        self.ceilings: dict[UUID, Decimal] = {}
        self.leases: dict[str, list[Leased]] = {worker: [] for worker in WORKERS}
        self.calls: list[Call] = []
        # Of this story alone, for the ledger may be that of others before it.
        self.terms = make_terms(str(new_id()), within_s=10**8, wait_s=10**8)

    def do(self, verb: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(verb)

    def some(self, mask: int) -> list[UUID]:
        """A choice among the newest jobs."""
        return [job_id for bit, job_id in enumerate(reversed(self.order)) if bit < 6 and mask >> bit & 1]

    def a_lease(self, pick: int) -> Leased:
        """One of the leases that workers believe to have."""
        leases = [leased for worker in WORKERS for leased in self.leases[worker]]
        return leases[-1 - pick % len(leases)]

    def is_held(self, leased: Leased) -> bool:
        """Tells whether a lease holds, by the word of its renewal."""
        return not self.do(self.ledger.queue.renew([lease_key(leased)], LEASE)).lost

    # ---- the producer ------------------------------------------------------------------------------------------

    def _submit(self, number: int, ceiling: str | None, delay: int, deadline: int | None, *, checks: bool) -> None:
        now = self.clock.now()
        requests = [
            make_request(
                f"Question {index}?",
                response="It is ready." if checks and index == 0 else None,
                scheduled_at=now + delay * SECOND if delay else None,
                deadline=None if deadline is None else now + deadline * SECOND,
            )
            for index in range(number)
        ]
        batch = make_batch(max_cost_usd=ceiling and Decimal(ceiling))
        self.order += self.do(self.ledger.submission.submit(batch, [make_jobs(*requests)])).job_ids
        self.batches.append(batch.id)
        if batch.max_cost_usd is not None:
            self.ceilings[batch.id] = batch.max_cost_usd

    what_is_submitted: dict[str, Any] = {  # noqa: RUF012 - of the class
        "number": st.integers(1, 4),
        "ceiling": st.sampled_from([None, None, "2", "0.5"]),
        "delay": st.sampled_from([0, 0, 0, 30]),
        "deadline": st.sampled_from([None, None, None, 40, 200]),
        "checks": st.sampled_from([False, False, False, True]),
    }

    @initialize(**what_is_submitted)
    def first_batch(self, **what: Any) -> None:
        self._submit(**what)

    @precondition(lambda self: len(self.order) < 8)
    @rule(**what_is_submitted)
    def another_batch(self, **what: Any) -> None:
        self._submit(**what)

    # ---- workers -----------------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4))
    def lease(self, worker: str, limit: int) -> None:
        tokens = {leased.token for leases in self.leases.values() for leased in leases}
        for step in Step:
            leased = self.do(self.ledger.queue.lease(step, worker, LEASE, limit))
            assert len(leased) <= limit
            assert {job.step for job in leased} <= {step}
            assert not tokens & {job.token for job in leased}
            self.leases[worker] += leased

    @precondition(lambda self: any(self.leases.values()))
    @rule(
        pick=picks,
        usd=st.sampled_from([None, "0.1", "0.25", "0.4"]),
        how=st.sampled_from([None, None, None, None, *HOW]),
        shares=st.booleans(),
    )
    def call(self, pick: int, usd: str | None, how: str | None, *, shares: bool) -> None:
        """A worker makes a call; it ends at once, or later, or never (``how`` None)."""
        leased = self.a_lease(pick)
        attempt = make_attempt(
            leased,
            reserved_usd=usd and Decimal(usd),
            number=1 + len(self.calls),
            share=self.terms if shares and leased.step is Step.GENERATE else None,
        )
        is_held = self.is_held(leased)
        (opened,) = self.do(self.ledger.attempts.open_attempts([attempt]))
        assert (opened is Opened.LOST) is not is_held
        if opened is Opened.OPENED:
            self.calls.append(Call(leased, attempt))
            if how is not None:
                self._close(self.calls[-1], how, "0.05")

    @precondition(lambda self: any(self.leases.values()))
    @rule(pick=picks)
    def share(self, pick: int) -> None:
        """A worker looks for the answer of an identical call before it makes one."""
        leased = self.a_lease(pick)
        if leased.step is Step.GENERATE:
            attempt = make_attempt(leased, share=self.terms, number=1 + len(self.calls))
            self.do(self.ledger.cache.share([make_wanted(leased, attempt=attempt)]))

    @precondition(lambda self: self.calls)
    @rule(pick=picks, again=st.sampled_from([False, False, False, True]), how=st.sampled_from(HOW), usd=prices)
    def close(self, pick: int, how: str, usd: str | None, *, again: bool) -> None:
        """A call ends: in time, after its worker died, or told twice."""
        calls = [call for call in self.calls if call.open is not again] or self.calls
        self._close(calls[-1 - pick % len(calls)], how, usd)

    def _close(self, call: Call, how: str, cost_usd: str | None) -> None:
        advanced = self.do(self.ledger.attempts.close_attempts([call.ending(how, cost_usd)]))
        assert advanced <= {call.leased.job_id}
        call.open = False
        self.do(self.ledger.duties.settle_budgets(ALL))

    @precondition(lambda self: any(self.leases.values()))
    @rule(pick=picks, fails=st.booleans())
    def finish(self, pick: int, *, fails: bool) -> None:
        leased = self.a_lease(pick)
        if leased.step is Step.CHECK:
            is_held = self.is_held(leased)
            final = make_failed(leased) if fails else make_final(leased)
            assert self.do(self.ledger.queue.finish([final])) == ({leased.job_id} if is_held else set())

    @precondition(lambda self: any(self.leases.values()))
    @rule(pick=picks, what=st.sampled_from(("hand back", "defer", "hold", "ask again", "crash", "cancel")))
    def something_less(self, pick: int, what: str) -> None:
        """A worker gives a lease back, or dies: forgets them all; or a person cancels a job."""
        leased = self.a_lease(pick)
        if what == "crash":
            self.leases[WORKERS[pick % 2]].clear()
        elif what == "cancel":
            self.do(self.ledger.actions.cancel([leased.job_id], ACTOR))
        elif what == "hand back":
            self.do(self.ledger.queue.hand_back([lease_key(leased)]))
        elif what == "ask again":
            wrong = Correction(purpose="reask", problems=("It is not an object.",))
            then = later(leased, step=Step.GENERATE, round=leased.round + 1, event="reask", correction=wrong)
            self.do(self.ledger.queue.defer(lease_key(leased), then))
        else:
            reason = HeldReason.BUDGET if what == "hold" else None
            then = later(leased, delay=30 * SECOND, held_reason=reason, event="hold")
            self.do(self.ledger.queue.defer(lease_key(leased), then))

    # ---- dispatch and people -----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([24, 70, 70]), duty=st.sampled_from(("promote", "rescue", "hold", "expire", "fold")))
    def dispatch(self, seconds: int, duty: str) -> None:
        """Time passes; then a duty is done."""
        self.do(self.clock.advance(seconds * SECOND))
        if duty == "promote":
            self.do(self.ledger.duties.promote(ALL))
        elif duty == "expire":
            self.do(self.ledger.duties.expire(ALL))
        elif duty == "fold":
            self.do(self.ledger.duties.fold_counts(1))
        else:
            self.do(self.ledger.duties.rescue(ALL, HeldReason.UNKNOWN_OUTCOME if duty == "hold" else None, ALL))

    @rule(
        pick=picks,
        what=st.sampled_from(("pause", "resume", "resume", "release", "more money", "less money", "publish")),
    )
    def a_person_acts(self, pick: int, what: str) -> None:
        batch_id, actions = self.batches[-1 - pick % len(self.batches)], self.ledger.actions
        if what in {"pause", "resume"}:
            self.do(actions.pause_batch(batch_id, ACTOR, paused=what == "pause"))
        elif what == "release":
            for reason in (HeldReason.BUDGET, HeldReason.LANE_PAUSED, HeldReason.UNKNOWN_OUTCOME):
                self.do(actions.release(None, reason, ACTOR))
        elif what == "publish":
            runs = [(view.job_id, view.run) for view in self.do(self.ledger.reading.views(self.order))]
            self.do(self.ledger.outbox.mark_published(runs))
        else:
            # What was spent before may exceed the new one.
            self.ceilings.pop(batch_id, None)
            self.do(actions.set_budget(batch_id, None if what == "more money" else Decimal("0.3"), ACTOR))

    @rule(mask=masks, recheck=st.booleans())
    def run_again(self, mask: int, *, recheck: bool) -> None:
        actions, ids = self.ledger.actions, self.some(mask)
        self.do(actions.recheck(ids, Recheck(), ACTOR) if recheck else actions.retry(ids, ACTOR))

    # ---- what must always hold ---------------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_whole(self) -> None:
        assert self.do(self.ledger.inspection.violations()) == []
        assert [view.job_id for view in self.do(self.ledger.reading.views(self.order))] == self.order, "no job is lost"
        for batch_id, ceiling in self.ceilings.items():
            status = self.do(self.ledger.reading.batch_status(batch_id))
            assert status.reserved_usd + status.priced_usd <= ceiling

    def teardown(self) -> None:
        """Every job can be brought to its end after any sequence of steps."""
        self.do(self._end_all())
        for view in self.do(self.ledger.reading.views(self.order)):
            assert view.record is not None, "no job is lost"
            assert view.record.run == view.run

    async def _end_all(self) -> None:
        await self.clock.advance(200 * SECOND)
        await self.ledger.duties.expire(ALL)
        await self.ledger.duties.rescue(ALL, None, ALL)
        for batch_id in self.batches:
            await self.ledger.actions.pause_batch(batch_id, ACTOR, paused=False)
        for reason in HeldReason:
            await self.ledger.actions.release(None, reason, ACTOR)
        await self.ledger.duties.promote(ALL)
        for step in Step:
            leased = await self.ledger.queue.lease(step, "last", timedelta(hours=1), ALL)
            assert await self.ledger.queue.finish([make_final(job) for job in leased]) == {job.job_id for job in leased}


def _named(make: Callable[[], LedgerMachine], part: int) -> Callable[[], LedgerMachine]:
    """Give a part lives of its own: where the examples are always the same, they follow from the name."""
    make.__name__ = f"part_{part}"
    return make


@pytest.mark.timeout(600)  # a failure is shrunk before it is shown
@pytest.mark.parametrize("part", range(3))
def test_random_lives(ledger: PostgresLedger, clock: Clock, runner: asyncio.Runner, part: int) -> None:
    terms = settings(max_examples=5, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(_named(lambda: LedgerMachine(ledger, clock, runner), part), settings=terms)
