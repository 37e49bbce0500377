"""Shows two answers to one question side by side, facts, words, claims and citations, or the answers of two batches."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from schemas.grounding import Verdict
from tasks.policy.comparison import Comparison
from tasks.policy.difference import Difference, Side
from worker.cli.console import console, safe, table_of
from worker.operations.counts import amount, cost, count_of

_STYLES = {"same": "", "removed": "red", "added": "green"}
_MARKS = {"same": ("", ""), "removed": ("[-", "-]"), "added": ("{+", "+}")}


def show_difference(out: Console, difference: Difference, headings: tuple[str, str] = ("A", "B")) -> None:
    """Writes the whole comparison of two jobs."""
    for heading, side in zip(headings, (difference.first, difference.second), strict=True):
        out.print(safe(f"{heading}: job {side.view.job_id}"))
    out.print(_facts(difference, headings))
    out.print()
    if difference.same_answer:
        out.print(Text("Both answers are the same, word by word."))
    else:
        out.print(Text("Answer: [-only before-] {+only after+}", style="bold"))
        out.print(Padding(_answer(difference), (0, 0, 0, 2)))
    for row in _claim_rows(difference):
        out.print(row)


def _facts(difference: Difference, headings: tuple[str, str]) -> Table:
    first, second = difference.first, difference.second
    table = table_of("", *headings)
    rows = [
        ("model", first.model or "none", second.model or "none"),
        ("prompt", first.prompt or "none", _prompt(difference)),
        ("outcome", _ending(first), _ending(second)),
    ]
    rows += [
        (f"claims {verdict.value.replace('_', ' ')}", str(first.verdicts[verdict]), str(second.verdicts[verdict]))
        for verdict in Verdict
        if first.verdicts[verdict] or second.verdicts[verdict]
    ]
    rows += [
        (
            "citations",
            str(len(first.result.citations)),
            f"{len(second.result.citations)}, {difference.common_citations} of them as before",
        ),
        ("confidence", _score(first.result.confidence), _score(second.result.confidence)),
        ("tokens in+out", _tokens(first), _tokens(second)),
        ("cost", cost(first.view.cost_usd), _cost(difference)),
    ]
    for row in rows:
        table.add_row(*map(safe, row))
    return table


def _prompt(difference: Difference) -> str:
    prompt = difference.second.prompt or "none"
    if difference.same_messages is None:
        return prompt
    return f"{prompt}, {'the same messages' if difference.same_messages else 'other messages'}"


def _ending(side: Side) -> str:
    hold = f", held: {side.view.held_reason}" if side.view.held_reason else ""
    failure = side.result.failure
    return f"{side.view.ending}{hold}" + (f" ({failure.kind.value})" if failure else "")


def _tokens(side: Side) -> str:
    usage = side.result.usage
    return f"{usage.input_tokens:,} + {usage.output_tokens:,}" if usage else "none"


def _score(score: float | None) -> str:
    return "none" if score is None else f"{score:.2f}"


def _cost(difference: Difference) -> str:
    more = difference.more_usd
    now = cost(difference.second.view.cost_usd)
    if difference.second.result.shared_from:
        return f"{now}, a stored answer (--again calls anew)"
    return now if more is None or not more else f"{now} ({'+' if more > 0 else ''}{amount(more)})"


def _answer(difference: Difference) -> Text:
    """Both texts in one."""
    text = Text()
    for kind, piece in difference.words:
        opening, closing = _MARKS[kind]
        body = piece.rstrip() if kind != "same" else piece
        text.append(safe(f"{opening}{body}{closing}{piece[len(body) :]}", _STYLES[kind]))
    return text


def _claim_rows(difference: Difference) -> Iterator[Text]:
    for before, after in difference.claims:
        mark, style = ("~", "yellow") if before and after else ("-", "red") if before else ("+", "green")
        verdicts = " -> ".join(claim.verdict.value for claim in (before, after) if claim)
        if claim := after or before:
            yield Text.assemble((f"{mark} {verdicts}: ", style), safe(claim.text))


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
        "pairs": comparison.pairs,
        "wins": comparison.wins,
        "losses": comparison.losses,
        "ties": comparison.ties,
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
