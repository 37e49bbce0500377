"""``nightdesk demo``: the example questions, answered and shown."""

import gzip
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import orjson

import worker
from tasks.errors import InputError
from tasks.ports import JobView
from tasks.results import result_of
from worker.cli import options
from worker.cli.console import console
from worker.cli.help import option
from worker.cli.job_view import show_answer
from worker.cli.summary import run_lines
from worker.cli.terminal import tell
from worker.cli.whole_run import RunRequest, run_batch
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_intake import InputOrder
from worker.settings import load_settings
from worker.supervise.state_directory import state_of

EXAMPLES = Path(worker.__file__).parents[1] / "examples"
"""In a clone; of an installed package they lie where it put them."""

_PLACE = "share/nightdesk/examples/"
"""Of the examples in the files that an installed package lists."""

MOST_CLAIMS = 4
"""Claims of an answer that is read at a glance."""


def demo(
    examples: Annotated[Path, option("Folder with the questions, as *.jsonl.")] = EXAMPLES,
    output: Annotated[
        Path | None, option("Default: demo.jsonl in NIGHTDESK_HOME.", "--output", "-o", metavar="OUT")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Answer the example questions, show one answer as a reader would want it, and sum all up."""
    files = sorted(map(str, examples.glob("*.jsonl"))) or (_installed_files() if examples == EXAMPLES else [])
    if not files:
        raise InputError(f"there are no *.jsonl in {examples}; name a folder with --examples")
    if str(output) == "-":
        raise InputError("standard output is for the answer shown; name a file for the results")
    settings = load_settings()
    state = state_of(settings)
    state.create()
    path = output or state.root / "demo.jsonl"
    examples_shown: list[JobView] = []

    async def choose(ledger: PostgresLedger) -> None:
        job_id = _best_example(_results(path))
        examples_shown.extend(await ledger.reading.views([job_id] if job_id else []))

    if not quiet:
        tell(f"answering the questions of {len(files)} files, offline unless NIGHTDESK_PROVIDER is set")
    # A key in the environment must not make a demo cost money: only a provider named on purpose is called.
    batch = {"name": "demo", "defaults": {"provider": settings.provider or "extractive"}}
    report = run_batch(settings, RunRequest(str(path), InputOrder(files, batch), quiet=quiet, afterwards=choose))
    if not report.submitted:
        return report.exit_code
    out = console()
    for view in examples_shown:
        out.print()
        show_answer(out, view.request, result_of(view))
    if not quiet:
        out.print()
        for line in run_lines(report, str(path)):
            tell(line)
        for view in examples_shown:
            tell(f"everything about the answer above: nightdesk show {view.job_id}")
    return report.exit_code


def _installed_files() -> list[str]:
    """The examples that were installed with the package; none in a clone."""
    try:
        files = metadata.files("nightdesk") or ()
    except metadata.PackageNotFoundError:
        return []
    return sorted(str(Path(file.locate()).resolve()) for file in files if _PLACE in file.as_posix())


def _results(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return [orjson.loads(line) for line in file]


def _best_example(results: Sequence[Mapping[str, Any]]) -> UUID | None:
    """The answer that shows most: a right one of one document, from several sources, with few enough claims to read."""

    def worth(result: Mapping[str, Any]) -> tuple[bool, bool, bool, int, int]:
        metadata = result["metadata"]
        right = result["outcome"] == metadata.get("expect") == "answered" and all(
            gold in result["response"] for gold in metadata.get("gold", ())
        )
        cited = len({citation["source_index"] for citation in result["citations"]})
        # Sentences of two documents, such as two tariffs, may each be supported and together be no answer.
        together = len({citation["document_id"] for citation in result["citations"]}) == 1
        return right, together, 1 < len(result["claims"]) <= MOST_CLAIMS, cited, -len(result["response"])

    best = max(results, key=worth, default=None)
    return UUID(best["job_id"]) if best and best["job_id"] else None
