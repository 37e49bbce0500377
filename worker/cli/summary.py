"""Sums up submissions, batches and runs: a few lines for people, or JSON."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from schemas.batch import BatchStatus, FailureCause
from schemas.claim_error import ErrorKind
from schemas.model_call import plain_usd
from schemas.states import HeldReason, Outcome
from tasks.ports import InputLine, Refused
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.progress import counts_of, ending_counts
from worker.cli.terminal import columns, tell, text_columns, write_json
from worker.operations import overview
from worker.operations.counts import cost, count_of, duration, spent_of
from worker.operations.overview import failure_lines

if TYPE_CHECKING:
    # Commands that only show batches need nothing of a run.
    from schemas.budget import BudgetStatus
    from tasks.ports import NewBatch
    from worker.ledger.fleet import LaneNotice
    from worker.operations.file_submission import Accepted, Unchanged
    from worker.operations.result_lines import Tally


def money(status: BatchStatus) -> str:
    """Cost of a batch so far, with the sum that is reserved."""
    ceiling = "" if status.max_cost_usd is None else f" of {plain_usd(status.max_cost_usd)}"
    reserved = f" (and {cost(status.reserved_usd)} reserved)" if status.reserved_usd else ""
    return f"{spent_of(status)}{ceiling}{reserved}"


def named_counts(counts: Mapping[Any, int]) -> str:
    """Counts with their names: ``3 number, 1 name``."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def error_counts(errors: Mapping[Any, int]) -> str:
    """Claims by the kind of their wrong fact: ``3 number, 1 in no source``."""
    return named_counts({ErrorKind(kind).label: count for kind, count in errors.items()})


def held_lines(
    status: BatchStatus, lanes: "Sequence[LaneNotice]" = (), budgets: "Sequence[BudgetStatus]" = ()
) -> list[str]:
    """Reasons for which jobs are held, each with its remedy."""
    lines = [overview.budget_line(budget) for budget in budgets]
    if HeldReason.LANE_PAUSED in status.held:
        lines += [f"{lane.event}. To fix it: {lane.remedy}" for lane in lanes if lane.paused]
    for reason, count in status.held.items():
        remedy = "; ".join(overview.RELEASES[HeldReason(reason)]).format(batch=status.batch_id)
        lines.append(f"{count:,} held ({reason}): {remedy}")
    return lines


def notice_lines(present: overview.Overview, queues: Collection[str] = ()) -> list[str]:
    """Lines on failures, holds and waits of the one batch of an overview, each with its remedy; ``queues`` have worker processes of this home."""
    (status,) = present.batches
    lines = failure_lines(status.batch_id, status.failures or ())
    lines += held_lines(status, present.lanes, present.budgets)
    if status.final < status.jobs:
        lines += [overview.unserved_line(present.unserved, queues)] if present.unserved else []
        lines += [f"{lane.event}. To fix it: {lane.remedy}" for lane in present.lanes if not lane.paused]
    return lines


def describe(accepted: "Accepted") -> str:
    """The outcome of a submission, for people."""
    jobs = count_of(accepted.jobs, "job")
    holders = ", ".join(f"{batch_id} ({count:,})" for batch_id, count in accepted.holders.items())
    if accepted.submitted_at is not None:
        at = f"{accepted.submitted_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        text = f"batch {accepted.batch_id} was submitted before, at {at}: {jobs}, nothing new"
    elif accepted.created:
        text = f"batch {accepted.batch_id}: {jobs} submitted"
        if accepted.unchanged:
            text += f"; {len(accepted.repeated):,} of them in other batches"
        elif accepted.repeated:
            text += f"; {len(accepted.repeated):,} of them known from before by their idempotency key"
            text += f", in {holders}" if holders else ""
    elif accepted.jobs:
        how = "unchanged" if accepted.unchanged else "known from before by their idempotency key"
        text = f"nothing new: {jobs} {how}, in {holders}; no batch was made"
    else:
        text = "nothing was submitted"
    if accepted.refused:
        text += f"; {count_of(len(accepted.refused), 'line was', 'lines were')} not valid"
    return text


