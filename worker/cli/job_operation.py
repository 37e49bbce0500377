"""Runs an operation over many jobs: shows its pages, and says how it goes on when it ends midway."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from tasks.errors import LedgerError, ServiceUnavailable
from worker.cli.interrupts import run_interruptible
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, session
from worker.cli.terminal import actor, tell, warn
from worker.operations.operator import JobPages, Operator
from worker.settings import load_settings

MOST_NAMED = 20
"""Jobs that can't be changed, named one by one."""

Result = TypeVar("Result")


@asynccontextmanager
async def operator_of(opened: Session) -> AsyncIterator[Operator]:
    """The person at this terminal, with the ledger of a session."""
    async with opened.ledger() as ledger:
        yield Operator(actor(), opened.settings, opened.where, ledger, warn)


@contextmanager
def job_pages(verb: str, reporter: Reporter, *, again: str) -> Iterator[JobPages]:
    """Counts and shows pages; on Ctrl-C, or when the ledger is lost, says how far it came and how it goes on (``again``).

    ``verb`` says what becomes of the jobs: ``cancelled``.
    """
    pages = JobPages(lambda pages: reporter.pages(verb, pages.jobs, pages.total))
    try:
        yield pages
    except (KeyboardInterrupt, ServiceUnavailable, LedgerError) as error:
        if pages.jobs or isinstance(error, KeyboardInterrupt):
            tell(f"Ended midway: {pages.changed} jobs {verb} so far. {again}")
        raise
    finally:
        for job_id, reason in list(pages.refused.items())[:MOST_NAMED]:
            warn(f"job {job_id} can't be {verb}: {reason}")
        if len(pages.refused) > MOST_NAMED:
            warn(f"{len(pages.refused) - MOST_NAMED} more jobs can't be {verb}")


def operate(
    verb: str, operation: Callable[[Operator, JobPages], Awaitable[Result]], *, again: str
) -> tuple[Result, JobPages]:
    """Runs one operation on the ledger of the settings; returns its result and the pages that it went through."""

    async def run(opened: Session, pages: JobPages) -> Result:
        async with operator_of(opened) as operator:
            return await operation(operator, pages)

    with (
        session(load_settings(), writes=False) as opened,
        reporting(quiet=False) as reporter,
        job_pages(verb, reporter, again=again) as pages,
    ):
        return run_interruptible(run(opened, pages)), pages
