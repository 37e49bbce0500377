"""Parquet files as input, as pyarrow writes them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tasks.errors import InputError
from tasks.ports import NewBatch
from worker.operations.file_intake import InputOrder, Intake
from worker.operations.input_columns import ColumnMap


def write(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    parquet.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def requests_of(path: Path, *maps: str) -> list[dict[str, Any]]:
    batch = NewBatch(id=uuid4(), tenant="default")
    intake = Intake(InputOrder([str(path)], strict=True, columns=ColumnMap.parse(maps)), batch)
    return [json.loads(job.request) for job in intake.jobs()]


def test_lists_objects_and_values_that_json_has_not_become_jobs(tmp_path: Path) -> None:
    rows = [
        {
            "id": number,
            "question": f"Why {number}?",
            "contexts": [{"text": "Because.", "title": "T"}, {"text": "So.", "title": None}],
            "at": datetime(2026, 11, 23, tzinfo=UTC),
            "price": Decimal("1.50"),
            "score": float("nan"),
            "bytes": b"ab",
        }
        for number in range(300)
    ]
    requests = requests_of(write(tmp_path / "in", rows, row_group_size=100))
    assert [each["custom_id"] for each in requests] == [str(number) for number in range(300)]
    assert requests[7]["query"] == "Why 7?"
    assert [source["content"] for source in requests[7]["context"]] == ["Because.", "So."]
    metadata = {"at": "2026-11-23T00:00:00+00:00", "price": "1.50", "score": None, "bytes": "ab"}
    assert requests[7]["metadata"] == metadata


def test_columns_are_mapped_and_a_table_without_questions_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [{"frage": "Warum?", "a": "Darum.", "b": None}])
    (request,) = requests_of(path, "question=frage", "sources=a,b")
    assert (request["query"], [source["content"] for source in request["context"]]) == ("Warum?", ["Darum."])
    with pytest.raises(InputError, match="by its columns 'frage', 'a', 'b': none is known as the question"):
        requests_of(path)


def test_questions_in_objects_are_found_and_a_column_too_long_is_left_out(tmp_path: Path) -> None:
    row = {"inputs": {"question": "Why?"}, "docs": [{"text": "Because."}], "candidates": ["x" * 110_000], "grade": 1}
    (request,) = requests_of(write(tmp_path / "in", [row]))
    assert (request["query"], [source["content"] for source in request["context"]]) == ("Why?", ["Because."])
    assert request["metadata"] == {"grade": 1}


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [{"question": "Warum?"}])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="can't be read as Parquet"):
        requests_of(path)
