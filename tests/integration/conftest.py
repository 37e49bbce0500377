"""Fixtures that several files share; a file may have one of its own by the same name."""

from collections.abc import Iterator

import pytest
import redis

from tests.http_service import Door, running_service
from tests.servers import Servers


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """The URL of an empty Redis."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return servers.redis_url


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A service without keys, for all tests of a file."""
    with (
        servers.database() as url,
        running_service(url, servers.redis_url, tmp_path_factory.mktemp("home")) as door,
    ):
        yield door
