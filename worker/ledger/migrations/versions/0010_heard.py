"""Where a judge's word on a claim with its evidence stands, so that a batch asks for it once."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table that is empty: what judges said before it is not looked for."""
    op.execute("""
        CREATE TABLE heard_verdict (
            batch_id uuid NOT NULL,
            key bytea NOT NULL,
            attempt_id uuid NOT NULL CONSTRAINT heard_verdict_attempt_id_fkey
                REFERENCES completion (attempt_id) ON DELETE CASCADE,
            number smallint NOT NULL,
            CONSTRAINT heard_verdict_pkey PRIMARY KEY (batch_id, key)
        )
    """)
    op.execute("CREATE INDEX heard_verdict_of_attempt ON heard_verdict (attempt_id)")


def downgrade() -> None:
    """Take it away again; equal claims are asked about anew."""
    op.execute("DROP TABLE heard_verdict")
