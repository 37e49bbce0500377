"""The command, whose workers can count no job."""

from worker.cli import main
from worker.telemetry.tally import Tally

if __name__ == "__main__":
    # No part of the program breaks it.
    Tally._add_job = None  # type: ignore[assignment, method-assign]
    main()
