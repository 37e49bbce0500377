"""``python -m worker.cli`` is the command ``nightdesk``."""

from worker.cli import main

main()
