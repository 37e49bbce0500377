"""The shell: everything that opens a socket or reads the environment; builds the real things and hands them in."""
