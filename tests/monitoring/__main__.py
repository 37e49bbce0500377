"""Checks deploy/monitoring: the files by promtool, then a Prometheus beside a system that is broken on purpose.

python -m tests.monitoring [redis_away ...]
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.monitoring.alert_series import CASES
from tests.monitoring.live import drill
from tests.monitoring.promtool import Unfit, check_files, test_alerts


def main() -> int:
    """Runs all of it; 1 for a check that failed, 2 without the programs."""
    if missing := [program for program in ("prometheus", "promtool") if shutil.which(program) is None]:
        sys.stderr.write(f"{' and '.join(missing)} not found: apt-get install --yes prometheus\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="nm") as name:
        folder = Path(name)
        try:
            check_files(folder)
            print(f"{len(test_alerts(folder))} alerts fire and resolve with sample series")  # noqa: T201
            prometheus = drill(folder, sys.argv[1:])
        except Unfit as error:
            sys.stderr.write(f"{error}\n")
            return 1
    silent = {case.alert for case in CASES} - prometheus.fired.keys()
    print(f"{len(prometheus.fired)} of {len(CASES)} alerts fired by faults")  # noqa: T201
    if silent and not sys.argv[1:]:
        sys.stderr.write(f"never fired: {', '.join(sorted(silent))}\n")
    return 1 if silent and not sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
