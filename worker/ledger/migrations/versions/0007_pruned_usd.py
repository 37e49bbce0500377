"""What jobs that were pruned have cost, so that a batch's account adds up without them."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; what batches have spent beyond the attempts that are left is taken for that of pruned jobs.

    One pass over jobs and attempts: some seconds a million. The lock that the new column takes keeps spending still.
    """
    op.execute("ALTER TABLE batch ADD COLUMN pruned_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL")
    op.execute(
        """
        UPDATE batch b SET pruned_usd = b.spent_usd - s.usd
        FROM (
            SELECT b.id, coalesce(sum(a.cost_usd), 0) AS usd
            FROM batch b LEFT JOIN job j ON j.batch_id = b.id LEFT JOIN attempt a ON a.job_id = j.id
            GROUP BY b.id
        ) s
        WHERE s.id = b.id AND b.spent_usd > s.usd
        """
    )


def downgrade() -> None:
    """Take it away again."""
    op.execute("ALTER TABLE batch DROP COLUMN pruned_usd")
