"""Room in a record for its part of the line of its result; records of before have none, and are read as they are."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
floor = "0002"

_STALE = """
CREATE FUNCTION drop_stale_line() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.line := NULL; RETURN NEW; END $$;
-- A line repeats other columns: whatever changes one of them, also a version that knows of no line, takes it away.
CREATE TRIGGER record_line_stale BEFORE UPDATE ON generation_record
    FOR EACH ROW WHEN (NEW.line IS NOT NULL AND NEW.line IS NOT DISTINCT FROM OLD.line) EXECUTE FUNCTION drop_stale_line()
"""


def upgrade() -> None:
    """Add the column, and keep it in its row: one that is read from elsewhere costs an export half of what it saves."""
    op.execute("ALTER TABLE generation_record ADD COLUMN line BYTEA")
    op.execute("ALTER TABLE generation_record ALTER COLUMN line SET STORAGE MAIN")
    # Three rows a page. By the default of four the claims of nearly all short records stand elsewhere.
    op.execute("ALTER TABLE generation_record SET (toast_tuple_target = 2700)")
    op.execute(_STALE)


def downgrade() -> None:
    """Take it away again: every line can be made of its record."""
    op.execute("DROP TRIGGER record_line_stale ON generation_record")
    op.execute("DROP FUNCTION drop_stale_line")
    op.execute("ALTER TABLE generation_record DROP COLUMN line")
    op.execute("ALTER TABLE generation_record RESET (toast_tuple_target)")
