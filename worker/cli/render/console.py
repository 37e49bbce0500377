"""The console that things for people are written to, and text that is safe to write there."""

from rich.console import Console
from rich.text import Text

from worker.cli.messages import printable


def console() -> Console:
    """Standard output: colours on a terminal only, and as wide as the terminal, or 120 columns where there is none."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(width=120, highlight=False)


def safe(text: str, style: str = "") -> Text:
    """Text from outside, of the same length, that can't steer the terminal and holds no markup."""
    return Text(printable(text), style=style)
