"""``nightdesk label`` and ``labels``: what people say of answers and claims, stored, imported, exported."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import orjson
import typer

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK, run_interruptible
from worker.cli.outfile import check_output, writing
from worker.cli.session import Session, session
from worker.cli.terminal import actor, tell, warn, write_json
from worker.operations.counts import count_of
from worker.operations.json_lines import check_files
from worker.operations.label_changes import (
    Exported,
    Imported,
    LabelRequest,
    add_label,
    checked_text,
    exported_labels,
    import_labels,
    read_verdict,
)
from worker.settings import load_settings

MOST_WARNINGS = 20
"""Refused lines that are warned of."""

MOST_TOLD = 80
"""Characters of a claim that are repeated."""


def label(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or BATCH:CUSTOM_ID, or BATCH:lineN.")],
    verdict: Annotated[
        str, typer.Argument(metavar="VERDICT", help="supported, contradicted, unsupported, not_checkable; or 1, 0.")
    ],
    claim: Annotated[
        int | None,
        typer.Option(metavar="N", help="The claim, as 'show' counts them from 1; default: the whole answer."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why, for those who read it later.")] = None,
    by: Annotated[str | None, typer.Option(help="The person; default: the user of this terminal.")] = None,
) -> int:
    """Say whether the sources support an answer (all its claims) or one claim; a second time replaces the first.

    Labels are shown by 'show', exported by 'labels export' for 'calibrate', and go with 'erase'.
    """
    target, name = options.job_target(job, "a job's id")
    request = LabelRequest(
        target,
        read_verdict(verdict, "VERDICT"),
        checked_text(by or actor(), "--by"),
        name,
        claim=claim,
        note=None if not note else checked_text(note, "--note"),
    )

    async def store(opened: Session) -> str:
        async with opened.ledger() as ledger:
            stored, view = await add_label(ledger, request)
            grounding = view.record.grounding if view.record is not None else None
            if stored.claim is None or grounding is None:
                return f"answer of job {view.job_id}"
            return f"claim {stored.claim}: {grounding.claims[stored.claim - 1].text[:MOST_TOLD]}"

    with session(load_settings(), writes=False) as opened:
        place = run_interruptible(store(opened))
    tell(f"{request.verdict.value}, by {request.actor}: {place}")
    return OK


class Action(StrEnum):
    """The way of the labels."""

    IMPORT = "import"
    EXPORT = "export"


def labels(
    action: Annotated[Action, typer.Argument(help="import or export.")],
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="JSON lines to import; .gz is read; - is standard input.")
    ] = None,
    *,
    output: options.Output = "-",
    batch: Annotated[str | None, typer.Option(metavar="BATCH", help="Export the labels of this batch alone.")] = None,
    by: Annotated[
        str | None, typer.Option(help="The person of lines without 'by'; default: the user of this terminal.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Import labels of people from a file, or export all of them as lines that 'nightdesk calibrate' reads.

    A line to import has job_id (or batch_id with custom_id or position), verdict, and if wanted claim (its number), note
    and by. A bad line is refused alone. A line of the export has the answer or the claim, its sources and the label.
    """
    if (file is None) is (action is Action.IMPORT):
        raise InputError("import takes a FILE, export takes -o OUT: nightdesk labels import FILE", field="FILE")
    if action is Action.IMPORT:
        return _import(str(file), checked_text(by or actor(), "--by"), as_json=as_json)
    batch_id = None if batch is None else options.batch_id(batch)
    check_output(output)
    with session(load_settings(), writes=False) as opened:
        counts = run_interruptible(_export(opened, output, batch_id))
    noun = "label" if counts.lines == 1 else "labels"
    tell(f"{counts.lines:,} {noun} written" + ("" if output == "-" else f" to {output}"))
    for count, reason in (
        (counts.without_label, "are not_checkable, which 'nightdesk calibrate' can't learn from"),
        (counts.stale, "are of an answer that was replaced by a later run, or is gone"),
    ):
        if count:
            tell(f"{count_of(count, 'label is', 'labels are')} left out: {reason}")
    return OK


def _import(file: str, person: str, *, as_json: bool) -> int:
    check_files([file])
    warnings = 0

    def report(fault: str) -> None:
        nonlocal warnings
        warnings += 1
        if warnings <= MOST_WARNINGS:
            warn(fault)

    async def read(opened: Session) -> Imported:
        async with opened.ledger() as ledger:
            return await import_labels(ledger, file, person, report)

    with session(load_settings(), writes=False) as opened:
        done = run_interruptible(read(opened))
    if as_json:
        write_json({"lines": done.lines, "stored": done.stored, "refused": done.refused})
    if warnings > MOST_WARNINGS:
        warn(f"{count_of(warnings - MOST_WARNINGS, 'more line was', 'more lines were')} refused: --json lists all")
    tell(f"{count_of(done.stored, 'label')} of {count_of(done.lines, 'line')} stored")
    return INCOMPLETE if done.refused else OK


async def _export(opened: Session, output: str, batch_id: UUID | None) -> Exported:
    counts = Exported()
    async with opened.ledger() as ledger:
        if batch_id is not None:
            await ledger.reading.batch_status(batch_id)
        with writing(output) as file:
            async for line in exported_labels(ledger, counts, batch_id):
                file.write(orjson.dumps(line) + b"\n")
    return counts