def earlier_lines(status: BatchStatus) -> list[str]:
    """The batch that the same input has already, with the way to pay anew."""
    name = f" ({status.name})" if status.name else ""
    state = "takes its answers" if status.final == status.jobs else "goes on with it"
    return [
        f"same input as batch {status.batch_id}{name}",
        f"{status.final:,} of {status.jobs:,} jobs final: {state}; --again pays anew",
    ]


def kept_lines(status: BatchStatus, batch: "NewBatch") -> list[str]:
    """The options of a command that the batch of the same input does not take, each with the way to change it."""
    lines = []
    options = [
        option
        for option, own, typed in (
            ("--not-before", status.not_before, batch.not_before),
            ("--window", status.window, batch.window),
            ("--deadline", status.deadline, batch.deadline),
        )
        if typed not in {None, own}
    ]
    if options and status.final < status.jobs:
        lines.append(
            f"the batch keeps its own {', '.join(options)}; for another, end it and hand it in with --again:\n  nightdesk cancel {status.batch_id}"
        )
    if (ceiling := raised_ceiling(status, batch)) is not None:
        lines.append(f"its ceiling is {plain_usd(ceiling)} USD now: jobs that were held for it go on")
    elif batch.max_cost_usd not in {None, status.max_cost_usd}:
        lines.append(
            f"its ceiling stays as it is; to change it:\n  nightdesk release {status.batch_id} --max-cost-usd {batch.max_cost_usd}"
        )
    return lines


def raised_ceiling(status: BatchStatus, batch: "NewBatch") -> Decimal | None:
    """The ceiling of a command that is above the one that the batch of the same input has; a lower one is no order."""
    if batch.max_cost_usd is None or status.max_cost_usd is None or batch.max_cost_usd <= status.max_cost_usd:
        return None
    return batch.max_cost_usd


def unchanged_line(unchanged: "Unchanged") -> str:
    """The part of an input that takes the answers of earlier batches, and the way to pay anew."""
    (batch_id, _), *rest_of_batches = unchanged.jobs.most_common()
    more = f" and {count_of(len(rest_of_batches), 'other')}" if rest_of_batches else ""
    return (
        f"unchanged since batch {batch_id}{more}, with the answers from there: {unchanged.jobs.total():,} of "
        f"{count_of(unchanged.lines, 'line')}; --again pays all anew"
    )


def refused_document(lines: Iterable[Refused]) -> list[dict[str, Any]]:
    """Refused lines, for programs."""
    return [{"position": line.position, "where": line.place, "message": line.message} for line in lines]


class Report(NamedTuple):
    """The outcome of a whole run."""

    batch_id: UUID | None
    status: BatchStatus | None
    tally: "Tally"
    lines: Sequence[InputLine]
    """Those that are no jobs of the batch."""
    seconds: float
    lanes: "Sequence[LaneNotice]" = ()
    """Those without calls at the end, while jobs are held for it."""
    failures: tuple[FailureCause, ...] = ()
    """Of the jobs that failed."""
    accepted: "Accepted | None" = None
    """Of files that were only handed in; of a batch that was there already, with its status."""

    @property
    def submitted(self) -> bool:
        """Tells that there are jobs; without any the output stays as it is."""
        return self.batch_id is not None or len(self.refused) < len(self.lines) or not self.lines

    @property
    def exit_code(self) -> int:
        """See ``exits``."""
        if not self.submitted:
            return BAD_INPUT
        return OK if self.tally.all_well else INCOMPLETE

    @property
    def refused(self) -> list[Refused]:
        """The lines that are no valid jobs."""
        return [line for line in self.lines if isinstance(line, Refused)]


