"""A step of its own for the checks that want the local model, and which steps a worker serves."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_MOVE = """
UPDATE job j SET step = '{to}', hinted_at = NULL
FROM job_request r
WHERE r.job_id = j.id AND j.step = '{step}' AND j.state IN ('available', 'scheduled')
  AND coalesce(nullif(j.recheck -> 'checkers', 'null'), r.request #> '{{config,checkers}}') @> '["local"]'
"""


def upgrade() -> None:
    """Let the step be known, add a column to a table of a few rows, and sort the jobs that wait for their check."""
    _steps("'check', 'generate', 'local'")
    op.execute("ALTER TABLE worker ADD COLUMN steps text[] NOT NULL DEFAULT '{}'")
    # A running job stays with its worker.
    op.execute(_MOVE.format(step="check", to="local"))


def downgrade() -> None:
    """Take them away again; all checks are one step."""
    op.execute("UPDATE job SET step = 'check' WHERE step = 'local'")
    op.execute("ALTER TABLE worker DROP COLUMN steps")
    _steps("'check', 'generate'")


def _steps(known: str) -> None:
    op.execute("ALTER TABLE job DROP CONSTRAINT job_step_known")
    op.execute(f"ALTER TABLE job ADD CONSTRAINT job_step_known CHECK (step IN ({known}))")
