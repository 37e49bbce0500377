"""Default bounds that the steps and the settings share; it imports nothing, so that settings load no step."""

MAX_RESCUES = 5
"""Default of how often a job is taken up again whose worker was lost: it survives a night with five power cuts, each in the
same step, and ends after it took six workers down."""

CHECK_TIMEOUT_S = 5.0
"""Default time of a check: an answer to 20 KB of sources takes a thousandth of it, one to 2 MB about a half."""

MAX_BYTES_IN_FLIGHT = 128_000_000
"""Bytes of requests that a process holds, all steps together; the default of the setting."""
