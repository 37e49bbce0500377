"""Random lives of jobs: any order of verbs, crashes and late answers leaves every ledger as the model says."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from schemas.job import Recheck
from schemas.model_call import Correction
from schemas.states import TRANSITIONS, HeldReason, JobState, Outcome, Step
from tasks.ports import Advance, HintKey, Leased, Opened, Purpose
from tests.builders import (
    later,
    lease_key,
    make_attempt,
    make_batch,
    make_failed,
    make_final,
    make_jobs,
    make_request,
    make_terms,
    make_wanted,
    new_id,
)
from tests.contract.conftest import Clock
from tests.contract.ledger_model import Call, Job, Model, ending
from tests.contract.situations import ACTOR, LEASE, SECOND
from worker.ledger.postgres import PostgresLedger

T = TypeVar("T")
ALL = 1_000
WORKERS = ("w1", "w2")
HOW = ("ok", "ok", "ok", "stay", "retry", "snooze", "hold", "unknown")
LESS = ("renew", "renew", "hand back", "defer", "hold", "ask again", "give up", "crash", "cancel")
PERSON = ("pause", "resume", "resume", "more money", "less money", "publish", "republish")
DUTIES = ("promote", "promote", "rescue", "rescue", "rescue and hold", "expire", "release")
RELEASED = (HeldReason.BUDGET, HeldReason.LANE_PAUSED, HeldReason.UNKNOWN_OUTCOME)
picks = st.integers(0, 3)
masks = st.integers(1, 63)
PRICES = st.sampled_from([None, Decimal(0), Decimal("0.05"), Decimal("0.3")])
seldom = st.sampled_from([False, False, False, True])
requests_of_a_batch = {
    "number": st.integers(1, 4),
    "ceiling": st.sampled_from([None, None, "2", "0.5"]),
    "delay": st.sampled_from([0, 0, 0, 30]),
    "deadline": st.sampled_from([None, None, None, 40, 200]),
    "checks": seldom,
}


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, a dispatcher and a person act on one ledger; after each act it must agree with the model."""

    def __init__(self, ledger: PostgresLedger, clock: Clock, runner: asyncio.Runner) -> None:
        super().__init__()
        self.ledger, self.clock, self.runner = ledger, clock, runner
        self.model = Model()
        self.order: list[UUID] = []
        self.batches: list[UUID] = []
        self.leases: dict[str, list[Leased]] = {worker: [] for worker in WORKERS}
        self.calls: list[Call] = []
        self.last_states: dict[UUID, JobState] = {}
        self.touched: set[UUID] = set()
        self.verbs: frozenset[str] = frozenset()
        # Of this story alone, for the ledger may be that of others before it.
        self.terms = make_terms(str(new_id()), within_s=10**8, wait_s=10**8)

    def do(self, verb: Coroutine[Any, Any, T], *names: str, touched: Sequence[UUID] = ()) -> T:
        """Run a verb; ``names`` are those that may have changed states, ``touched`` the jobs to look at closely."""
        self.verbs = frozenset(names)
        self.touched.update(touched)
        return self.runner.run(verb)

    def held(self) -> list[Leased]:
        """All leases that some worker believes to have."""
        return [leased for worker in WORKERS for leased in self.leases[worker]]

    def free(self) -> set[UUID]:
        """All jobs that can be leased for some step."""
        return self.model.free(Step.GENERATE) | self.model.free(Step.CHECK)

    def some(self, mask: int) -> list[UUID]:
        """A choice among the newest jobs."""
        return [job_id for bit, job_id in enumerate(reversed(self.order)) if bit < 6 and mask >> bit & 1]

    # ---- the producer ------------------------------------------------------------------------------------------

    @initialize(**requests_of_a_batch)
    def first_batch(self, **what: Any) -> None:
        self._submit(**what)

    @precondition(lambda self: len(self.order) < 8)
    @rule(**requests_of_a_batch)
    def another_batch(self, **what: Any) -> None:
        self._submit(**what)

    def _submit(self, number: int, ceiling: str | None, delay: int, deadline: int | None, *, checks: bool) -> None:
        now, requests = self.clock.now(), []
        for index in range(number):
            answer = "It is ready." if checks and index == 0 else None
            requests.append(
                make_request(
                    f"Question {index}?",
                    response=answer,
                    scheduled_at=now + delay * SECOND if delay else None,
                    deadline=None if deadline is None else now + deadline * SECOND,
                )
            )
        batch = make_batch(max_cost_usd=None if ceiling is None else Decimal(ceiling))
        jobs = make_jobs(*requests)
        receipt = self.do(self.ledger.submission.submit(batch, [jobs]))
        assert receipt.job_ids == tuple(job.id for job in jobs)
        self.batches.append(batch.id)
        self.model.ceilings[batch.id] = batch.max_cost_usd
        for view, new in zip(self.do(self.ledger.reading.views(receipt.job_ids)), jobs, strict=True):
            self.order.append(new.id)
            self.model.jobs[new.id] = Job(
                id=new.id,
                batch_id=batch.id,
                first_step=new.step,
                step=new.step,
                state=JobState.SCHEDULED if delay else JobState.AVAILABLE,
                run=view.run,
                due=self.model.now + delay,
                deadline=None if deadline is None else self.model.now + deadline,
            )
        assert receipt.hints == (set() if delay else {HintKey(job.step, job.priority > 0) for job in jobs})

    # ---- workers -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.free())
    @rule(worker=st.sampled_from(WORKERS), mask=masks)
    def lease_by_ids(self, worker: str, mask: int) -> None:
        ids = [*self.some(mask), new_id()]
        for step in Step:
            free = self.model.free(step) & set(ids)
            leased = self.do(self.ledger.queue.lease(step, worker, LEASE, ALL, ids=ids), "lease")
            assert {job.job_id for job in leased} == free
            self._lease(worker, leased)

    @precondition(lambda self: self.free())
    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4))
    def lease_idle(self, worker: str, limit: int) -> None:
        for step in Step:
            free = len(self.model.free(step))
            leased = self.do(self.ledger.queue.lease(step, worker, LEASE, limit), "lease")
            assert len(leased) == min(limit, free)
            assert {job.step for job in leased} <= {step}
            self._lease(worker, leased)

    def _lease(self, worker: str, leased: Sequence[Leased]) -> None:
        tokens = {job.token for job in self.held()}
        for lease in leased:
            assert lease.job_id in self.model.free(lease.step)
            assert lease.token not in tokens
            job = self.model.jobs[lease.job_id]
            assert (lease.step, lease.run, lease.round) == (job.step, job.run, job.round)
            assert lease.correction == job.correction
            self._compare_history(lease, job)
            self.model.lease(lease, LEASE)
            self.leases[worker].append(lease)
            self.touched.add(lease.job_id)

    def _compare_history(self, leased: Leased, job: Job) -> None:
        """The attempt history that the holder gets."""
        of_step = [
            call
            for call in job.calls
            if call.attempt.run == job.run and (call.attempt.purpose == "judge") == (job.step is Step.CHECK)
        ]
        of_round = [call for call in of_step if call.attempt.round == job.round]
        failed = [call for call in of_step if (call.outcome or "").startswith("error:")]
        assert leased.attempts == len(of_round)
        assert leased.spent == sum(call.spent for call in failed)
        assert leased.snoozes == sum(not call.spent for call in failed)
        assert leased.unknown == sum(call.outcome == "unknown" for call in of_round)
        assert (leased.first_opened_ago_ms is None) == (not of_round)
        judged = job.winners.get((job.run, job.round, Purpose.JUDGE)) if job.step is Step.CHECK else None
        assert judged == (leased.judged.attempt_id if leased.judged else None)
        assert job.answer == (leased.stored.attempt_id if leased.stored else None)
        assert (leased.recheck is not None) == job.rechecks

    @precondition(lambda self: self.held())
    @rule(
        pick=picks,
        stale=seldom,
        usd=st.sampled_from([None, "0.1", "0.25", "0.4"]),
        how=st.sampled_from([None, None, None, None, *HOW]),
        shares=st.booleans(),
    )
    def call(self, pick: int, usd: str | None, how: str | None, *, stale: bool, shares: bool) -> None:
        """A worker makes a call; it ends at once, or later, or never (``how`` None)."""
        leased = self._lease_at(pick, stale=stale)
        number = 1 + len(self.model.jobs[leased.job_id].calls)
        share = self.terms if shares and leased.step is Step.GENERATE else None
        new = make_attempt(leased, reserved_usd=usd and Decimal(usd), number=number, share=share)
        (opened,) = self.do(self.ledger.attempts.open_attempts([new]), "open_attempts", touched=[leased.job_id])
        expected, call = self.model.open(leased, new)
        assert opened is expected
        if opened is Opened.OPENED:
            self.calls.append(call)
            if how is not None:
                self._close(call, how, Decimal("0.05"))

    @precondition(lambda self: any(leased.step is Step.GENERATE for leased in self.held()))
    @rule(pick=picks, stale=seldom)
    def share(self, pick: int, *, stale: bool) -> None:
        """A worker looks for the answer of an identical call before it makes one."""
        leased = self._lease_at(pick, stale=stale, step=Step.GENERATE)
        if leased.step is Step.GENERATE:
            new = make_attempt(leased, share=self.terms, number=1 + len(self.model.jobs[leased.job_id].calls))
            (reply,) = self.do(
                self.ledger.cache.share([make_wanted(leased, attempt=new)]), "share", touched=[leased.job_id]
            )
            assert reply.status is self.model.share(leased, new)

    @precondition(lambda self: self.calls)
    @rule(pick=picks, again=seldom, how=st.sampled_from(HOW), usd=PRICES)
    def close(self, pick: int, how: str, usd: Decimal | None, *, again: bool) -> None:
        """A call ends: in time, after its worker died, or told twice."""
        calls = [call for call in self.calls if call.open is not again] or self.calls
        self._close(calls[-1 - pick % len(calls)], how, usd)

    @precondition(lambda self: any(call.outcome == "unknown" for call in self.calls))
    @rule(pick=picks, usd=PRICES)
    def answer_late(self, pick: int, usd: Decimal | None) -> None:
        """A call that was given up brings its answer after all."""
        calls = [call for call in self.calls if call.outcome == "unknown"]
        self._close(calls[-1 - pick % len(calls)], "ok", usd)

    def _close(self, call: Call, how: str, cost_usd: Decimal | None) -> None:
        closed = ending(call, how, cost_usd)
        advanced = self.do(self.ledger.attempts.close_attempts([closed]), "close_attempts", touched=[closed.job_id])
        assert advanced == ({closed.job_id} if self.model.close(call, closed) else set())
        # Closing lets jobs go on where money came back; a duty says how many are changed then.
        self.model.settle()
        self.do(self.ledger.duties.settle_budgets(ALL), "close_attempts", "settle_budgets", "hold")

    @rule(rows=st.sampled_from([1, ALL]))
    def fold_counts(self, rows: int) -> None:
        """Changed counts are summed up; the batches' status must stay the same."""
        self.do(self.ledger.duties.fold_counts(rows), touched=self.order)

    @precondition(lambda self: any(leased.step is Step.CHECK for leased in self.held()))
    @rule(pick=picks, stale=seldom, fails=seldom)
    def finish(self, pick: int, *, stale: bool, fails: bool) -> None:
        leased = self._lease_at(pick, stale=stale, step=Step.CHECK)
        job = self.model.holder(leased)
        final = make_failed(leased) if fails else make_final(leased)
        finished_ids = self.do(self.ledger.queue.finish([final]), "finish", touched=[leased.job_id])
        assert finished_ids == (set() if job is None else {leased.job_id})
        if job is not None:
            job.goes(final.state)
            job.outcome = None if fails else Outcome.ANSWERED

    @precondition(lambda self: self.held())
    @rule(pick=picks, stale=seldom, what=st.sampled_from(LESS))
    def something_less(self, pick: int, what: str, *, stale: bool) -> None:
        """A worker keeps its leases, gives one back, or dies: forgets them all; or a person cancels a job."""
        worker, leased = WORKERS[pick % 2], self._lease_at(pick, stale=stale)
        if what == "renew":
            self._renew({job.job_id: job for job in self.leases[worker]})
        elif what == "crash":
            self.leases[worker].clear()
        elif what == "cancel":
            self._cancel(self.model.jobs[leased.job_id])
        elif what == "hand back":
            job = self._idle(leased)
            changed = self.do(self.ledger.queue.hand_back([lease_key(leased)]), "hand_back", touched=[leased.job_id])
            assert changed == ({leased.job_id} if job else set())
            if job is not None:
                job.goes(JobState.AVAILABLE)
        else:
            job, then = self._idle(leased), self._deferred(leased, what)
            deferred = self.do(self.ledger.queue.defer(lease_key(leased), then), "defer", touched=[leased.job_id])
            assert deferred == (job is not None)
            if job is not None:
                self.model.advance(job, then)

    def _deferred(self, leased: Leased, what: str) -> Advance:
        if what == "ask again":
            wrong = Correction(purpose="reask", problems=("It is not an object.",))
            return later(leased, step=Step.GENERATE, round=leased.round + 1, event="reask", correction=wrong)
        if what == "give up" and leased.round:
            given_up = Correction(purpose="reask", given_up="the call failed")
            return later(leased, step=Step.CHECK, round=leased.round - 1, event="given_up", correction=given_up)
        reason = HeldReason.BUDGET if what == "hold" else None
        return later(leased, delay=30 * SECOND, held_reason=reason, event="hold")

    def _renew(self, leases: dict[UUID, Leased]) -> None:
        lost = self.do(self.ledger.queue.renew([lease_key(job) for job in leases.values()], LEASE)).lost
        kept = {job_id for job_id, one in leases.items() if self.model.holder(one)}
        assert lost == leases.keys() - kept
        for job_id in kept:
            self.model.jobs[job_id].lease_until = self.model.now + LEASE.total_seconds()

    def _lease_at(self, pick: int, *, stale: bool, step: Step | None = None) -> Leased:
        """One of the leases that hold (in this step, if there is one), or one that is lost."""
        leases = self.held()
        fitting = [job for job in leases if (self.model.holder(job) is None) is stale] or leases
        of_step = [job for job in fitting if job.step is step] or fitting
        return of_step[-1 - pick % len(of_step)]

    def _idle(self, leased: Leased) -> Job | None:
        """The job, if this lease holds it and no call is open under it."""
        job = self.model.holder(leased)
        calling = job is not None and any(call.open and call.attempt.token == job.token for call in job.calls)
        return None if calling else job

    # ---- dispatch and people -----------------------------------------------------------------------------------

    # No sum of these comes within 8 s of a deadline, a delay or a lease: a busy machine takes seconds for a rule.
    @rule(seconds=st.sampled_from([24, 70, 70]), duty=st.sampled_from(DUTIES))
    def dispatch(self, seconds: int, duty: str) -> None:
        """Time passes; then a duty is done."""
        self.model.now += seconds
        self.runner.run(self.clock.advance(seconds * SECOND))
        if duty == "promote":
            assert self.do(self.ledger.duties.promote(ALL), "promote") == self.model.promote()
        elif duty == "expire":
            late = {job.id for job in self.model.jobs.values() if job.active and self.model.late(job)}
            assert set(self.do(self.ledger.duties.expire(ALL), "expire", touched=sorted(late))) == late
            self.model.end(late, JobState.EXPIRED)
        elif duty == "release":
            for reason in RELEASED:
                released = self.do(self.ledger.actions.release(None, reason, ACTOR))
                assert released == self.model.release(reason)
            self._promote_released()
        else:
            reason = HeldReason.UNKNOWN_OUTCOME if duty == "rescue and hold" else None
            rescued = self.do(self.ledger.duties.rescue(ALL, reason, ALL), "rescue")
            assert set(rescued) == self.model.rescue(reason)
            self.touched.update(self.order)

    def _promote_released(self) -> None:
        self.do(self.ledger.duties.promote(ALL), "release", "promote", "hold")
        self.model.promote()

    @precondition(lambda self: self.batches)
    @rule(pick=picks, what=st.sampled_from(PERSON))
    def of_a_whole_batch(self, pick: int, what: str) -> None:
        """A batch is paused, goes on, gets another ceiling; results are published, or Redis lost them all."""
        batch_id = self.batches[-1 - pick % len(self.batches)]
        if what == "pause":
            paused = self.do(self.ledger.actions.pause_batch(batch_id, ACTOR, paused=True), "hold")
            assert paused == self.model.pause(batch_id)
        elif what == "resume":
            released = self.do(self.ledger.actions.pause_batch(batch_id, ACTOR, paused=False))
            assert released == self.model.resume(batch_id)
            self._promote_released()
        elif what in {"more money", "less money"}:
            ceiling = None if what == "more money" else Decimal("0.3")
            self.do(self.ledger.actions.set_budget(batch_id, ceiling, ACTOR))
            self.model.ceilings[batch_id] = ceiling
            self.model.release(HeldReason.BUDGET, batch_id)
            self._promote_released()
        elif what == "publish":
            self.do(self.ledger.outbox.mark_published([(job_id, self.model.jobs[job_id].run) for job_id in self.order]))
            for job in self.model.jobs.values():
                job.published = not job.active
        else:
            # The stories before had the same ledger.
            again = self.do(self._republish())
            published = {job_id for job_id, job in self.model.jobs.items() if job.published}
            assert again & set(self.order) == published

    def _cancel(self, job: Job) -> None:
        cancelled = self.do(self.ledger.actions.cancel([job.id], ACTOR), "cancel", touched=[job.id])
        assert cancelled == ([job.id] if job.active else [])
        if job.active:
            job.goes(JobState.CANCELLED)

    @precondition(lambda self: any(not job.active for job in self.model.jobs.values()))
    @rule(mask=masks)
    def retry(self, mask: int) -> None:
        jobs = [job for job in (self.model.jobs[job_id] for job_id in self.some(mask)) if not self.model.late(job)]
        ids, final = [job.id for job in jobs], [job for job in jobs if not job.active]
        assert set(self.do(self.ledger.actions.retry(ids, ACTOR), "retry", touched=ids)) == {job.id for job in final}
        for job in final:
            self.model.retry(job)

    @precondition(lambda self: any(not job.active for job in self.model.jobs.values()))
    @rule(mask=masks)
    def recheck(self, mask: int) -> None:
        jobs = [job for job in (self.model.jobs[job_id] for job_id in self.some(mask)) if not self.model.late(job)]
        ids = [job.id for job in jobs]
        changed = self.do(self.ledger.actions.recheck(ids, Recheck(), ACTOR), "recheck", touched=ids)
        assert set(changed) == {job.id for job in jobs if self.model.recheck(job)}

    # ---- what must always hold ---------------------------------------------------------------------------------

    @invariant()
    def the_ledger_agrees(self) -> None:
        views = self.runner.run(self.ledger.reading.views(self.order))
        assert [view.job_id for view in views] == self.order, "no job is lost"
        for view in views:
            job = self.model.jobs[view.job_id]
            before = self.last_states.get(view.job_id, view.state)
            if before is not view.state:
                assert TRANSITIONS[before, view.state] & self.verbs, f"{before} to {view.state} by {self.verbs}"
            assert (view.state, view.step, view.run, view.round) == (job.state, job.step, job.run, job.round)
            assert (view.held_reason, view.outcome) == (job.held, job.outcome)
            assert (view.published_at is not None) == job.published
            assert (view.finished_at is None, view.record is None) == (job.active, job.active)
            assert view.cost_usd == job.shown_usd
            self.last_states[view.job_id] = view.state
            job.ended_at = None if job.active else self.model.now if job.ended_at is None else job.ended_at

    @invariant()
    def the_money_adds_up(self) -> None:
        for batch_id in {self.model.jobs[job_id].batch_id for job_id in self.touched}:
            status = self.runner.run(self.ledger.reading.batch_status(batch_id))
            jobs = self.model.of_batch(batch_id)
            assert status.reserved_usd == self.model.reserved_usd(batch_id)
            unpriced = any(job.shown_usd is None for job in self.model.of_batch(batch_id))
            assert status.spent_usd == (None if unpriced else self.model.spent_usd(batch_id))
            counted = {state: number for state, number in status.states.items() if number}
            assert (status.jobs, counted) == (len(jobs), Counter(job.state for job in jobs))
            assert sum(status.held.values()) == sum(job.held is not None for job in jobs)

    @invariant()
    def the_audit_is_complete(self) -> None:
        for job_id in self.touched:
            self._audit(self.model.jobs[job_id])
        self.touched.clear()

    def _audit(self, job: Job) -> None:
        detail = self.runner.run(self.ledger.reading.job_detail(job.id))
        rows = {str(row["id"]): row for row in detail.attempts}
        assert rows.keys() == {str(call.attempt.id) for call in job.calls}
        for call in job.calls:
            row = rows[str(call.attempt.id)]
            assert (row["outcome"], row["closed_at"] is None) == (call.outcome, call.open)
            cost = row["cost_usd"]
            assert (None if cost is None else Decimal(str(cost))) == call.cost_usd
        answered = Counter(str(row["attempt_id"]) for row in detail.completions)
        assert answered == Counter(str(call.attempt.id) for call in job.calls if call.answered)
        assert [record.run for record in detail.records] == sorted(job.finals), "one final per run"

    def teardown(self) -> None:
        """Every job can be brought to its end after any sequence of steps."""
        self.runner.run(self._end_all())
        for view in self.runner.run(self.ledger.reading.views(self.order)):
            assert view.record is not None, "no job is lost"
            assert view.record.run == view.run

    async def _republish(self) -> set[UUID]:
        await self.ledger.outbox.begin_republishing(timedelta(days=1))
        again: set[UUID] = set()
        while (page := await self.ledger.outbox.republish_page(3)) is not None and page.through is not None:
            again |= {view.job_id for view in page.views}
            await self.ledger.outbox.note_republished(page)
        return again

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
