"""The outcome of an answer that nothing speaks against and that words can't verify."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
# The version before can't read an outcome that it does not know.
floor = "0009"

OUTCOMES = "'abstained', 'answered', 'no_evidence', 'partial', 'refused', 'rejected'"


def upgrade() -> None:
    """Let a job end unverified."""
    _allow(f"{OUTCOMES}, 'unverified'")


def downgrade() -> None:
    """Refuse: the version before can't read such jobs."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")


def _allow(outcomes: str) -> None:
    # Rows are read under a lock that lets jobs go on.
    op.execute("ALTER TABLE job DROP CONSTRAINT job_outcome_known")
    op.execute(
        f"ALTER TABLE job ADD CONSTRAINT job_outcome_known CHECK (outcome IS NULL OR outcome IN ({outcomes})) NOT VALID"
    )
    op.execute("ALTER TABLE job VALIDATE CONSTRAINT job_outcome_known")
