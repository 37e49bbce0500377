"""This system beside the programs that it replaces: the same questions, the same stand-in provider, in one run."""
