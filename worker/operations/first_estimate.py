"""Keeps the estimate of a batch with the batch, and says beside the truth how far it was off."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from tasks.errors import InputError
from tasks.ports import NewBatch
from worker.ledger.postgres import PostgresLedger
from worker.operations.answerers import Answerers
from worker.operations.counts import amount, cost
from worker.operations.estimation import Estimation, estimate_files, read_truth, to_json, truth_document
from worker.operations.input_columns import ColumnMap
from worker.operations.input_content import SameInput
from worker.settings import Settings

_NOT_KEPT = ("refused", "problems", "truth", "first", "max_cost_usd")
"""Texts that may quote a line, and facts that the batch has itself."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """An estimated amount beside the truth; ``off`` is the share of the truth by which it is too high, None for no truth."""

    name: str
    usual: float
    low: float
    high: float
    truth: float | None

    @property
    def off(self) -> float | None:
        """The deviation of the usual value."""
        return self.usual / self.truth - 1 if self.truth else None

    @property
    def within(self) -> bool | None:
        """True if the truth is within the bounds, as they are kept: to a millionth."""
        return None if self.truth is None else self.low - 1e-6 <= self.truth <= self.high + 1e-6


def check_readable_twice(files: Sequence[str]) -> None:
    """Raises ``InputError`` for an input that can be read only once: an estimate reads it before the submission does."""
    if bad := [name for name in files if not Path(name).is_file()]:
        raise InputError(
            f"{bad[0]} can be read only once, and an estimate reads it first: save it to a file", field="--estimate"
        )


async def with_estimate(
    batch: NewBatch,
    files: Sequence[str],
    options: dict[str, Any],
    settings: Settings,
    ledger: PostgresLedger,
    *,
    same_input: SameInput | None,
    answerers: Answerers | None = None,
    columns: ColumnMap | None = None,
    priority: int = 0,
) -> tuple[NewBatch, Estimation]:
    """The batch of some files with their estimate, before it is written; of the same lines as the submission is."""
    estimation = await estimate_files(
        files, options, settings, ledger, columns=columns, answerers=answerers, same_input=same_input, priority=priority
    )
    first = {name: value for name, value in to_json(estimation).items() if name not in _NOT_KEPT}
    return replace(batch, estimate=first), estimation


async def first_estimate(ledger: PostgresLedger, batch_id: UUID) -> dict[str, Any] | None:
    """The estimate that is kept with a batch, beside the truth so far; None where none is kept."""
    first = await ledger.history.estimate_of(batch_id)
    if first is None:
        return None
    status = await ledger.reading.batch_status(batch_id)
    document = {**first, "truth": truth_document(await read_truth(ledger, status))}
    off = {each.name: {"off": each.off, "within": each.within} for each in deviations(document, document["truth"])}
    return {**document, "off": off}


def deviations(first: Mapping[str, Any], truth: Mapping[str, Any]) -> Iterator[Deviation]:
    """Tokens in and out and cost of a kept estimate, each beside the truth."""
    models = truth["models"]
    costs = [row["cost_usd"] for row in models]
    for name, real in (
        ("input_tokens", float(sum(row["input_tokens"] for row in models))),
        ("output_tokens", float(sum(row["output_tokens"] for row in models))),
        ("cost_usd", None if None in costs else float(sum(map(float, costs)))),
    ):
        usual, low, high = (float(first[name][part]) for part in ("usual", "low", "high"))
        yield Deviation(name, usual, low, high, real)


def estimate_line(estimation: Estimation) -> str:
    """The estimate in one line, for people."""
    estimate = estimation.estimate
    spread = estimate.cost_usd
    tokens = [round(estimate.total(name).usual) for name in ("input_tokens", "output_tokens")]
    line = f"estimate: {estimate.calls:,} calls, {tokens[0]:,} tokens in, {tokens[1]:,} out"
    unknown = f", without {', '.join(estimate.unpriced)}" if estimate.unpriced else ""
    return f"{line}, {cost(spread.usual)} ({amount(spread.low)} to {amount(spread.high)}{unknown})"


_WORDS = {
    "input_tokens": ("tokens in", "used"),
    "output_tokens": ("tokens out", "used"),
    "cost_usd": ("USD", "cost"),
}


def deviation_lines(first: Mapping[str, Any], truth: Mapping[str, Any]) -> list[str]:
    """The estimate beside the truth, for people: a line an amount, in 80 columns."""
    lines = []
    if truth["final"] < truth["jobs"]:
        lines.append(f"so far, with {truth['final']:,} of {truth['jobs']:,} jobs final:")
    for each in deviations(first, truth):
        unit, verb = _WORDS[each.name]
        real = "an unknown amount" if each.truth is None else _amount(each.truth, each.name)
        line = f"estimated {_amount(each.usual, each.name)} {unit}, {verb} {real}"
        if each.off is not None:
            bounds = f"{_amount(each.low, each.name)} to {_amount(each.high, each.name)}"
            line += f": off by {each.off:+.1%}, {'within' if each.within else 'OUTSIDE'} {bounds}"
        lines.append(line)
    return lines


def _amount(value: float, name: str) -> str:
    return amount(value) if name == "cost_usd" else f"{value:,.0f}"
