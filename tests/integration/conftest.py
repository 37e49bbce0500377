"""Fixtures that several files share; a file may have one of its own by the same name."""

from collections.abc import Iterator

import openai
import pytest
import redis

from schemas.access import Role
from tests.http_service import Door, running_service
from tests.integration.test_http_tenants import make_key
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


@pytest.fixture(scope="module")
def client(door: Door) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of that service, with a key of one tenant."""
    key = make_key(door.database_url, "acme", "acme", Role.SUBMIT)
    with openai.OpenAI(base_url=f"{door.url}/openai/v1", api_key=key, max_retries=0) as client:
        yield client
