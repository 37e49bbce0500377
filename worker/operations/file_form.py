"""Names the forms of an output file."""

from enum import StrEnum


class FileForm(StrEnum):
    """The form of an output file."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
