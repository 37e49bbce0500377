"""The place of an answer in the queue of reviewers: by its worst verdict, not by a probability."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
# The version before writes a column that is gone.
floor = "0010"


def upgrade() -> None:
    """Rename the column, and fill it from the records."""
    op.execute("ALTER TABLE job RENAME COLUMN confidence TO standing")
    op.execute("""
        UPDATE job j SET standing = (g.grounding ->> 'grounding_score')::real + CASE
            WHEN g.grounding -> 'counts' ? 'contradicted' THEN 0
            WHEN g.grounding -> 'counts' ? 'unsupported' THEN 1
            WHEN g.grounding -> 'counts' ? 'undecided' THEN 2
            WHEN g.grounding -> 'counts' ? 'unchecked' THEN 3
            -- Of an object a value, which is in no source.
            WHEN (g.grounding ->> 'grounding_score')::real < 1 THEN 1
            ELSE 4 END
        FROM generation_record g
        WHERE g.job_id = j.id AND g.run = j.run AND j.finished_at IS NOT NULL
    """)


def downgrade() -> None:
    """Refuse: the version before can't read such jobs."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")
