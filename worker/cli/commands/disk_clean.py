"""``nightdesk clean``: what of a home takes how much disk, and the removal of old jobs with all their rows."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.text import Text

from tasks.errors import InputError
from worker.cli import options
from worker.cli.commands.job_commands import as_operator, job_pages
from worker.cli.commands.removal_commands import age, confirm
from worker.cli.console import console, table_of
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.progress import reporting
from worker.cli.session import Session, session
from worker.cli.terminal import tell, write_json
from worker.ledger.disk_space import LedgerSize
from worker.operations import content_removal
from worker.operations.content_removal import PruneScope, Removal
from worker.operations.counts import count_of
from worker.operations.operator import JobPages, Operator
from worker.settings import load_settings

_CONTENTS = {
    "job_request": "questions and sources",
    "completion": "prompts, and answers as they came",
    "generation_record": "records: answers, claims, evidence",
    "attempt": "calls",
    "job": "jobs",
    "job_event": "events of jobs",
    "judge_verdict": "verdicts of judges, kept to be used again",
    "upload_piece": "uploaded files",
    "provider_batch_call": "calls in provider batches",
}
"""The tables that grow with the jobs."""

LEAST_SHOWN = 1 << 20
"""Bytes of a table that is named."""


Usage = tuple[LedgerSize, dict[str, int]]
"""The disk that a ledger takes, and the bytes of the folders of its home."""


def clean(
    *,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Delete jobs that are final for longer: 90d, 12w, 36h.")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Delete the final jobs of this batch.")] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink", help="Give the freed space back to the disk; nothing can work on the ledger meanwhile."
        ),
    ] = False,
    yes: options.Yes = False,
    dry_run: options.CountOnly = False,
    as_json: options.Json = False,
) -> int:
    """Show what takes how much disk; with --older-than or --batch, delete final jobs with all their rows.

    A batch keeps its line with what it cost. 'prune' deletes the content alone, and on a timer; 'erase' content of
    chosen jobs. Freed space is used again by new jobs; --shrink gives it back to the disk, also without a removal.
    """
    scope = None
    if older_than is not None or batch is not None:
        span = timedelta(0) if older_than is None else age(older_than)
        scope = PruneScope(span, None if batch is None else options.batch_id(batch), None, rows=True)
    settings = load_settings()
    with session(settings, writes=False) as opened:
        before = _measure(opened)
        removal = (
            None if scope is None else as_operator(opened, lambda operator: content_removal.survey_old(operator, scope))
        )
        if (removal is None and not shrink) or dry_run:
            _show(before, removal, as_json=as_json)
            return OK
        if shrink and opened.supervisor.running():
            raise InputError("--shrink stops all work on the ledger: 'nightdesk down' first, then clean again")
        if removal is not None and removal.jobs:
            jobs = _jobs(removal)
            more = ", and the ledger be shrunk" if shrink else ""
            confirm(f"Delete {jobs} for good{more}", f"{jobs} would be deleted for good", yes=yes)
        with (
            reporting(quiet=False) as reporter,
            job_pages("deleted", reporter, again="The same command goes on") as pages,
        ):
            done = as_operator(opened, lambda operator: _remove(operator, scope, pages, shrink=shrink))
        after = _measure(opened)
    _sum_up(before, after, done, shrink=shrink, as_json=as_json)
    return INCOMPLETE if pages.refused or done.redis_unreachable else OK


def _measure(opened: Session) -> Usage:
    root = opened.state.root
    names: tuple[str, ...] = ("logs", "spool", "uploads", "local/logs")
    if opened.settings.embedded():
        # The write-ahead log is used again and again, and is most of a small ledger.
        names += ("local/data/valkey", "local/data/postgres/pg_wal")
    folders = {name: folder_bytes(root / name) for name in names}
    ledger = opened.on_ledger(lambda ledger: ledger.space.measure())
    return ledger, {name: size for name, size in folders.items() if size}


def folder_bytes(folder: Path) -> int:
    """The bytes that the files in a folder take; 0 where it is none or may not be read."""

    def sizes(path: Path) -> Iterator[int]:
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                yield folder_bytes(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False).st_blocks * 512

    try:
        return sum(sizes(folder))
    except OSError:
        # Files come and go while servers run, and those of their account may be closed to us.
        return 0


async def _remove(operator: Operator, scope: PruneScope | None, pages: JobPages, *, shrink: bool) -> Removal:
    done = Removal() if scope is None else await content_removal.prune(operator, scope, pages)
    await operator.ledger.space.give_back(whole=shrink)
    return done


def _jobs(removal: Removal, count: int | None = None) -> str:
    jobs = count_of(removal.jobs if count is None else count, "job")
    return f"{jobs} of {count_of(len(removal.batches), 'batch', 'batches')}"


def _document(usage: Usage) -> dict[str, Any]:
    return {"ledger": asdict(usage[0]), "folders": usage[1]}


def _show(usage: Usage, removal: Removal | None, *, as_json: bool) -> None:
    if as_json:
        jobs = None if removal is None else {"jobs": removal.jobs, "batches": len(removal.batches)}
        write_json({**_document(usage), "would_delete": jobs})
        return
    table = table_of("", "")
    for text, size in _parts(usage):
        table.add_row(f"{decimal(size):>10}", Text(text))
    console().print(table)
    if removal is None:
        tell("to delete old jobs: nightdesk clean --older-than 90d --dry-run")
    else:
        tell(f"{_jobs(removal)} would be deleted")


def _parts(usage: Usage) -> Iterator[tuple[str, int]]:
    """The parts of a home with their bytes: the database, its large tables, folders."""
    ledger, folders = usage
    yield "the ledger (database)", ledger.database
    for name, size in ledger.tables.items():
        if name in _CONTENTS and size >= LEAST_SHOWN:
            yield f"  of it {_CONTENTS[name]} ({name})", size
    for name, size in folders.items():
        yield f"{name}/ of the home", size


def _sum_up(before: Usage, after: Usage, done: Removal, *, shrink: bool, as_json: bool) -> None:
    given_back = max(0, before[0].database - after[0].database)
    if as_json:
        write_json(
            {"deleted": done.deleted, "batches": len(done.batches), "given_back_bytes": given_back, **_document(after)}
        )
        return
    tell(f"{_jobs(done, done.deleted)} deleted")
    tell(f"{decimal(given_back)} given back to the disk; the ledger takes {decimal(after[0].database)}")
    if done.deleted and not shrink:
        tell(
            "the rest of the freed space is used by new jobs first; to give it back to the disk: nightdesk clean --shrink"
        )
