"""A worker's report of who answers there."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
# Workers of the version before go on: they report nothing.
floor = "0002"


def upgrade() -> None:
    """Add the column of the report."""
    op.execute("ALTER TABLE worker ADD COLUMN IF NOT EXISTS report JSONB")


def downgrade() -> None:
    """Remove the column."""
    op.execute("ALTER TABLE worker DROP COLUMN IF EXISTS report")
