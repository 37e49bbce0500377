"""Why a job is asked again, the canonical form of each answer, and a way to the attempts that are open."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns that are empty in old rows (nothing is rewritten) and an index as small as the calls in flight."""
    op.execute("ALTER TABLE job ADD COLUMN correction JSONB")
    op.execute("ALTER TABLE generation_record ADD COLUMN canonical JSONB")
    op.execute("ALTER TABLE generation_record ALTER COLUMN canonical SET STORAGE EXTERNAL")
    op.execute("CREATE INDEX attempt_open ON attempt (opened_at) WHERE closed_at IS NULL")


def downgrade() -> None:
    """Take them away again."""
    op.execute("DROP INDEX attempt_open")
    op.execute("ALTER TABLE generation_record DROP COLUMN canonical")
    op.execute("ALTER TABLE job DROP COLUMN correction")
