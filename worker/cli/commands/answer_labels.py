"""``nightdesk label``: what people say of answers and claims, stored, imported, exported."""

from dataclasses import asdict
from typing import Annotated

import orjson

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import argument, option
from worker.cli.outfile import STDOUT, check_output, writing
from worker.cli.session import on_ledger
from worker.cli.terminal import actor, tell, warn, write_json
from worker.ledger.postgres import PostgresLedger
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

MOST_WARNINGS = 20
"""Refused lines that are warned of."""

MOST_TOLD = 80
"""Characters of a claim that are repeated."""

IMPORT, EXPORT = "import", "export"


def label(
    job: Annotated[
        str,
        argument("A job's id, or BATCH:CUSTOM_ID, or BATCH:lineN; or the way of many labels.", "JOB|import|export"),
    ],
    verdict: Annotated[
        str | None,
        argument(
            "Of a job: supported, contradicted, unsupported, not_checkable; or 1, 0. To import: JSON lines, also .gz; "
            "- is standard input.",
            "[VERDICT|FILE]",
        ),
    ] = None,
    claim: Annotated[
        int | None,
        option("The claim, as 'show' counts them from 1; default: the whole answer.", metavar="N"),
    ] = None,
    note: Annotated[str | None, option("Why, for those who read it later.")] = None,
    by: Annotated[
        str | None, option("The person, also of imported lines without 'by'; default: this terminal's user.")
    ] = None,
    *,
    output: options.Output = STDOUT,
    batch: Annotated[str | None, option("Export the labels of this batch alone.", metavar="BATCH")] = None,
    as_json: options.Json = False,
) -> int:
    """Say whether the sources support an answer (all its claims) or one claim; a second time replaces the first.

    'label import FILE' stores many: a line has job_id (or batch_id with custom_id or position), verdict, and if wanted claim
    (its number), note and by. A bad line is refused alone. 'label export -o OUT' writes all as lines that 'nightdesk
    calibrate' reads: the answer or the claim, its sources and the label. Labels are shown by 'show', and go with 'erase'.
    """
    if (verdict is None) is not (job == EXPORT):
        raise InputError(
            "give JOB and VERDICT: nightdesk label JOB supported; or: nightdesk label import FILE; or: nightdesk label "
            "export -o OUT",
            field="VERDICT",
        )
    if verdict is None:
        return _export(output, batch)
    person = checked_text(by or actor(), "--by")
    if job == IMPORT:
        return _import(verdict, person, as_json=as_json)
    target, name = options.job_target(job, "a job's id")
    text = None if not note else checked_text(note, "--note")
    request = LabelRequest(target, read_verdict(verdict, "VERDICT"), person, name, claim=claim, note=text)
    stored, view = on_ledger(lambda ledger: add_label(ledger, request))
    grounding = view.record.grounding if view.record is not None else None
    place = f"answer of job {view.job_id}"
    if stored.claim is not None and grounding is not None:
        place = f"claim {stored.claim}: {grounding.claims[stored.claim - 1].text[:MOST_TOLD]}"
    tell(f"{request.verdict.value}, by {request.actor}: {place}")
    return OK


def _export(output: str, batch: str | None) -> int:
    batch_id = None if batch is None else options.batch_id(batch)
    check_output(output)
    counts = Exported()

    async def write(ledger: PostgresLedger) -> None:
        if batch_id is not None:
            await ledger.reading.batch_status(batch_id)
        with writing(output) as file:
            async for line in exported_labels(ledger, counts, batch_id):
                file.write(orjson.dumps(line) + b"\n")

    on_ledger(write)
    tell(f"{count_of(counts.lines, 'label')} written" + ("" if output == STDOUT else f" to {output}"))
    for count, reason in (
        (counts.without_label, "are not_checkable, which 'nightdesk calibrate' can't learn from"),
        (counts.stale, "are of an answer that was replaced by a later run, or is gone"),
    ):
        if count:
            tell(f"{count_of(count, 'label is', 'labels are')} left out: {reason}")
    return OK


def _import(file: str, person: str, *, as_json: bool) -> int:
    check_files([file])
    done = Imported()
    try:
        on_ledger(lambda ledger: import_labels(ledger, file, person, done))
    finally:
        for fault in done.refused[:MOST_WARNINGS]:
            warn(fault)
    if as_json:
        write_json(asdict(done))
    if (more := len(done.refused) - MOST_WARNINGS) > 0:
        warn(f"{count_of(more, 'more line was', 'more lines were')} refused: --json lists all")
    tell(f"{count_of(done.stored, 'label')} of {count_of(done.lines, 'line')} stored")
    return INCOMPLETE if done.refused else OK
