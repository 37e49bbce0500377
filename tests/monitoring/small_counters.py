"""The command, whose workers keep fewer observations for their counters than a burst of jobs brings: 50,000 are none to wait for."""

from worker.cli import main
from worker.telemetry import metering

if __name__ == "__main__":
    metering.MOST_KEPT = 3
    main()
