"""Says how a run went: a few lines for people, or JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from schemas.batch import BatchStatus, LaneStatus
from schemas.states import HeldReason
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.progress import counts_of, duration
from worker.limits.remedies import event, remedy

if TYPE_CHECKING:
    # Commands that only show batches need nothing of a run.
    from worker.cli.running import Order, Report
    from worker.ledger.fleet import LaneNotice

_RELEASES = {
    HeldReason.BUDGET: (
        "the batch's ceiling on cost is reached; raise it with: nightdesk release {batch} --max-cost-usd USD"
    ),
    HeldReason.BATCH_PAUSED: "the batch is paused; let it go on with: nightdesk release {batch}",
    HeldReason.LANE_PAUSED: "no calls are made to the provider; once that is mended: nightdesk release {batch}",
    HeldReason.UNKNOWN_OUTCOME: (
        "a call was sent and its answer never came, so it may have been billed; to call again: nightdesk release {batch}"
    ),
}


def money(status: BatchStatus) -> str:
    """What a batch has cost, and what may come on top."""
    if status.spent_usd is None:
        return "unknown: no price is known for a model that was called"
    spent = f"{status.spent_usd.normalize():f} USD"
    if status.max_cost_usd is not None:
        spent += f" of {status.max_cost_usd.normalize():f}"
    if status.reserved_usd:
        spent += f" (and {status.reserved_usd.normalize():f} reserved)"
    return spent


def held_lines(status: BatchStatus, lanes: "Sequence[LaneNotice]" = ()) -> list[str]:
    """Why jobs are held, and what lets them go."""
    lines = []
    if HeldReason.LANE_PAUSED in status.held:
        lines += [f"{event(lane)}. To mend it: {remedy(lane)}" for lane in lanes if lane.paused]
    for reason, count in status.held.items():
        how = _RELEASES.get(HeldReason(reason), "release it with: nightdesk release {batch}")
        lines.append(f"{count} held ({reason}): {how.format(batch=status.batch_id)}")
    return lines


def told(report: "Report", output: str) -> list[str]:
    """The end of a run, for people."""
    status = report.status
    lines = []
    if status is not None:
        jobs = f"{status.jobs} {'job' if status.jobs == 1 else 'jobs'}"
        lines.append(f"{jobs} in {duration(report.seconds)}: {counts_of(status)}; cost {money(status)}")
        if status.possibly_billed_twice:
            lines.append(f"possibly billed twice: {status.possibly_billed_twice}")
        held = held_lines(status, report.lanes)
        lines += held
        if held:
            lines.append(f"then go on with: nightdesk run --resume {status.batch_id} -o {output}")
    if refused := report.refused:
        lines.append(f"{len(refused)} of {report.tally.lines} lines were not valid; they stand in the output as failed")
    lines.append(f"{report.tally.lines} results written to {'standard output' if output == '-' else output}")
    return lines


def _document(report: "Report", output: str) -> dict[str, Any]:
    """The end of a run, for programs."""
    return {
        "batch_id": str(report.batch_id) if report.batch_id else None,
        "output": output,
        "lines": report.tally.lines,
        "states": dict(report.tally.states),
        "invalid_lines": [
            {"position": line.position, "where": line.place, "message": line.message} for line in report.refused
        ],
        "status": status_document(report.status, report.lanes) if report.status else None,
        "seconds": round(report.seconds, 3),
        "exit_code": report.exit_code,
    }


def status_document(status: BatchStatus, lanes: "Sequence[LaneNotice]") -> dict[str, Any]:
    """The status of a batch with the lanes without calls, for programs."""
    paused = tuple(LaneStatus(**asdict(lane), mend=remedy(lane)) for lane in lanes)
    return status.model_copy(update={"lanes": paused}).model_dump(mode="json")


def sum_up(report: "Report", order: "Order", *, as_json: bool) -> int:
    """Say how a run went, unless its order asks for quiet, and return its exit code."""
    if as_json and order.output != "-":
        write_json(_document(report, order.output))
    elif not order.quiet:
        for line in told(report, order.output):
            tell(line)
    return report.exit_code
