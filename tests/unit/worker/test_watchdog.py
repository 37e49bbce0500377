"""A channel of a connection that was closed has lost it."""

from types import SimpleNamespace

import pytest

from worker.process.intake import GuardedChannel, GuardedTransport


def test_a_channel_of_a_closed_connection_has_lost_it() -> None:
    channel = GuardedChannel.__new__(GuardedChannel)
    channel.connection = SimpleNamespace(client=None)
    with pytest.raises(GuardedTransport.connection_errors, match="was closed"):
        channel._connparams(asynchronous=True)
