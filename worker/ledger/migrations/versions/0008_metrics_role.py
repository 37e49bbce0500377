"""The role ``metrics`` of keys: for a scraper, which may do nothing else."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
# A process of the version before does not know the role: it refuses such a key, and no other.
floor = "0007"

_ROLES = "ALTER TABLE api_key DROP CONSTRAINT IF EXISTS api_key_role_known, ADD CONSTRAINT api_key_role_known CHECK (role IN ({}))"


def upgrade() -> None:
    """Allow the role."""
    op.execute(_ROLES.format("'admin', 'metrics', 'read', 'review', 'submit'"))


def downgrade() -> None:
    """Allow the others alone; raises for a key that has it."""
    op.execute(_ROLES.format("'admin', 'read', 'review', 'submit'"))
