"""``nightdesk erase``, ``prune`` and ``clean``: remove the content of jobs, or the jobs; what of the ledger takes how much disk."""

import sys
from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer
from rich.filesize import decimal
from rich.text import Text

from schemas.model_call import plain_usd
from tasks.errors import InputError
from tasks.results import parse_job_ids
from worker.cli import options
from worker.cli.commands.job_commands import as_operator, job_pages, operate
from worker.cli.console import console, table_of
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.progress import reporting
from worker.cli.session import session
from worker.cli.terminal import tell, write_json
from worker.operations import content_removal
from worker.operations.content_removal import ErasureScope, PruneScope, Removal
from worker.operations.counts import cost, count_of
from worker.operations.operator import JobPages, Operator

_REST = "The same command takes the rest"


def erase(
    *,
    job: Annotated[list[str] | None, option("A job; may be given more than once.", metavar="ID")] = None,
    batch: Annotated[UUID | None, options.batch_option("All jobs of a batch.", "ID")] = None,
    tenant: Annotated[str | None, option("All jobs of a tenant.", metavar="NAME", parser=options.tenant_of)] = None,
    cancel: Annotated[bool, option("First cancel unfinished jobs.", "--cancel")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Remove what jobs were asked and what was answered, for good; states, times and costs are kept.

    Questions, sources, answers, audit records, custom ids and keys go, from the ledger, from Redis and from this home.
    """
    if sum(scope is not None for scope in (job or None, batch, tenant)) != 1:
        raise InputError("give one of --job, --batch and --tenant")
    scope = ErasureScope(tuple(dict.fromkeys(parse_job_ids(job or []))), batch, tenant)
    with session(writes=False) as opened:
        count = as_operator(opened, lambda operator: content_removal.survey(operator, scope, cancel=cancel))
        jobs = count_of(count, "job")
        confirm(f"Remove the content of {jobs} for good", f"the content of {jobs} would be removed for good", yes=yes)
        with reporting(quiet=False) as reporter, job_pages("erased", reporter, again=_REST) as pages:
            pages.total = count
            done = as_operator(opened, lambda operator: content_removal.erase(operator, scope, pages, cancel=cancel))
    if as_json:
        write_json({
            "erased": done.erased, "not_final": done.not_final, "batches": done.sealed,
            "unheard_calls": done.unknown_calls,
        })  # fmt: skip
    else:
        _sum_up_erased(done, count)
    return INCOMPLETE if done.not_final or done.redis_unreachable or pages.refused else OK


def confirm(question: str, consequence: str, *, yes: bool) -> None:
    """Asks at a terminal, unless ``yes`` was said; raises ``InputError`` where nobody can answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{consequence}: say --yes")
    typer.confirm(f"{question}?", abort=True, err=True)


def _sum_up_erased(done: Removal, count: int) -> None:
    before = "" if done.erased == count else ", the others were before"
    sealed = f"; {count_of(done.sealed, 'batch', 'batches')} wholly erased now" if done.sealed else ""
    tell(f"{done.erased:,} of {count_of(count, 'job')} erased{before}{sealed}")
    if done.unknown_calls:
        tell(
            f"what became of {count_of(done.unknown_calls, 'call')} of these jobs is not known: an answer that a worker kept on its disk "
            "(spool in its NIGHTDESK_HOME) stays there until a worker starts in that home, and is dropped then"
        )
    if done.not_final:
        tell(f"{count_of(done.not_final, 'job')} came meanwhile, not final: erase again")


def prune(
    *,
    older_than: Annotated[str, option("Only jobs final for longer: 90d, 12w, 36h.", metavar="AGE")],
    batch: Annotated[UUID | None, options.batch_option("Only of this batch.", "ID")] = None,
    tenant: Annotated[str | None, option("Only of this tenant.", metavar="NAME", parser=options.tenant_of)] = None,
    rows: Annotated[bool, option("Delete the jobs with their rows, not only content.", "--rows")] = False,
    dry_run: options.CountOnly = False,
    as_json: options.Json = False,
) -> int:
    """Remove the content of jobs that ended long ago, or delete the jobs; for a nightly timer.

    Works in chunks: ended with Ctrl-C it goes on the next time. A batch keeps its line with what it cost.
    """
    if batch is not None and tenant is not None:
        raise InputError("give --batch or --tenant, not both")
    scope = PruneScope(options.age(older_than), batch, tenant, rows)
    verb = "deleted" if rows else "erased"

    async def operation(operator: Operator, pages: JobPages) -> Removal:
        return await (
            content_removal.survey_old(operator, scope) if dry_run else content_removal.prune(operator, scope, pages)
        )

    done, pages = operate(verb, operation, again=_REST)
    if as_json:
        spent = None if done.cost_usd is None else plain_usd(done.cost_usd)
        write_json({
            "jobs": done.jobs, "batches": len(done.batches), "attempts": done.attempts,
            "input_tokens": done.input_tokens, "output_tokens": done.output_tokens, "cost_usd": spent,
        })  # fmt: skip
    else:
        tell(
            f"{count_of(done.jobs, 'job')} of {count_of(len(done.batches), 'batch', 'batches')} {'would be ' if dry_run else ''}{verb}"
        )
        if rows and not dry_run:
            tell(
                f"their rows held {done.attempts} attempts, {done.input_tokens} input and {done.output_tokens} "
                f"output tokens, {cost(done.cost_usd) if done.cost_usd is not None else 'an unknown cost'}; each batch keeps what it cost"
            )
    return INCOMPLETE if done.redis_unreachable or pages.refused else OK


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


def clean(
    *,
    shrink: Annotated[
        bool,
        option("Give the freed space back to the disk; nothing can work on the ledger meanwhile.", "--shrink"),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Show what of the ledger takes how much disk; with --shrink, give what is freed back to it.

    'prune --rows' deletes old jobs with all their rows, 'erase' the content of chosen ones. Freed space is used again by
    new jobs, also without --shrink.
    """
    with session(writes=False) as opened:
        before = opened.on_ledger(lambda ledger: ledger.space.measure())
        if shrink:
            if opened.supervisor.running():
                raise InputError("--shrink stops all work on the ledger: 'nightdesk down' first, then clean again")
            opened.on_ledger(lambda ledger: ledger.space.give_back())
        size = opened.on_ledger(lambda ledger: ledger.space.measure()) if shrink else before
    given_back = max(0, before.database - size.database)
    if as_json:
        write_json({"ledger": asdict(size), "given_back_bytes": given_back})
        return OK
    table = table_of("", "")
    table.add_row(f"{decimal(size.database):>10}", Text("the ledger (database)"))
    for name, count in size.tables.items():
        if name in _CONTENTS and count >= LEAST_SHOWN:
            table.add_row(f"{decimal(count):>10}", Text(f"  of it {_CONTENTS[name]} ({name})"))
    console().print(table)
    tell(
        f"{decimal(given_back)} given back to the disk"
        if shrink
        else "to delete old jobs: nightdesk prune --rows --older-than 90d"
    )
    return OK
