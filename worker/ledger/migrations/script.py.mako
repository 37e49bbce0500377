"""${message}."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None
# The oldest revision whose code may go on beside this schema: raise it where something is taken away (docs/extend.md).
floor = "..."


def upgrade() -> None:
    """Apply."""
    ${upgrades if upgrades else "pass"}