def run_lines(report: Report, output: str) -> list[str]:
    """The end of a run, for people."""
    status = report.status
    if not report.submitted:
        return [] if output == "-" else [f"{output} stays as it is"]
    lines = [] if status is None else _lines_of_batch(report, status, output)
    if errors := report.tally.error_kinds:
        lines.append(f"wrong facts in claims: {error_counts(errors)}")
    if refused := report.refused:
        lines.append(f"{len(refused):,} of {count_of(report.tally.lines, 'line')} not valid: in the output as failed")
    waiting = report.tally.waiting
    counts = count_of(report.tally.lines - waiting, "result") + (
        f" and {waiting:,} without an answer yet" if waiting else ""
    )
    lines.append(f"{counts} written to {'standard output' if output == '-' else output}")
    if waiting and (status is None or status.final == status.jobs):
        jobs = count_of(waiting, "line waits for a job", "lines wait for jobs")
        lines.append(f"{jobs} of other batches that are held: 'nightdesk status' names those, then run this again")
    return lines


def _lines_of_batch(report: Report, status: BatchStatus, output: str) -> list[str]:
    lines = ending_lines(status, report.seconds, columns())
    if status.possibly_billed_twice:
        lines.append(f"possibly billed twice: {status.possibly_billed_twice}")
    lines += failure_lines(status.batch_id, report.failures)
    if holds := held_lines(status, report.lanes):
        lines += [*holds, f"then go on with: nightdesk run --resume {status.batch_id} -o {output}"]
    return lines + _open_lines(status)


def _open_lines(status: BatchStatus) -> list[str]:
    """The answers of which words leave claims open, and who may read them."""
    if not (unverified := status.outcomes.get(Outcome.UNVERIFIED)):
        return []
    return [
        f"words leave claims of {count_of(unverified, 'answer')} open; to read them: nightdesk report {status.batch_id}",
        f"or let a judge read them: nightdesk recheck {status.batch_id} --judge PROVIDER",
    ]


def ending_lines(status: BatchStatus, seconds: float, width: int | None) -> list[str]:
    """The ending of a batch: bars for a terminal of some width, one line for a log."""
    jobs, took = count_of(status.jobs, "job"), duration(seconds)
    counts = ending_counts(status)
    if width is None or not counts:
        return [f"{jobs} in {took}: {counts_of(status)}; cost {money(status)}"]
    names, numbers = max(len(name) for name, _ in counts), max(len(f"{count:,}") for _, count in counts)
    cells = max(1, min(_BAR_CELLS, text_columns(width) - names - numbers - len("    100% ")))
    lines = [f"{jobs} in {took}; cost {money(status)}"]
    for name, count in counts:
        # What there is at all can be seen.
        bar = "█" * max(1, round(cells * count / status.jobs))
        share = "<1%" if count < status.jobs / 200 else f"{count / status.jobs:.0%}"
        lines.append(f"  {name:<{names}} {count:>{numbers},} {share:>4} {bar}")
    return lines


_BAR_CELLS = 50


def _document(report: Report, output: str) -> dict[str, Any]:
    """The end of a run, for programs."""
    return {
        "batch_id": str(report.batch_id) if report.batch_id else None,
        "output": output if report.submitted else None,
        "lines": report.tally.lines,
        "states": dict(report.tally.states),
        "errors": report.tally.error_kinds,
        "invalid_lines": refused_document(report.refused),
        "status": report.status
        and overview.status_document(report.status.model_copy(update={"failures": report.failures}), report.lanes),
        "seconds": round(report.seconds, 3),
        "exit_code": report.exit_code,
    }


def sum_up(report: Report, output: str, *, quiet: bool, as_json: bool) -> int:
    """Says how a run went, unless it asks for quiet, and returns its exit code."""
    if as_json and output != "-":
        write_json(_document(report, output))
    elif not quiet:
        for line in run_lines(report, output):
            tell(line)
    return report.exit_code
