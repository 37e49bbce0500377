"""Results as Parquet: typed columns in row groups, lists and objects as JSON."""

import io
import json
from importlib.util import find_spec

import pytest

from worker.operations.output_form import OutputForm
from worker.operations.output_forms import PARQUET_ROWS, RESULT_COLUMNS, writing_rows

if find_spec("pyarrow") is None:
    pytest.skip("make test-parquet installs the extra", allow_module_level=True)


def test_rows_are_written_by_groups_with_types() -> None:
    from pyarrow import parquet  # noqa: PLC0415

    file = io.BytesIO()
    with writing_rows(file, OutputForm.PARQUET, RESULT_COLUMNS) as write:
        for position in range(PARQUET_ROWS + 1):
            write(
                {"position": position, "confidence": 0.5, "truncated": False, "claims": [{"text": "=ü"}], "query": "=1"}
            )
    table = parquet.ParquetFile(file)
    assert table.num_row_groups == 2
    rows = table.read().to_pylist()
    assert [row["position"] for row in rows] == list(range(PARQUET_ROWS + 1))
    assert (rows[0]["confidence"], rows[0]["truncated"], rows[0]["query"], rows[0]["outcome"]) == (
        0.5,
        False,
        "=1",
        None,
    )
    assert json.loads(rows[0]["claims"]) == [{"text": "=ü"}]
