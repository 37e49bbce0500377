"""Streams the results of a batch as a table, in the forms of output files."""

import io
from collections.abc import AsyncIterator
from uuid import UUID

from worker.ledger.postgres import PostgresLedger
from worker.operations.file_form import FileForm
from worker.operations.result_lines import ALL, PIECE_BYTES, Wish, result_lines
from worker.operations.row_files import RESULT_COLUMNS, result_row, writing_rows


async def stream_table(
    ledger: PostgresLedger, batch_id: UUID, form: FileForm, wish: Wish = ALL
) -> AsyncIterator[bytes]:
    """The results of a batch as they stand now, as pieces of a table of some hundred kilobytes."""
    pieces = _Pieces()
    with writing_rows(pieces, form, RESULT_COLUMNS) as write:
        async for line in result_lines(ledger, batch_id, wish):
            write(result_row(line.content))
            if pieces.waiting >= PIECE_BYTES:
                yield pieces.take()
    yield pieces.take()


class _Pieces(io.BytesIO):
    """A file that hands out what was written: its place goes on, its content does not stay."""

    def __init__(self) -> None:
        super().__init__()
        self._total = 0

    @property
    def waiting(self) -> int:
        return super().tell()

    def tell(self) -> int:
        return self._total + super().tell()

    def take(self) -> bytes:
        piece = self.getvalue()
        self._total += len(piece)
        self.seek(0)
        self.truncate()
        return piece

    def close(self) -> None:
        """Stays open for the last piece; the writer of Parquet closes what it was given."""
