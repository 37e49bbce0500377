"""Runs a command of this system; says ``ready`` when its modules are loaded, as the scripts do: there its clock begins.

    python -m bench.side_by_side.command submit FILE

It has read nothing of its files by then, and the scripts have read theirs.
"""

import sys

from worker.cli import main as run
from worker.cli.commands import load


def main() -> None:
    """Loads the command, then runs it as ``nightdesk`` does, which spares what is loaded the search for garbage."""
    load(sys.argv[1:])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    run()


if __name__ == "__main__":
    main()
