"""The ledger's own id, and the PostgreSQL server that it was last seen on."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
# The version before neither reads nor writes the new table.
floor = "0002"


def upgrade() -> None:
    """Add the table and its row."""
    op.execute("""
        CREATE TABLE ledger (
            id UUID DEFAULT gen_random_uuid() NOT NULL,
            only_row BOOLEAN DEFAULT true NOT NULL,
            system_identifier BIGINT,
            timeline INTEGER,
            seen_at TIMESTAMP WITH TIME ZONE,
            CONSTRAINT ledger_pkey PRIMARY KEY (id),
            CONSTRAINT ledger_only_row_key UNIQUE (only_row),
            CONSTRAINT ledger_single_row CHECK (only_row)
        )
    """)
    op.execute("INSERT INTO ledger DEFAULT VALUES")
    # A role that may not ask leaves it to the first worker that may.
    op.execute("""
        DO $$ BEGIN
            UPDATE ledger SET (system_identifier, timeline) = (
                SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
                FROM pg_control_system());
        EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN NULL;
        END $$
    """)


def downgrade() -> None:
    """Drop the table; answers in a spool folder of its id are found no more."""
    op.execute("DROP TABLE ledger")
