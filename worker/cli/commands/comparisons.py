"""``nightdesk replay`` and ``compare``: stored messages sent again; two batches or two jobs side by side."""

from typing import Annotated, Any, NamedTuple
from uuid import UUID

from rich.text import Text

from schemas.generation import Lane
from schemas.states import JobState
from tasks.errors import InputError
from tasks.policy.comparison import Comparison, Merit
from tasks.policy.comparison import compare as compare_views
from tasks.policy.difference import Difference
from tasks.ports import Refused, Turn
from worker.cli import options
from worker.cli.console import console
from worker.cli.difference_view import comparison_document, show_comparison, show_difference
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK, run_interruptible
from worker.cli.help import argument, option
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, on_ledger, session
from worker.cli.terminal import tell, warn, write_json
from worker.cli.waiting import Watch, warn_of
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import job_of
from worker.operations.counts import count_of
from worker.operations.file_submission import wake
from worker.operations.job_difference import differences
from worker.operations.replay import ReplayOrder, ReplayPlan, ReplayReceipt, replay_plan, write_replay
from worker.settings import load_settings


def replay(
    target: options.Target,
    *,
    model: Annotated[
        str | None, option("The model to ask; default: the one that answered.", metavar="PROVIDER[:MODEL]")
    ] = None,
    prompt_version: Annotated[
        str | None,
        option("Render the stored request with this version instead of sending the messages.", metavar="N"),
    ] = None,
    lane: options.CallLane = None,
    max_cost_usd: options.MaxCost = None,
    dry_run: Annotated[
        bool, option("Only tell what would be sent and what it costs; submit nothing.", "--dry-run")
    ] = False,
    again: Annotated[bool, option("Pay anew though the same replay or a stored answer is there.", "--again")] = False,
    wait: Annotated[bool, option("Wait for the answers and compare them.")] = True,
    workers: options.Workers = True,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Send the stored messages of a job or a batch again, and compare the new answers with the old ones.

    The messages are those of the record, byte for byte; nothing is rendered anew unless --prompt-version says so. The
    new jobs are a batch of their own, with limits, records and ceilings as for any other, and each names the job that
    it asks again. The same command twice finds the same jobs and pays nothing.
    """
    order = _order(target, model, prompt_version, lane, max_cost_usd, again=again)
    if dry_run:
        return _estimate(order, as_json=as_json)
    with session(staffs=wait and workers) as opened, reporting(quiet=quiet) as reporter:
        try:
            done = run_interruptible(_replay(opened, order, reporter, wait=wait, with_workers=workers))
        except KeyboardInterrupt:
            tell("Interrupted. What was submitted stays in the ledger; the same command finds it again.")
            raise
    return _show(done, wait=wait, quiet=quiet, as_json=as_json)


def _order(
    target: str, model: str | None, version: str | None, lane: str | None, max_cost_usd: str | None, *, again: bool
) -> ReplayOrder:
    target_id, name = options.job_target(target)
    if model is not None and not model.partition(":")[0]:
        raise InputError(f"{model!r} names no provider; give PROVIDER or PROVIDER:MODEL", field="--model")
    if lane is not None and lane not in set(Lane):
        raise InputError(f"{lane!r} is no lane; there are {', '.join(Lane)}", field="--lane")
    turn = None if model is None else Turn.parse(model)
    way = None if lane is None else Lane(lane)
    return ReplayOrder(target_id, name, turn, version, way, again=again, max_cost_usd=max_cost_usd)


def _estimate(order: ReplayOrder, *, as_json: bool) -> int:
    # Only an estimate pays for the planning of calls.
    from worker.cli.commands.cost_estimate import show_estimation  # noqa: PLC0415
    from worker.operations.estimation import Estimation, estimate_jobs  # noqa: PLC0415

    settings = load_settings()

    async def read(ledger: PostgresLedger) -> Estimation:
        async with replay_plan(ledger, order, settings) as plan:
            _warn_of(plan)
            return await estimate_jobs(plan.jobs(), plan.batch, settings, ledger, plan.refused)

    estimation = on_ledger(read, settings)
    show_estimation(estimation, as_json=as_json)
    return OK if estimation.estimate.jobs or estimation.repeats else BAD_INPUT


class _Done(NamedTuple):
    """The outcome of a replay."""

    receipt: ReplayReceipt | None
    """None: no job could be asked again."""
    refused: list[Refused]
    pairs: list[Difference]

    @property
    def comparison(self) -> Comparison:
        """Wins, losses and cost over the pairs that are final."""
        comparison = Comparison()
        for pair in self.pairs:
            if pair.final:
                comparison.add(Merit.of(pair.first.view), Merit.of(pair.second.view))
            else:
                comparison.unfinished += 1
        return comparison


async def _replay(opened: Session, order: ReplayOrder, reporter: Reporter, *, wait: bool, with_workers: bool) -> _Done:
    async with opened.ledger() as ledger:
        async with replay_plan(ledger, order, opened.settings) as plan:
            _warn_of(plan)
            if not plan.origins:
                return _Done(None, plan.refused, [])
            receipt = await write_replay(ledger, plan)
        await wake(receipt.hints, opened.settings, opened.where, warn)
        if not wait:
            return _Done(receipt, plan.refused, [])
        watch = Watch(opened, ledger, reporter)
        if with_workers:
            await watch.staff()
        await watch.wait(receipt.batch_id, receipt.elsewhere)
        return _Done(receipt, plan.refused, [pair async for pair in differences(ledger, receipt.pairs)])


def _warn_of(plan: ReplayPlan) -> None:
    for warning, count in plan.warnings.items():
        warn(f"{warning} ({count_of(count, 'job')})")
    warn_of(plan.refused)


# ---- output ----------------------------------------------------------------------------------------------------------


def _show(done: _Done, *, wait: bool, quiet: bool, as_json: bool) -> int:
    if as_json:
        write_json(_document(done))
    if done.receipt is None:
        tell("no job can be asked again; nothing was submitted")
        return BAD_INPUT
    if not quiet:
        tell(_submitted(done.receipt, wait=wait))
    if not wait:
        return OK
    if not as_json:
        if len(done.pairs) == 1:
            show_difference(console(), done.pairs[0], ("before", "replay"))
        else:
            _show_batch(done)
    completed = all(pair.second.view.state is JobState.COMPLETED for pair in done.pairs)
    return OK if completed else INCOMPLETE


def _submitted(receipt: ReplayReceipt, *, wait: bool) -> str:
    repeats = len(receipt.elsewhere)
    facts = []
    if receipt.batch_id is not None:
        facts.append(f"batch {receipt.batch_id}: {count_of(len(receipt.pairs) - repeats, 'job')} asked again")
    if repeats:
        facts.append(f"{count_of(repeats, 'job')} asked again before: not paid for a second time (--again would)")
    if not wait and receipt.batch_id is not None:
        facts.append(f"follow them with: nightdesk watch {receipt.batch_id}")
    return "; ".join(facts)


def _show_batch(done: _Done) -> None:
    out = console()
    show_comparison(done.comparison, ("before", "replay"), out)
    changed = [pair for pair in done.pairs if pair.final and pair.differs]
    out.print(
        Text(
            f"{len(changed):,} of {count_of(len(done.pairs), 'answer')} differ in words, citations, verdicts or outcome"
        )
    )
    if not changed:
        return
    example = changed[0]
    out.print(
        Text(f"One in full: nightdesk compare {example.first.view.job_id} {example.second.view.job_id}"), soft_wrap=True
    )


def _document(done: _Done) -> dict[str, Any]:
    receipt = done.receipt
    return {
        "batch_id": receipt and receipt.batch_id,
        "jobs": [{"job_id": new, "replay_of": old} for old, new in (receipt.pairs if receipt else ())],
        "known_before": len(receipt.elsewhere) if receipt else 0,
        "refused": [
            {"position": each.position, "custom_id": each.custom_id, "message": each.message} for each in done.refused
        ],
        "comparison": comparison_document(done.comparison) if done.pairs else None,
    }


def compare(
    first: Annotated[str, argument("The id of a batch or a job, BATCH:CUSTOM_ID, BATCH:lineN.", "A")],
    second: Annotated[str, argument("The one that is compared with it, of the same kind.", "B")],
    as_json: options.Json = False,
) -> int:
    """Compare two batches over the same questions, or two jobs: words, citations, verdicts and cost.

    Of batches: wins, losses and ties of B. An answer wins by its outcome: answered, then partial, then abstained, then all others; of two partial ones the
    answer with the larger share of supported claims. Shares have Wilson's interval of 95 %.
    """
    targets = [options.job_target(text) for text in (first, second)]
    comparison = on_ledger(lambda ledger: _read(ledger, targets))
    if isinstance(comparison, Difference):
        return _compare_jobs(comparison, as_json=as_json)
    if as_json:
        write_json(comparison_document(comparison))
    elif comparison.pairs:
        show_comparison(comparison)
    if not comparison.pairs:
        tell("no question is in both batches with a final answer: there is nothing to compare")
        return BAD_INPUT
    return INCOMPLETE if comparison.unfinished else OK


async def _read(ledger: PostgresLedger, targets: list[tuple[UUID, str]]) -> Comparison | Difference:
    ids = [first for first, _ in targets]
    jobs = [job for target in targets if (job := await job_of(ledger, *target)) is not None]
    if not jobs:
        return await compare_views(*map(ledger.reading.batch_views, ids))
    if len(jobs) < len(ids):
        raise InputError("one is a job and the other a batch: give two of a kind")
    # Also of one and the same job.
    first, second = [(await ledger.reading.views([job]))[0] for job in jobs]
    return Difference.of(first, second)


def _compare_jobs(difference: Difference, *, as_json: bool) -> int:
    if difference.first.view.request.query.strip() != difference.second.view.request.query.strip():
        warn("the two jobs ask different questions")
    if as_json:
        results = {name: side.result.model_dump(mode="json") for name, side in vars(difference).items()}
        write_json({"differs": difference.differs, "same_messages": difference.same_messages, **results})
    else:
        show_difference(console(), difference)
    return OK if difference.final else INCOMPLETE
