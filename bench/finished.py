"""Fills a ledger with final jobs: some are run by real workers, and their rows copied as often as it takes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from bench.embedded import Servers

REPOSITORY = Path(__file__).parents[1]
PATIENCE_S = 900.0
LOOK_S = 0.5
"""Between two looks at the jobs that run."""


@contextmanager
def workers(servers: Servers) -> Iterator[None]:
    """One worker that generates and one that checks, ended afterwards."""
    environment = {**servers.environment, "NIGHTDESK_PROVIDER": "extractive"}
    with ExitStack() as stack:
        for queue in ("generate", "check"):
            log = stack.enter_context((servers.home / f"{queue}.log").open("wb"))
            arguments = [sys.executable, "-m", "worker.cli", "worker", "--queues", queue]
            worker = subprocess.Popen(arguments, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
            stack.callback(worker.wait)
            stack.callback(worker.terminate)
        yield


def await_final(url: str) -> None:
    """Waits until no job is open."""
    until = time.monotonic() + PATIENCE_S
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM job WHERE finished_at IS NULL)").fetchone() != (False,):
            if time.monotonic() > until:
                raise SystemExit("the jobs do not come to an end")
            time.sleep(LOOK_S)


# ---- copies ----------------------------------------------------------------------------------------------------------

_COPIES = """
CREATE TEMPORARY TABLE job_copy ON COMMIT DROP AS
SELECT id AS job_id, uuidv7() AS new_job_id, (n * size + position)::int AS new_position
FROM (SELECT id, position, count(*) OVER () AS size FROM job WHERE batch_id = %(batch_id)s) j, generate_series(1, %(count)s / size) n
WHERE n * size + position < %(count)s ORDER BY 3;
CREATE INDEX ON job_copy (job_id);
CREATE TEMPORARY TABLE attempt_copy ON COMMIT DROP AS
SELECT a.id AS attempt_id, uuidv7() AS new_attempt_id, c.* FROM job_copy c JOIN attempt a USING (job_id) ORDER BY new_position;
CREATE INDEX ON attempt_copy (attempt_id);
ANALYZE job_copy, attempt_copy
"""

_OF_ATTEMPT = "JOIN attempt_copy c ON c.attempt_id = t.{}"
_ROWS: dict[str, tuple[dict[str, str], str]] = {
    "job": (
        {
            "id": "c.new_job_id",
            "position": "c.new_position",
            "custom_id": "'q' || c.new_position",
            "idempotency_key": "NULL",
            "message_id": "NULL",
        },
        "JOIN job_copy c ON c.job_id = t.id",
    ),
    "job_request": ({"job_id": "c.new_job_id"}, "JOIN job_copy c USING (job_id)"),
    "attempt": (
        {"id": "c.new_attempt_id", "job_id": "c.new_job_id", "share_key": "NULL"},
        _OF_ATTEMPT.format("id"),
    ),
    "completion": (
        {"attempt_id": "c.new_attempt_id", "job_id": "c.new_job_id"},
        _OF_ATTEMPT.format("attempt_id"),
    ),
    "generation_record": (
        {"job_id": "c.new_job_id", "message_id": "c.new_job_id::text", "attempt_id": "a.new_attempt_id"},
        "JOIN job_copy c USING (job_id) LEFT JOIN attempt_copy a ON (a.attempt_id, a.new_job_id) = (t.attempt_id, c.new_job_id)",
    ),
}
"""Of each table the columns of a copy that differ, and the join with the copies."""


def copy_jobs(url: str, batch_id: str, count: int) -> None:
    """Copies the final jobs of a batch, with all their rows as they are stored, until it has ``count``; they begin at position 0."""
    with psycopg.connect(url) as connection:
        for statement in _COPIES.split(";\n"):
            parameters = {"batch_id": batch_id, "count": count} if "%(" in statement else None
            connection.execute(statement.encode(), parameters)
        for table, (changes, join) in _ROWS.items():
            columns = [
                str(name)
                for (name,) in connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                    (table,),
                )
            ]
            values = [sql.SQL(changes[name]) if name in changes else sql.Identifier("t", name) for name in columns]
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} t {} ORDER BY c.new_position").format(
                    sql.Identifier(table),
                    sql.SQL(", ").join(map(sql.Identifier, columns)),
                    sql.SQL(", ").join(values),
                    sql.Identifier(table),
                    sql.SQL(join),
                )
            )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"VACUUM ANALYZE {', '.join(_ROWS)}".encode())
