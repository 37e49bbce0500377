"""Sessions of people in the viewer: the hash of a cookie, and the key that it stands for."""

from datetime import timedelta

from worker.ledger.database import Store

LASTS = timedelta(hours=12)
"""Time after which a person gives the key again."""

# Those that are over go when others come: nothing else needs to look for them.
_ADD = """
WITH stale_session AS (DELETE FROM viewer_session WHERE expires_at < nightdesk_now())
INSERT INTO viewer_session (hash, key_hash, expires_at) VALUES (%(hash)b, %(key_hash)b, nightdesk_now() + %(lasts)s)
"""
_KEY_HASH = "SELECT key_hash FROM viewer_session WHERE hash = %(hash)b AND expires_at > nightdesk_now()"
_REMOVE = "DELETE FROM viewer_session WHERE hash = %(hash)b"


class ViewerSessions(Store):
    """The sessions of all processes that serve: a person may be answered by any of them."""

    async def add(self, token_hash: bytes, key_hash: bytes) -> None:
        """Begins a session for a key."""
        await self._db.rows(_ADD, {"hash": token_hash, "key_hash": key_hash, "lasts": LASTS})

    async def key_hash(self, token_hash: bytes) -> bytes | None:
        """The hash of the key of a session; None where there is none, or it is over."""
        rows = await self._db.rows(_KEY_HASH, {"hash": token_hash})
        return bytes(rows[0].key_hash) if rows else None

    async def remove(self, token_hash: bytes) -> None:
        """Ends a session."""
        await self._db.rows(_REMOVE, {"hash": token_hash})
