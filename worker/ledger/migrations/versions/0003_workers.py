"""Which workers make calls, and which lanes are paused."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two small tables."""
    op.execute("""
        CREATE TABLE worker (
            name text CONSTRAINT worker_pkey PRIMARY KEY,
            seen_at timestamptz NOT NULL DEFAULT nightdesk_now()
        )
    """)
    op.execute("""
        CREATE TABLE lane_pause (
            provider text NOT NULL,
            lane text NOT NULL,
            paused_at timestamptz NOT NULL DEFAULT nightdesk_now(),
            why text NOT NULL,
            CONSTRAINT lane_pause_pkey PRIMARY KEY (provider, lane)
        )
    """)


def downgrade() -> None:
    """Take them away again."""
    op.execute("DROP TABLE lane_pause")
    op.execute("DROP TABLE worker")
