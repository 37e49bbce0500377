"""Why a job is asked again, and the canonical form of each answer."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns that are empty in old rows: nothing is rewritten, the locks are short."""
    op.execute("ALTER TABLE job ADD COLUMN correction JSONB")
    op.execute("ALTER TABLE generation_record ADD COLUMN canonical JSONB")
    op.execute("ALTER TABLE generation_record ALTER COLUMN canonical SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Take them away again."""
    op.execute("ALTER TABLE generation_record DROP COLUMN canonical")
    op.execute("ALTER TABLE job DROP COLUMN correction")
