"""How long a job was sent away by a limit, so that its timings can say so."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that is empty in old rows; nothing is rewritten."""
    op.execute("ALTER TABLE job ADD COLUMN limited_ms DOUBLE PRECISION")


def downgrade() -> None:
    """Take it away again."""
    op.execute("ALTER TABLE job DROP COLUMN limited_ms")
