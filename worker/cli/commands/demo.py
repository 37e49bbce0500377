"""``nightdesk demo``: the example questions, answered and shown."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import orjson
import typer

import worker
from tasks.errors import InputError
from tasks.ports import JobView, Ledger
from tasks.results import result_of
from worker.cli import options
from worker.cli.messages import tell
from worker.cli.render.answer import show_answer
from worker.cli.render.console import console
from worker.cli.render.kinds import show_kinds
from worker.cli.running import Order, run_batch
from worker.cli.session import state_of
from worker.cli.summary import told
from worker.settings import load_settings

EXAMPLES = Path(worker.__file__).parents[1] / "examples"

MOST_CLAIMS = 4
"""Claims of an answer that is read at a glance."""


def command(
    examples: Annotated[Path, typer.Option(help="Folder with the questions, as *.jsonl.")] = EXAMPLES,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="Default: demo.jsonl in NIGHTDESK_HOME.")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Answer the example questions, show one answer as a reader would want it, and sum all up."""
    files = sorted(map(str, examples.glob("*.jsonl")))
    if not files:
        raise InputError(f"there are no *.jsonl in {examples}; run this from a clone, or name a folder with --examples")
    if str(output) == "-":
        raise InputError("standard output is for the answer shown; name a file for the results")
    settings = load_settings()
    state = state_of(settings)
    state.create()
    written = output or state.root / "demo.jsonl"
    chosen: list[JobView] = []

    async def choose(ledger: Ledger, _: UUID) -> None:
        job_id = _most_telling(_results(written))
        chosen.extend(await ledger.reading.views([job_id] if job_id else []))

    if not quiet:
        tell(f"answering the questions of {len(files)} files, offline unless NIGHTDESK_PROVIDER is set")
    # A key in the environment must not make a demo cost money: only a provider named on purpose is called.
    batch = {"name": "demo", "defaults": {"provider": settings.provider or "extractive"}}
    report = run_batch(settings, Order(str(written), files, batch, quiet=quiet, afterwards=choose))
    out = console()
    for view in chosen:
        out.print()
        show_answer(out, view.request, result_of(view))
    show_kinds(out, _results(written))
    if not quiet:
        out.print()
        for line in told(report, str(written)):
            tell(line)
        for view in chosen:
            tell(f"everything about the answer above: nightdesk show {view.job_id}")
    return report.exit_code


def _results(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return [orjson.loads(line) for line in file]


def _most_telling(results: Sequence[Mapping[str, Any]]) -> UUID | None:
    """The answer that shows most: a right one, from several sources, with few enough claims to read."""

    def worth(result: Mapping[str, Any]) -> tuple[bool, bool, int, int]:
        metadata = result["metadata"]
        right = result["outcome"] == metadata.get("expect") == "answered" and all(
            gold in result["response"] for gold in metadata.get("gold", ())
        )
        cited = len({citation["source_index"] for citation in result["citations"]})
        return right, 1 < len(result["claims"]) <= MOST_CLAIMS, cited, -len(result["response"])

    best = max(results, key=worth, default=None)
    return UUID(best["job_id"]) if best and best["job_id"] else None
