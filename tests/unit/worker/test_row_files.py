"""Results as tables: columns, and cells that no spreadsheet runs."""

import asyncio
import csv
import io
import json
from typing import Any
from uuid import UUID, uuid4

from schemas.record import JobResult
from tasks.ports import NewBatch, NewJob, Refused
from tasks.submit import new_job, parse_request
from tests.lent_ledger import LentLedger
from worker.operations.file_form import FileForm
from worker.operations.result_lines import write_results
from worker.operations.row_files import RESULT_COLUMNS


def new(position: int, **fields: Any) -> NewJob:
    request, _ = parse_request({"query": f"Question {position}?", "context": ["Text."], **fields})
    return new_job(request, position=position, tenant="default")


def ledger_of(*jobs: NewJob, refused: tuple[Refused, ...] = ()) -> tuple[LentLedger, UUID]:
    ledger, batch = LentLedger(), NewBatch(id=uuid4(), tenant="default")
    asyncio.run(ledger.submission.submit(batch, [list(jobs)], refused=refused))
    return ledger, batch.id


def table_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_every_field_of_a_result_has_a_column() -> None:
    fields = set(JobResult.model_fields) - {"failure"} | {"failure_kind", "failure_message"}
    assert set(RESULT_COLUMNS) == fields


def test_results_become_rows_with_json_in_cells_and_no_formula() -> None:
    ledger, batch_id = ledger_of(
        new(0, query="=HYPERLINK(1)", custom_id="@a", metadata={"note": "=1"}),
        refused=(Refused(2, "not valid", place="in.csv, line 3"),),
    )
    file = io.BytesIO()
    tally = asyncio.run(write_results(file, ledger, batch_id, form=FileForm.CSV))
    first, refused = table_of(file.getvalue())
    assert tally.lines == 2
    assert list(first) == list(RESULT_COLUMNS)
    assert (first["query"], first["custom_id"], first["state"]) == ("'=HYPERLINK(1)", "'@a", "available")
    assert json.loads(first["metadata"]) == {"note": "=1"}
    assert (first["confidence"], first["truncated"], first["claims"]) == ("", "false", "")
    assert (refused["failure_kind"], refused["job_id"]) == ("invalid_request", "")
    assert refused["failure_message"] == "in.csv, line 3: not valid"
