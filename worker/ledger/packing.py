"""Compresses the large parts of rows before PostgreSQL gets them, and puts the rows together again."""

import sys
from typing import Any

import orjson

from tasks.text.word_search import WordSearch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEAST_BYTES = 2_000
"""Requests from this size on are packed: shorter ones stay in their row, where PostgreSQL stores them whole."""

LEVEL = 1
"""Of zstandard: for 20 KB of sources 41 us and 7.3 KB; level 3 takes half as long again for 3 % less."""

_has_long_number = WordSearch(patterns=(r"[:,\[]-?[0-9]{19}",))
"""Digits of a whole number that may exceed 64 bits, which the reader of JSON takes for a float."""

_compressor = zstd.ZstdCompressor(level=LEVEL)
"""One for all: making one takes a quarter of the time of a compression. Only event loops compress, one in each process."""


def compress(content: bytes) -> bytes:
    """The content as a frame of zstandard."""
    return _compressor.compress(content, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(packed: bytes) -> bytes:
    """The content of a frame of zstandard."""
    return zstd.decompress(packed)


def split_request(request: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of a request without its sources, and the sources packed; None and the whole where it is short.

    The number of sources stands in their place, for what counts them.
    """
    if len(request) < LEAST_BYTES or _has_long_number(request.decode()):
        return request, None
    document = orjson.loads(request)
    sources = document.get("context")
    if not sources:
        return request, None
    return orjson.dumps({**document, "context": len(sources)}), compress(orjson.dumps(sources))


def whole_request(head: dict[str, Any], sources: bytes | None) -> dict[str, Any]:
    """The request of a row, with its sources."""
    return head if sources is None else {**head, "context": orjson.loads(decompress(sources))}
