"""Expiry, rotation and last use of the keys of callers over HTTP."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
# Processes of the version before go on beside: they take a key as valid that expired, and know only the newest secret.
floor = "0002"


def upgrade() -> None:
    """Add the columns; keys that exist never expire."""
    op.execute(
        "ALTER TABLE api_key ADD COLUMN IF NOT EXISTS expires_at TIMESTAMP WITH TIME ZONE,"
        " ADD COLUMN IF NOT EXISTS last_used_at TIMESTAMP WITH TIME ZONE,"
        " ADD COLUMN IF NOT EXISTS previous_hash BYTEA,"
        " ADD COLUMN IF NOT EXISTS previous_until TIMESTAMP WITH TIME ZONE,"
        " ADD COLUMN IF NOT EXISTS previous_used_at TIMESTAMP WITH TIME ZONE"
    )
    op.execute(
        "CREATE UNIQUE INDEX IF NOT EXISTS api_key_previous_hash ON api_key (previous_hash) WHERE previous_hash IS NOT NULL"
    )


def downgrade() -> None:
    """Refuse: a key that expired would be valid again."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")
