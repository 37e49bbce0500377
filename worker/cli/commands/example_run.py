"""``nightdesk demo``: the example questions, answered and shown."""

from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated
from uuid import UUID

import worker
from tasks.errors import InputError, NotFound
from tasks.ports import JobView
from tasks.results import result_of
from worker.cli import options
from worker.cli.console import console
from worker.cli.help import option
from worker.cli.job_view import show_answer
from worker.cli.summary import run_lines
from worker.cli.terminal import tell
from worker.cli.whole_run import WholeRun
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_intake import InputOrder
from worker.settings import load_settings
from worker.supervise.state_directory import state_of

EXAMPLES = Path(worker.__file__).parents[1] / "examples"
"""In a clone; of an installed package they lie where it put them."""

_PLACE = "share/nightdesk/examples/"
"""Of the examples in the files that an installed package lists."""

EXAMPLE = "manuals-01"
"""The answer that shows most offline: of one document, from two of its sources, with few enough claims to be read at a glance."""


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

    async def choose(ledger: PostgresLedger, batch_id: UUID) -> None:
        examples_shown.extend(await _example(ledger, batch_id))

    if not quiet:
        tell(f"answering the questions of {len(files)} files, offline unless NIGHTDESK_PROVIDER is set")
    # A key in the environment must not make a demo cost money: only a provider named on purpose is called.
    batch = {"name": "demo", "defaults": {"provider": settings.provider or "extractive"}}
    report = WholeRun(output=str(path), order=InputOrder(files, batch), quiet=quiet, afterwards=choose).report(settings)
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


async def _example(ledger: PostgresLedger, batch_id: UUID) -> Sequence[JobView]:
    for name in (EXAMPLE, "line1"):
        # A folder of one's own has others.
        with suppress(NotFound):
            return await ledger.reading.views([await ledger.reading.locate(batch_id, name)])
    return []
