"""The turns that tenants had, so that they go on from one lease to the next."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
floor = "0002"


def upgrade() -> None:
    """Add the table of turns; the version before leases without it."""
    op.execute("""
CREATE UNLOGGED TABLE IF NOT EXISTS tenant_turn (
    line TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    turn DOUBLE PRECISION NOT NULL,
    CONSTRAINT tenant_turn_pkey PRIMARY KEY (line, priority, tenant)
)""")
    op.execute("ALTER TABLE tenant_turn SET (fillfactor = 50)")


def downgrade() -> None:
    """Drop the table: every tenant begins anew."""
    op.execute("DROP TABLE IF EXISTS tenant_turn")
