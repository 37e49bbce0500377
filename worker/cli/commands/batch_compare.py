"""``nightdesk compare``: two batches over the same questions, by verdict and cost."""

from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table

from tasks.policy.comparison import Comparison, Interval
from tasks.policy.comparison import compare as compare_views
from worker.cli import options
from worker.cli.console import console
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK, run_interruptible
from worker.cli.session import Session, session
from worker.cli.terminal import tell, write_json
from worker.settings import load_settings


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="The id of a batch.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The id of the batch that is compared with it.")],
    as_json: options.Json = False,
) -> int:
    """Compare two batches over the same questions: wins, losses and ties of B by verdict, and cost.

    An answer wins by its outcome: answered, then partial, then abstained, then all others; of two partial ones the
    answer with the larger share of supported claims. Shares have Wilson's interval of 95 %.
    """
    batch_ids = options.batch_id(first), options.batch_id(second)
    with session(load_settings(), writes=False) as opened:
        comparison = run_interruptible(_read(opened, *batch_ids))
    if as_json:
        write_json(comparison_document(comparison))
    elif comparison.pairs:
        show_comparison(comparison)
    if not comparison.pairs:
        tell("no question is in both batches with a final answer: there is nothing to compare")
        return BAD_INPUT
    return INCOMPLETE if comparison.unfinished else OK


async def _read(opened: Session, first: UUID, second: UUID) -> Comparison:
    async with opened.ledger() as ledger:
        for batch_id in (first, second):
            await ledger.reading.batch_status(batch_id)
        return await compare_views(ledger.reading.batch_views(first), ledger.reading.batch_views(second))


def show_comparison(comparison: Comparison, names: tuple[str, str] = ("A", "B"), out: Console | None = None) -> None:
    """Writes the comparison of two batches, under these names."""
    out = out or console()
    first, second = names
    out.print(
        f"{comparison.pairs:,} questions in both: {second} wins {comparison.wins:,}, loses {comparison.losses:,}, "
        f"ties {comparison.ties:,}"
    )
    if (share := comparison.win_share) is not None:
        beyond = "beyond chance" if not share.low <= 0.5 <= share.high else "within chance"  # noqa: PLR2004 - a coin
        out.print(
            f"{second} wins {share.value:.1%} of those that differ, from {share.low:.1%} to {share.high:.1%}: {beyond}"
        )
    out.print(f"cost: {first} {_usd(comparison.first_usd)}, {second} {_usd(comparison.second_usd)}")
    if (more := comparison.more_usd) is not None:
        out.print(
            f"a job costs {more.value:+.3g} USD in {second} against {first}, from {more.low:+.3g} to {more.high:+.3g}"
        )
    table = Table(box=None, pad_edge=False)
    for heading in (first, second, "questions"):
        table.add_column(heading, justify="right" if heading == "questions" else "left")
    for (before, after), count in comparison.outcomes.most_common():
        table.add_row(before, after, f"{count:,}")
    out.print(table)
    for count, text in (
        (comparison.unfinished, "are not final in both batches and not compared"),
        (comparison.only_first, f"are in {first} alone"),
        (comparison.only_second, f"are in {second} alone"),
    ):
        if count:
            out.print(f"{count:,} questions {text}")


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount.normalize():f} USD"


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison, for programs."""
    return {
        "pairs": comparison.pairs,
        "wins": comparison.wins,
        "losses": comparison.losses,
        "ties": comparison.ties,
        "win_share": _interval(comparison.win_share),
        "cost_usd": {"a": comparison.first_usd, "b": comparison.second_usd},
        "more_usd_per_job": _interval(comparison.more_usd),
        "outcomes": [
            {"a": before, "b": after, "questions": count}
            for (before, after), count in comparison.outcomes.most_common()
        ],
        "unfinished": comparison.unfinished,
        "only_a": comparison.only_first,
        "only_b": comparison.only_second,
    }


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)
