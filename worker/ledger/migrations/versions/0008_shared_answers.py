"""Which calls share their answers, and which attempts took one instead of a call."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns that are empty in old rows, and an empty index; building it and the check read the table once."""
    op.execute("ALTER TABLE attempt ADD COLUMN share_key BYTEA, ADD COLUMN shared_from UUID")
    op.execute(
        "ALTER TABLE attempt ADD CONSTRAINT attempt_shared_is_no_call CHECK (shared_from IS NULL OR (outcome = 'ok' "
        "AND purpose = 'generate' AND cost_usd = 0 AND reserved_usd = 0 AND usage IS NULL AND share_key IS NULL))"
    )
    op.execute("CREATE INDEX attempt_share_key ON attempt (share_key) WHERE share_key IS NOT NULL")


def downgrade() -> None:
    """Take them away again; which answers were shared is then known from the records alone."""
    op.execute("ALTER TABLE attempt DROP COLUMN share_key, DROP COLUMN shared_from")
