"""Measures what a job costs PostgreSQL: row versions, WAL, bytes stored, statements and commits, through the real system.

    python -m bench.rows [--jobs 2000] [--columns] [--database URL]

Starts the embedded servers and real workers, submits jobs of 8 sources of 2.5 KB, and waits until every result is published.
Versions and bytes are exact counts; the CPU belongs to this machine: compare rows of one run only. An empty database of another
server, one with lz4 say, is named by its URL; the CPU of PostgreSQL is then not that of this server.
"""

import argparse
import asyncio
import time

import psycopg
from psycopg.rows import dict_row

from bench.throughput import Processes, measure, requests, system

_TABLES = """
SELECT relname AS name, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_hot_upd AS hot, n_tup_del AS deleted
FROM pg_stat_user_tables ORDER BY relname
"""
_SIZES = """
SELECT c.relname AS name, pg_relation_size(c.oid) AS rows,
       coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS toast, pg_indexes_size(c.oid) AS indexes
FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace ORDER BY c.relname
"""
_INDEXES = """
SELECT relname AS name, pg_relation_size(oid) AS bytes FROM pg_class
WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 65536 ORDER BY 2 DESC
"""
_DATABASE = """
SELECT xact_commit AS commits, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS wal,
       (SELECT wal_fpi FROM pg_stat_wal) AS page_images, (SELECT wal_records FROM pg_stat_wal) AS wal_records
FROM pg_stat_database WHERE datname = current_database()
"""
_COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = ANY(%s) ORDER BY table_name, ordinal_position
"""
_WIDE = ["attempt", "completion", "generation_record", "job", "job_request"]
FLUSH_S = 1.5
"""A backend reports its counts within a second."""


def _rows(connection: psycopg.Connection[dict[str, object]], query: str) -> dict[str, dict[str, int]]:
    return {
        str(row.pop("name")): {key: int(str(value)) for key, value in row.items()} for row in connection.execute(query)
    }


def _difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {key: value - before.get(key, 0) for key, value in after.items()}


def _database(connection: psycopg.Connection[dict[str, object]]) -> dict[str, int]:
    row = connection.execute(_DATABASE).fetchone()
    assert row
    return {key: int(str(value)) for key, value in row.items()}


def _print_columns(connection: psycopg.Connection[dict[str, object]]) -> None:
    """Mean stored bytes of each column."""
    for row in connection.execute(_COLUMNS, [_WIDE]).fetchall():
        name, column = row["table_name"], row["column_name"]
        size = connection.execute(
            f'SELECT coalesce(sum(pg_column_size("{column}")), 0)::float / greatest(count(*), 1) AS bytes FROM "{name}"'
        ).fetchone()
        assert size
        print(f"  {name}.{column:24} {float(str(size['bytes'])):9.1f} bytes a row")


def report(url: str, processes: Processes, jobs: int, *, columns: bool) -> None:
    """Prints the costs of one run."""
    raw = requests(jobs + 50)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        asyncio.run(measure(url, processes, raw[:50]))
        time.sleep(FLUSH_S)
        tables, sizes, database = _rows(connection, _TABLES), _rows(connection, _SIZES), _database(connection)
        result = asyncio.run(measure(url, processes, raw[50:]))
        time.sleep(FLUSH_S)
        # What it measures itself submits 50 jobs more.
        done = jobs + min(50, jobs)
        used = _difference(_database(connection), database)
        print(f"jobs {done}, {result['jobs_per_s']}/s, CPU ms a job {result['cpu_ms_per_job']}")
        print(
            f"WAL {used['wal'] / done / 1e3:.1f} KB a job in {used['wal_records'] / done:.1f} records"
            f" and {used['page_images'] / done:.2f} page images; {used['commits'] / done:.2f} commits a job"
        )
        print(f"{'a job':22} inserted updated    hot deleted |    rows   toast indexes  bytes")
        total = 0
        for name, counts in _rows(connection, _TABLES).items():
            change = _difference(counts, tables.get(name, {}))
            size = _difference(_rows(connection, _SIZES)[name], sizes.get(name, {}))
            total += sum(size.values())
            if any(change.values()):
                counted = " ".join(f"{value / done:7.2f}" for value in change.values())
                stored = " ".join(f"{value / done:7.0f}" for value in size.values())
                print(f"{name:22} {counted} | {stored}")
        print(f"stored: {total / done / 1e3:.1f} KB a job")
        for name, size in _rows(connection, _INDEXES).items():
            print(f"  {name:30} {size['bytes'] / (done + 50):7.0f} bytes a job")
        if columns:
            _print_columns(connection)


def main() -> None:
    """Starts the system and prints its costs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", type=int, default=2_000)
    arguments.add_argument("--columns", action="store_true", help="also the stored bytes of each column")
    arguments.add_argument("--database", metavar="URL", help="an empty database of another server")
    options = arguments.parse_args()
    with system(0.0, 1, options.database) as (url, processes):
        report(url, processes, options.jobs, columns=options.columns)


if __name__ == "__main__":
    main()
