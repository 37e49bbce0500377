"""Frames of zstandard without a dictionary, which every tool reads; those of before are written anew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import zstandard
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
# The version before reads and writes other frames. By the new name of the columns its statements fail.
floor = "0007"

PAGE = 50
NO_ID = UUID(int=0)


def upgrade() -> None:
    """Rename the columns, and write each frame anew; one that can't be read stays as it is."""
    for table, keys, column, content in (
        ("job_request", {"job_id": NO_ID}, "sources", _request),
        ("completion", {"attempt_id": NO_ID}, "packed", _lines(3)),
        ("generation_record", {"job_id": NO_ID, "run": 0}, "packed", _lines(2)),
    ):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO frame")
        _write_anew(table, keys, content)


def downgrade() -> None:
    """Refuse: the version before has no reader of these frames."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")


def _write_anew(table: str, keys: dict[str, Any], content: Callable[[bytes], bytes]) -> None:
    """Goes through a table by its primary key, from before the first row on."""
    connection, last = op.get_bind(), tuple(keys.values())
    compress = zstandard.ZstdCompressor(level=1).compress
    names, values = ", ".join(keys), ", ".join(["%s"] * len(keys))
    page = f"""
        SELECT {names}, frame FROM {table} WHERE ({names}) > ({values}) AND frame IS NOT NULL ORDER BY {names} LIMIT {PAGE}
    """
    while rows := connection.exec_driver_sql(page, last).all():
        frames = []
        for *key, frame in rows:
            try:
                frames.append((compress(content(bytes(frame))), *key))
            except (zstandard.ZstdError, IndexError):
                continue
        if frames:
            connection.exec_driver_sql(f"UPDATE {table} SET frame = %s WHERE ({names}) = ({values})", frames)
        last = tuple(rows[-1][:-1])


# ---- the frames of before --------------------------------------------------------------------------------------------

_DICTIONARY = zstandard.ZstdCompressionDict(
    (Path(__file__).parents[1] / "dictionary-1.txt").read_bytes(), dict_type=zstandard.DICT_TYPE_RAWCONTENT
)
_NUMBER = 1
"""Stood before a frame with the dictionary."""


def _decompress(frame: bytes) -> bytes:
    if frame[0] == _NUMBER:
        return zstandard.ZstdDecompressor(dict_data=_DICTIONARY).decompress(frame[1:])
    return zstandard.ZstdDecompressor().decompress(frame)


def _request(frame: bytes) -> bytes:
    """The sources of a request, that stood behind the length of its config and the config."""
    end = 4 + int.from_bytes(frame[:4])
    return b'{"context":%b,"config":%b}' % (_decompress(frame[end:]), _decompress(frame[4:end]))


def _lines(count: int) -> Callable[[bytes], bytes]:
    """Rewrites parts, that stood behind their lengths but for that of the last one, as lines."""

    def content(frame: bytes) -> bytes:
        old, parts = _decompress(frame), []
        at = 4 * (count - 1)
        for place in range(0, at, 4):
            end = at + int.from_bytes(old[place : place + 4])
            parts.append(old[at:end])
            at = end
        return b"\n".join([*parts, old[at:]])

    return content
