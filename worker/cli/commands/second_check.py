"""``nightdesk recheck``: the present check over stored answers, compared with the check before as a table."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Self
from uuid import UUID

from rich.console import Console
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName
from schemas.job import Recheck
from schemas.states import FINAL_STATES, JobState
from tasks.errors import InputError
from tasks.ports import JobView
from worker.cli import options
from worker.cli.commands.job_commands import as_operator, job_pages
from worker.cli.console import safe, table_of
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.outfile import check_output
from worker.cli.progress import reporting
from worker.cli.session import session
from worker.cli.terminal import tell, warn
from worker.cli.waiting import BatchRun, Watch
from worker.ledger.postgres import PostgresLedger
from worker.operations import job_changes
from worker.operations.counts import cost, count_of
from worker.operations.operator import JobPages, Operator
from worker.operations.result_lines import Tally
from worker.settings import load_settings


class Snapshot(NamedTuple):
    """The outcome of one run of a job, without its texts."""

    state: JobState
    outcome: str
    counts: Counter[str]
    """Of what the table has rows for: the job by its outcome, its claims by verdict."""
    whole: bool
    """Each layer of the check that was asked for gave its verdicts."""
    cost_usd: Decimal

    @classmethod
    def of(cls, view: JobView) -> Self:
        """The present run of a job."""
        grounding = view.record.grounding if view.record else None
        claims = {f"claims {verdict.value}": count for verdict, count in grounding.counts.items()} if grounding else {}
        return cls(
            view.state,
            view.ending,
            Counter({f"jobs {view.ending}": 1, **claims}),
            whole=not (grounding and grounding.failed_checkers),
            cost_usd=view.cost_usd or Decimal(0),
        )


Pairs = Sequence[tuple[Snapshot, Snapshot]]
"""The jobs that were checked again, each before and after."""


async def snapshots(ledger: PostgresLedger, batch_id: UUID) -> dict[UUID, Snapshot]:
    """The present state of the jobs of a batch."""
    return {view.job_id: Snapshot.of(view) async for view in ledger.reading.batch_views(batch_id)}


def recheck(
    batch_id: options.BatchId,
    *,
    checkers: Annotated[
        str | None, option("structure,lexical,judge; default: each job's own.", metavar="LAYERS")
    ] = None,
    judge: options.Judge = None,
    output: Annotated[
        str | None, option("Where the new results go, as JSON lines.", "--output", "-o", metavar="OUT")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Check the answers of a batch again, as they came from the model, and say what that changes.

    Nothing is generated and nothing but a judge is paid for. Each job with an answer gets a new run that begins at its
    check; the record of the run before stays. Jobs that were cancelled, expired or have no answer stay as they are.
    Ended midway, what was begun goes on; the same command again takes all that are final by then.
    """
    settings = load_settings()
    change = Recheck(checkers=_layers(checkers, tuple(settings.checkers)), judge=judge, id=uuid7())
    if output is not None:
        check_output(output)
    again = (
        f"The workers finish the rechecks that have started: 'nightdesk watch {batch_id}'. 'nightdesk recheck {batch_id}' takes all "
        "jobs that are final by then, those that were rechecked meanwhile too"
    )
    with (
        session(settings, staffs=True) as opened,
        reporting(quiet=quiet) as reporter,
        job_pages("rechecked", reporter, again=again) as pages,
    ):

        def work(operator: Operator) -> Coroutine[Any, Any, tuple[Pairs, Tally]]:
            watch = Watch(opened, operator.ledger, reporter, check_only=True)
            return _recheck(operator, BatchRun(watch, batch_id, lines=()), change, output, pages)

        pairs, tally = as_operator(opened, work)
    if not quiet:
        _show(pairs)
        if output is not None:
            tell(f"{count_of(tally.lines, 'result')} written to {output}")
    all_done = all(after.state in FINAL_STATES and after.whole for _, after in pairs)
    return OK if all_done and not pages.refused else INCOMPLETE


def _layers(names: str | None, own: Sequence[str]) -> tuple[CheckerName | str, ...] | None:
    """The layers that the option names; ``own`` are the checkers of the settings."""
    if names is None:
        return None
    try:
        return tuple(name if name in own else CheckerName(name) for name in (word.strip() for word in names.split(",")))
    except ValueError as error:
        layers = ", ".join((*CheckerName, *own))
        raise InputError(f"{error}; the layers are {layers}", field="--checkers") from None


async def _recheck(
    operator: Operator, run: BatchRun, change: Recheck, output: str | None, pages: JobPages
) -> tuple[Pairs, Tally]:
    batch_id = run.batch_id
    assert batch_id is not None
    await operator.ledger.reading.batch_status(batch_id)
    before = await snapshots(operator.ledger, batch_id)
    unfinished = sum(snapshot.state not in FINAL_STATES for snapshot in before.values())
    if unfinished:
        warn(
            f"{count_of(unfinished, 'job of the batch is', 'jobs of the batch are')} not final yet; left to the first check"
        )
    ended = {JobState.COMPLETED, JobState.FAILED}
    done = [job_id for job_id, snapshot in before.items() if snapshot.state in ended]
    rechecked = await job_changes.recheck(operator, done, change, pages)
    await run.watch.staff()
    await run.wait()
    after = await snapshots(operator.ledger, batch_id)
    run.lines = None
    tally = await run.write(output) if output is not None else Tally()
    return [(before[job_id], after[job_id]) for job_id in rechecked], tally


def _show(pairs: Pairs) -> None:
    """A row per verdict and outcome, before and after, and a line that sums it up; standard output is for results."""
    out = Console(stderr=True, highlight=False)
    table = table_of("", "before", "after", right={"before", "after"})
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    first, second = (sum((each.counts for each in side), Counter[str]()) for side in sides)
    for name in sorted(first | second):
        table.add_row(safe(name), str(first[name]), str(second[name]))
    out.print(table)
    changed = sum(before.outcome != after.outcome for before, after in pairs)
    paid = sum((after.cost_usd - before.cost_usd for before, after in pairs), Decimal(0))
    out.print(
        safe(
            f"{count_of(len(pairs), 'answer')} checked again: {changed:,} with another outcome; the judge cost {cost(paid)}"
        )
    )
