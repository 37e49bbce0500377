"""``nightdesk estimate``: tokens, cost and time of files before a call."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from rich.console import Console
from rich.text import Text

from schemas.states import Step
from tasks.estimates.estimate import Estimate
from tasks.ports import Refused
from worker.cli import options
from worker.cli.console import console, table_of
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK, run_interruptible
from worker.cli.progress import reporting
from worker.cli.session import on_ledger
from worker.cli.terminal import tell, warn, write_json
from worker.cli.waiting import warn_of
from worker.ledger.postgres import PostgresLedger
from worker.operations.answerers import find_answerers
from worker.operations.counts import amount, cost, count_of, duration
from worker.operations.estimation import Estimation, estimate_submission, to_json
from worker.operations.file_submission import Submission
from worker.settings import Settings, load_settings
from worker.supervise.state_directory import state_of

COLUMNS = 80

WORTH_A_TRIAL = 300
"""Calls from which on a trial of a hundred is small beside them."""

WIDE = 1.5
"""The upper bound of the cost as a multiple of the usual one, beyond which a trial is suggested."""


@options.with_handover()
def estimate(
    files: options.Files = None,
    *,
    handover: options.Handover,
    like: Annotated[
        UUID | None,
        options.batch_option("Go by the calls of this batch alone: a trial with questions of this kind."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Estimate tokens, cost and time of the questions of files; no call is made and nothing is submitted.

    Prompts are rendered as for a call. The length of answers, what judges and further models add, and the time come from
    earlier calls of the same model in this ledger, if there are any.
    """
    order = handover.order(files)
    refused: list[Refused] = []

    async def read(settings: Settings, ledger: PostgresLedger | None) -> Estimation:
        submission = Submission(
            replace(order, strict=False),
            settings,
            await find_answerers(settings, Step.GENERATE, starts=True),
            on_refused=refused.append,
            warn=warn,
            tell=tell,
        )
        return await estimate_submission(submission, ledger, like, lambda jobs: reporter.pages("reading", jobs, None))

    try:
        with reporting(quiet=as_json) as reporter:
            estimation = _with_ledger(load_settings(), read)
    finally:
        warn_of(refused)
    return show_estimation(estimation, as_json=as_json)


def _with_ledger(
    settings: Settings, read: Callable[[Settings, PostgresLedger | None], Coroutine[Any, Any, Estimation]]
) -> Estimation:
    """Reads with the ledger of the settings; without one where none was made yet: an estimate makes nothing."""
    if settings.embedded() and not state_of(settings).has_servers:
        return run_interruptible(read(settings, None))
    return on_ledger(lambda ledger: read(settings, ledger), settings)


# ---- for people ------------------------------------------------------------------------------------------------------


def show_estimation(estimation: Estimation, *, as_json: bool) -> int:
    """Writes an estimate, for people or programs; returns the exit code."""
    if as_json:
        write_json(to_json(estimation))
    else:
        # At most 80 columns wide: a report to be pasted into a letter.
        out = console()
        out = out if out.is_terminal else Console(width=COLUMNS, highlight=False)
        if estimation.lines > len(estimation.refused):
            # What everybody asks comes first.
            out.print(Text(_price_line(estimation.estimate), style="bold"))
        for line in (*_bounds(estimation), *_facts(estimation)):
            out.print(Text(line))
        if estimation.estimate.models:
            _table(out, estimation.estimate)
        for line in _remarks(estimation):
            out.print(Text(line))
    if not estimation.estimate.jobs:
        return BAD_INPUT if estimation.refused or not estimation.lines else OK
    return INCOMPLETE if estimation.refused or estimation.estimate.problems else OK


def _facts(estimation: Estimation) -> list[str]:
    estimate = estimation.estimate
    counts = [
        (estimate.calls, "call a model"),
        (estimate.check_only, "are only checked"),
        *((count, f"end as {outcome.value}, without a call") for outcome, count in estimate.uncalled.items()),
        (estimation.repeats, "are known by their idempotency key"),
        (estimation.unchanged, "keep the answers of an earlier batch"),
        (len(estimation.refused), "would be refused"),
    ]
    texts = ", ".join(f"{count:,} {text}" for count, text in counts if count)
    facts = [f"{count_of(estimation.lines, 'job')}: {texts or 'there is nothing to estimate'}"]
    if estimation.default is not None and estimation.why:
        facts.append(f"jobs that name no provider go to {estimation.default}, {estimation.why}")
    facts += [f"{count:,} would fail: {problem}" for problem, count in estimate.problems.items()]
    return facts


