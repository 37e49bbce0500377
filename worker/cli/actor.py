"""Who gives a command, for the events that the ledger keeps."""

import getpass


def actor() -> str:
    """The user of this process."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        # A user id without a name, as containers have it.
        return "cli"
