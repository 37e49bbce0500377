"""Sources packed apart from their request; requests of before stay as they are, and are read as they are."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
# The version before can't read such requests. By the new name its statements fail before they lease one.
floor = "0002"


def upgrade() -> None:
    """Rename the column of the request, and add one for its sources; neither writes a row anew."""
    op.execute("ALTER TABLE job_request RENAME COLUMN request TO head")
    op.execute("ALTER TABLE job_request ADD COLUMN sources BYTEA")
    op.execute("ALTER TABLE job_request ALTER COLUMN sources SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Refuse: the requests would have to be unpacked."""
    raise RuntimeError("this migration can't be undone; restore the backup instead")
