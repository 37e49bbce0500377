"""``nightdesk compare``: two batches over the same questions, by verdict and cost."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from rich.console import Console

from tasks.errors import InputError
from tasks.policy.comparison import Comparison
from tasks.policy.comparison import compare as compare_views
from tasks.policy.difference import Difference
from worker.cli import options
from worker.cli.console import console, table_of
from worker.cli.difference_view import show_difference
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.help import argument
from worker.cli.session import on_ledger
from worker.cli.terminal import tell, warn, write_json
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import job_of
from worker.operations.counts import amount, cost, count_of
from worker.operations.job_difference import document


def compare(
    first: Annotated[str, argument("The id of a batch or a job, BATCH:CUSTOM_ID, BATCH:lineN.", "A")],
    second: Annotated[str, argument("The one that is compared with it, of the same kind.", "B")],
    as_json: options.Json = False,
) -> int:
    """Compare two batches over the same questions, or two jobs: words, citations, verdicts and cost.

    Of batches: wins, losses and ties of B. An answer wins by its outcome: answered, then partial, then abstained, then all others; of two partial ones the
    answer with the larger share of supported claims. Shares have Wilson's interval of 95 %.
    """
    targets = [options.job_target(text, "the id of a batch or a job") for text in (first, second)]
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
        write_json(document(difference))
    else:
        show_difference(console(), difference)
    return OK if difference.final else INCOMPLETE


def show_comparison(comparison: Comparison, names: tuple[str, str] = ("A", "B"), out: Console | None = None) -> None:
    """Writes the comparison of two batches, under these names."""
    out = out or console()
    first, second = names
    out.print(
        f"{count_of(comparison.pairs, 'question')} in both: {second} wins {comparison.wins:,}, loses {comparison.losses:,}, "
        f"ties {comparison.ties:,}"
    )
    if (share := comparison.win_share) is not None:
        beyond = "beyond chance" if not share.low <= 0.5 <= share.high else "within chance"  # noqa: PLR2004 - a coin
        out.print(
            f"{second} wins {share.value:.1%} of those that differ, from {share.low:.1%} to {share.high:.1%}: {beyond}"
        )
    out.print(f"cost: {first} {cost(comparison.first_usd)}, {second} {cost(comparison.second_usd)}")
    if (more := comparison.more_usd) is not None:
        out.print(f"difference of {second} a job: {cost(more.value)}, from {amount(more.low)} to {amount(more.high)}")
    table = table_of(first, second, "questions", right={"questions"})
    for (before, after), count in comparison.outcomes.most_common():
        table.add_row(before, after, f"{count:,}")
    out.print(table)
    for count, text in (
        (comparison.unfinished, "not final in both batches and not compared"),
        (comparison.only_first, f"in {first} alone"),
        (comparison.only_second, f"in {second} alone"),
    ):
        if count:
            out.print(f"{count_of(count, 'question is', 'questions are')} {text}")


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison, for programs."""
    return {
        **{name: getattr(comparison, name) for name in ("pairs", "wins", "losses", "ties")},
        "win_share": comparison.win_share and asdict(comparison.win_share),
        "cost_usd": {"a": comparison.first_usd, "b": comparison.second_usd},
        "more_usd_per_job": comparison.more_usd and asdict(comparison.more_usd),
        "outcomes": [
            {"a": before, "b": after, "questions": count}
            for (before, after), count in comparison.outcomes.most_common()
        ],
        "unfinished": comparison.unfinished,
        "only_a": comparison.only_first,
        "only_b": comparison.only_second,
    }
