"""``nightdesk migrate``: the database's schema."""

from worker.cli.messages import tell
from worker.cli.options import Json
from worker.cli.output import write_json
from worker.cli.session import session
from worker.settings import load_settings


def command(*, as_json: Json = False) -> int:
    """Bring the database to the schema of this version. Calling it again changes nothing."""
    with session(load_settings()) as desk:
        assert desk.migrated is not None
        before, after = desk.migrated
    if as_json:
        write_json({"before": before, "after": after})
    elif before == after:
        tell(f"the database is at revision {after} already")
    else:
        tell(f"migrated the database from {before or 'empty'} to {after}")
    return 0
