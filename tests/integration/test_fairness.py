"""The cost of choosing jobs: it follows the number taken, not the number that waits."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.servers import Servers
from worker.ledger.database import SESSION_OPTIONS
from worker.ledger.duties import _TAKE_HINTS

TENANTS = 20
DEPTH = 100

_FILL = """
WITH new AS (
    INSERT INTO batch (id, tenant) SELECT gen_random_uuid(), 'tenant ' || n FROM generate_series(1, {tenants}) n
    RETURNING id, tenant
)
INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, scheduled_at, available_at)
SELECT gen_random_uuid(), new.id, n, new.tenant, 'available', 'generate', 100, now(), now()
FROM new, generate_series(1, {jobs}) n
"""


def buffers_read(servers: Servers, jobs: int, *, analyzed: bool) -> tuple[int, int]:
    """Pages that choosing hints touches while none is hinted, and when all of the depth are."""
    parameters = {
        "step": "generate",
        "limit": DEPTH,
        "most": DEPTH,
        "again_after": timedelta(seconds=30),
        "min_priority": -32768,
        "max_priority": 32767,
        "max_rescues": 32767,
        "shares": "{}",
        "line": "hints of generate",
        "lock": 1,
    }
    with (
        servers.database() as url,
        psycopg.connect(url, autocommit=True, options=SESSION_OPTIONS) as connection,
    ):
        connection.execute("TRUNCATE job CASCADE")  # deleted rows of earlier tests would be pages to touch
        connection.execute(_FILL.format(tenants=TENANTS, jobs=jobs).encode())
        if analyzed:
            connection.execute("VACUUM ANALYZE job")

        def pages() -> int:
            row = connection.execute(
                b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + _TAKE_HINTS.encode(), parameters
            ).fetchone()
            assert row is not None
            plan: Any = row[0] if isinstance(row[0], list) else json.loads(row[0])
            return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])

        return pages(), pages()


@pytest.mark.parametrize("analyzed", [False, True])
def test_hints_cost_the_same_however_many_jobs_each_tenant_has(servers: Servers, *, analyzed: bool) -> None:
    few, many = buffers_read(servers, 50, analyzed=analyzed), buffers_read(servers, 1_000, analyzed=analyzed)

    assert many[0] < 2 * few[0], (few, many)
    assert many[1] < 2 * few[1], (few, many)
    assert many[1] < 12 * (DEPTH + TENANTS), "with nothing to hint, a few pages for each job of the depth"
