"""Reads parts of records that tests and measurements look up by SQL, packed or not."""

from typing import Any

import orjson

from worker.ledger.packing import decompress

SNAPSHOT = (
    """coalesce(g.provider_snapshot, (SELECT parsed -> 'snapshot' FROM completion WHERE attempt_id = g.attempt_id))"""
)
"""The provider's snapshot of a record ``g``."""

USAGE = """coalesce(g.usage, (SELECT parsed -> 'usage' FROM completion WHERE attempt_id = g.attempt_id))"""
"""The tokens of a record ``g``."""


def claims_of(grounding: dict[str, Any], frame: bytes | None) -> list[dict[str, Any]]:
    """The claims of a record, of its columns ``grounding`` and ``frame``."""
    parts = grounding if frame is None else orjson.loads(decompress(frame).split(b"\n", 1)[0])
    claims: list[dict[str, Any]] = parts["claims"]
    return claims
