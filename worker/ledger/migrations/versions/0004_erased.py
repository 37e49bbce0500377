"""When a job's content, or all of a batch's, was removed for good."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns that are empty in old rows; a job that was erased can't run again, and the database says so."""
    op.execute("ALTER TABLE batch ADD COLUMN erased_at TIMESTAMP WITH TIME ZONE")
    op.execute("ALTER TABLE job ADD COLUMN erased_at TIMESTAMP WITH TIME ZONE")
    op.execute(
        "ALTER TABLE job ADD CONSTRAINT job_erased_only_final CHECK (erased_at IS NULL OR finished_at IS NOT NULL)"
    )


def downgrade() -> None:
    """Take them away again; what was erased stays erased."""
    op.execute("ALTER TABLE job DROP COLUMN erased_at")
    op.execute("ALTER TABLE batch DROP COLUMN erased_at")
