"""``nightdesk recheck``: the present check over stored answers, compared with the check before."""

from collections.abc import Coroutine, Sequence
from typing import Annotated, Any
from uuid import UUID

from rich.console import Console
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName
from schemas.job import Recheck
from schemas.states import FINAL_STATES, JobState
from tasks.errors import InputError
from tasks.policy.comparison import Comparison, Merit
from worker.cli import options
from worker.cli.commands.job_commands import as_operator, job_pages
from worker.cli.difference_view import show_comparison
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.progress import reporting
from worker.cli.session import session
from worker.cli.terminal import tell, warn
from worker.cli.waiting import Watch
from worker.operations import job_changes
from worker.operations.counts import count_of
from worker.operations.operator import JobPages, Operator
from worker.settings import load_settings


def recheck(
    batch_id: options.BatchId,
    *,
    checkers: Annotated[
        str | None, option("structure,lexical,judge; default: each job's own.", metavar="LAYERS")
    ] = None,
    judge: options.Judge = None,
    quiet: options.Quiet = False,
) -> int:
    """Check the answers of a batch again, as they came from the model, and say what that changes.

    Nothing is generated and nothing but a judge is paid for. Each job with an answer gets a new run that begins at its
    check; the record of the run before stays. Jobs that were cancelled, expired or have no answer stay as they are.
    Ended midway, what was begun goes on; the same command again takes all that are final by then.
    """
    settings = load_settings()
    change = Recheck(checkers=_layers(checkers, tuple(settings.checkers)), judge=judge, id=uuid7())
    again = (
        f"The workers finish the rechecks that have started: 'nightdesk watch {batch_id}'. 'nightdesk recheck {batch_id}' takes all "
        "jobs that are final by then, those that were rechecked meanwhile too"
    )
    with (
        session(settings, staffs=True) as opened,
        reporting(quiet=quiet) as reporter,
        job_pages("rechecked", reporter, again=again) as pages,
    ):

        def work(operator: Operator) -> Coroutine[Any, Any, tuple[Comparison, int]]:
            watch = Watch(opened, operator.ledger, reporter, check_only=True)
            return _recheck(operator, watch, batch_id, change, pages)

        comparison, broken = as_operator(opened, work)
    if not quiet:
        show_comparison(comparison, ("before", "after"), Console(stderr=True, highlight=False))
        tell(f"{count_of(comparison.pairs, 'answer')} checked again; the results: nightdesk results {batch_id}")
    return INCOMPLETE if comparison.unfinished or broken or pages.refused else OK


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
    operator: Operator, watch: Watch, batch_id: UUID, change: Recheck, pages: JobPages
) -> tuple[Comparison, int]:
    """The answers before and after, and the number of those of which a layer that was asked for gave no verdicts."""
    reading = operator.ledger.reading
    await reading.batch_status(batch_id)
    before: dict[UUID, Merit] = {}
    unfinished = 0
    async for view in reading.batch_views(batch_id):
        unfinished += view.state not in FINAL_STATES
        if view.state in {JobState.COMPLETED, JobState.FAILED}:
            before[view.job_id] = Merit.of(view)
    if unfinished:
        warn(
            f"{count_of(unfinished, 'job of the batch is', 'jobs of the batch are')} not final yet; left to the first check"
        )
    rechecked = set(await job_changes.recheck(operator, list(before), change, pages))
    await watch.staff()
    await watch.wait(batch_id)
    comparison, broken = Comparison(), 0
    async for view in reading.batch_views(batch_id):
        if view.job_id not in rechecked:
            continue
        if view.state in FINAL_STATES:
            comparison.add(before[view.job_id], Merit.of(view))
        else:
            comparison.unfinished += 1
        broken += bool(view.record and view.record.grounding and view.record.grounding.failed_checkers)
    return comparison, broken
