"""A way to the answers that came too late, or in part."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an index over the few completions that did not win; building it reads the table once."""
    op.execute("CREATE INDEX completion_beside ON completion (job_id) WHERE NOT won")


def downgrade() -> None:
    """Take it away again."""
    op.execute("DROP INDEX completion_beside")
