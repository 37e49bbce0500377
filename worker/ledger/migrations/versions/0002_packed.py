"""Sources, answers and claims packed; what was stored before stays as it is, and is read as it is."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
# The version before can't read packed rows. By the new name of a column its statements fail before they lease one.
floor = "0002"


def upgrade() -> None:
    """Rename the column of the request, and add those for what is packed; no row is written anew."""
    op.execute("ALTER TABLE job_request RENAME COLUMN request TO head")
    op.execute("ALTER TABLE job_request ADD COLUMN sources BYTEA")
    op.execute("ALTER TABLE job_request ALTER COLUMN sources SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE completion ADD COLUMN packed BYTEA, ALTER COLUMN raw DROP NOT NULL")
    op.execute("ALTER TABLE completion ALTER COLUMN packed SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE generation_record ADD COLUMN attempt_id UUID, ADD COLUMN packed BYTEA")
    op.execute("ALTER TABLE generation_record ALTER COLUMN citations DROP NOT NULL")
    op.execute("ALTER TABLE generation_record ALTER COLUMN packed SET STORAGE EXTERNAL")
    # Small, but in a long row the server would compress them, for more than a poll of them costs.
    for name in ("quality", "timing_ms", "provider_snapshot", "usage"):
        op.execute(f"ALTER TABLE generation_record ALTER COLUMN {name} SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Refuse: the requests would have to be unpacked."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")
