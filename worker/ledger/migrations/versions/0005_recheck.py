"""With what the answer of an earlier run is checked again."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that is empty in old rows; nothing is rewritten."""
    op.execute("ALTER TABLE job ADD COLUMN recheck JSONB")


def downgrade() -> None:
    """Take it away again."""
    op.execute("ALTER TABLE job DROP COLUMN recheck")