def _table(out: Console, estimate: Estimate) -> None:
    """Some lines a model, in 80 columns, and the bases of its figures."""
    headings = ("estimate", "from", "to")
    table = table_of("", *headings, right=headings, whole=headings)
    for row in estimate.models:
        table.add_row(Text(f"{row.name} {row.lane}, {count_of(row.calls, 'call')}", style="bold"))
        for name, spread, show in (
            ("tokens in", row.input_tokens, "{:,.0f}".format),
            ("tokens out", row.output_tokens, "{:,.0f}".format),
            ("USD", row.cost_usd, amount),
            *([("USD of further calls", row.further_usd, amount)] if row.further_from else []),
        ):
            cells = ("unknown",) if spread is None else map(show, (spread.usual, spread.low, spread.high))
            table.add_row(f"  {name}", *cells)
    out.print(table)
    for row in estimate.models:
        basis = f"tokens in by {row.counted_by}; tokens out from {row.output_from}"
        further = (
            f"; further calls (judges, second rounds, further models): {row.further_from}" if row.further_from else ""
        )
        out.print(Text(f"{row.name}: {basis}{further}"))


def _bounds(estimation: Estimation) -> list[str]:
    """Lines on the bounds of the estimate: prices that are unknown, the ceiling, the time."""
    estimate = estimation.estimate
    unpriced = estimate.unpriced
    lines = [f"the price of {', '.join(unpriced)} is unknown: it is not in this cost"] if unpriced else []
    lines += _ceiling(estimation)
    if estimate.seconds is None:
        lines.append(f"time unknown: {estimate.bound_by}")
    elif estimate.calls:
        low, usual, high = map(duration, estimate.seconds)
        lines.append(f"time {usual}, from {low} to {high}, by {estimate.bound_by}")
    if estimation.late_s is not None:
        lines.append(
            f"that is {duration(estimation.late_s)} beyond the deadline: jobs that are not final then expire; the lane "
            "'auto' takes one that is expected in time, if there is one"
        )
    return lines


def _price_line(estimate: Estimate) -> str:
    """The cost with its bounds; unknown, and never 0, where no price is known."""
    if (spread := estimate.cost_usd) is None:
        return "cost unknown"
    bounds = f", from {amount(spread.low)} to {amount(spread.high)}" if spread.low < spread.high else ""
    return f"cost {cost(spread.usual)}{bounds}"


def _remarks(estimation: Estimation) -> list[str]:
    lines, spread = list[str](), estimation.estimate.cost_usd
    if not estimation.history:
        lines.append("there is no ledger here yet to learn from: answers of earlier batches narrow the estimate")
    if estimation.estimate.calls >= WORTH_A_TRIAL and spread and spread.high > WIDE * spread.usual:
        lines.append(
            "the bounds are wide. Better after a trial: run a hundred lines as --name trial, then give --like trial"
        )
    return lines


def _ceiling(estimation: Estimation) -> list[str]:
    ceiling, estimate = estimation.max_cost_usd, estimation.estimate
    expected, reserve = estimate.cost_usd, estimate.reserve_usd
    if ceiling is None or expected is None or not estimate.jobs:
        return []
    if float(ceiling) >= expected.high + float(reserve):
        return [f"the ceiling of {ceiling.normalize():f} USD is enough"]
    if expected.usual <= 0:
        return []
    share = max(0.0, min(1.0, float(ceiling - reserve) / expected.usual))
    calls = f"{int(share * estimate.calls):,} of {count_of(estimate.calls, 'call')}"
    enough = f"the ceiling of {ceiling.normalize():f} USD is enough for about {calls}"
    return [f"{enough}; the other jobs would be held"]
