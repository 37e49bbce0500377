"""``nightdesk label``: what people say of answers and claims, stored and exported."""

from typing import Annotated
from uuid import UUID

import orjson

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.help import argument, option
from worker.cli.outfile import STDOUT, check_output, writing
from worker.cli.session import on_ledger
from worker.cli.terminal import actor, tell
from worker.ledger.postgres import PostgresLedger
from worker.operations.counts import count_of
from worker.operations.label_changes import (
    Exported,
    LabelRequest,
    add_label,
    checked_text,
    exported_labels,
    read_verdict,
)

MOST_TOLD = 80
"""Characters of a claim that are repeated."""

EXPORT = "export"


def label(
    job: Annotated[
        str,
        argument("A job's id, or BATCH:CUSTOM_ID, or BATCH:lineN; or export.", "JOB|export"),
    ],
    verdict: Annotated[
        str | None,
        argument("supported, contradicted, unsupported, not_checkable; or 1, 0.", "[VERDICT]"),
    ] = None,
    claim: Annotated[
        int | None,
        option("The claim, as 'show' counts them from 1; default: the whole answer.", metavar="N"),
    ] = None,
    note: Annotated[str | None, option("Why, for those who read it later.")] = None,
    by: Annotated[str | None, option("The person; default: this terminal's user.")] = None,
    *,
    output: options.Output = STDOUT,
    batch: Annotated[UUID | None, options.batch_option("Export the labels of this batch alone.")] = None,
) -> int:
    """Say whether the sources support an answer (all its claims) or one claim; a second time replaces the first.

    'label export -o OUT' writes all as lines that 'nightdesk calibrate' reads: the answer or the claim, its sources and the
    label. Labels are shown by 'show', and go with 'erase'.
    """
    if (verdict is None) is not (job == EXPORT):
        raise InputError(
            "give JOB and VERDICT: nightdesk label JOB supported; or: nightdesk label export -o OUT", field="VERDICT"
        )
    if verdict is None:
        return _export(output, batch)
    person = checked_text(by or actor(), "--by")
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


def _export(output: str, batch_id: UUID | None) -> int:
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
