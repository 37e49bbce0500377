"""Results as Parquet: typed columns in row groups, lists and objects with types of their own."""

import io
import json
from typing import Any

from worker.operations.file_form import FileForm
from worker.operations.row_files import PARQUET_ROWS, writing_rows


def test_rows_are_written_by_groups_with_types() -> None:
    from pyarrow import parquet  # noqa: PLC0415

    file = io.BytesIO()
    with writing_rows(file, FileForm.PARQUET) as write:
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
    assert [claim["text"] for claim in rows[0]["claims"]] == ["=ü"]


def test_every_result_and_job_of_the_contract_comes_back_as_it_was_written() -> None:
    from pyarrow import parquet  # noqa: PLC0415

    citation = {"source_index": 0, "rank": 1, "chunk_id": "c", "page": 4, "verified": True, "start_pos": 3}
    claim = {
        "text": "A.",
        "verdict": "supported",
        "score": 1.0,
        "evidence": [{"source_index": 0, "start": 0, "end": 2, "score": 1.0}],
    }
    result = {
        "citations": [citation],
        "claims": [claim],
        "warnings": ["w"],
        "sources_used": ["c"],
        "metadata": {"a": [1]},
    }
    file = io.BytesIO()
    with writing_rows(file, FileForm.PARQUET) as write:
        write(result)
        write({})
    first, second = parquet.ParquetFile(file).read().to_pylist()
    assert contained(result, first)
    assert not any(value for value in second.values())


def contained(part: Any, whole: Any) -> bool:
    """Tells that a value comes back: free objects as JSON in a text, a page of either kind as text."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(contained(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(contained, part, whole))
    return bool((json.loads(whole) if isinstance(whole, str) and not isinstance(part, str) else whole) == part)
