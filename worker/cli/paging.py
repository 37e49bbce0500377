"""Shows how far a command over many jobs has come, and says how it goes on when it ends midway."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tasks.errors import LedgerError, ServiceUnavailable
from tasks.ports import Page
from worker.cli.messages import tell, warn
from worker.cli.progress import Silent

MOST_NAMED = 20
"""Jobs that can't be changed, named one by one."""


@dataclass(slots=True)
class Paging:
    """The pages done so far; ``total`` is the number of jobs to go through, where it is known."""

    verb: str
    """What becomes of the jobs: ``cancelled``."""
    progress: Silent
    total: int | None = None
    jobs: int = 0
    changed: int = 0
    refused: dict[UUID, str] = field(default_factory=dict)

    def add(self, page: Page) -> None:
        """Take note of a page and show it."""
        self.jobs += page.jobs
        self.changed += len(page.changed)
        self.refused.update(page.refused)
        self.progress.pages(self.verb, self.jobs, self.total)

    def name_refused(self) -> None:
        """Name the jobs that could not be changed, and why."""
        for job_id, why in list(self.refused.items())[:MOST_NAMED]:
            warn(f"job {job_id} can't be {self.verb}: {why}")
        if len(self.refused) > MOST_NAMED:
            warn(f"{len(self.refused) - MOST_NAMED} more jobs can't be {self.verb}")


@contextmanager
def paging(verb: str, progress: Silent, *, again: str) -> Iterator[Paging]:
    """Go through pages; on Ctrl-C, or when the ledger is lost, say how far it came and how it goes on (``again``)."""
    course = Paging(verb, progress)
    try:
        yield course
    except (KeyboardInterrupt, ServiceUnavailable, LedgerError) as error:
        if course.jobs or isinstance(error, KeyboardInterrupt):
            tell(f"Ended midway: {course.changed} jobs {verb} so far. {again}")
        raise
    finally:
        course.name_refused()
