"""Reads an input a second time, to compare it with an earlier batch before anything is written."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tasks.ports import Content, NewJob, UnchangedJob
from tasks.submit import chunked
from worker.operations.file_intake import CHUNK, Intake
from worker.operations.input_content import ContentDigest

if TYPE_CHECKING:
    from worker.ledger.batch_contents import BatchContents


class Unchanged(NamedTuple):
    """The lines of an input that earlier batches have already."""

    jobs: Counter[UUID]
    """Numbers of them by batch."""
    lines: int
    """All lines of the input."""


@dataclass(slots=True)
class SecondReading:
    """An input as it was read again."""

    digest: ContentDigest
    lines: int = 0
    unchanged: dict[int, UnchangedJob] = field(default_factory=dict)
    """By position the jobs of an earlier batch, each of which is taken once."""

    def content(self) -> Content:
        """The digests of all lines."""
        return self.digest.content(lines=self.lines)


async def find_unchanged(
    contents: "BatchContents", intake: Intake, tenant: str, basis: bytes, first: Sequence[NewJob]
) -> SecondReading | None:
    """The input read again beside earlier batches; None where none has any of its first jobs with the same facts that decide.

    Args:
        contents: of the ledger.
        intake: of which the first jobs were read.
        tenant: whose batches are looked at.
        basis: the settings that decide answers.
        first: the first jobs.
    """
    decisive = intake.digest.basis() if intake.digest is not None else b""
    earlier = await contents.like(tenant, decisive, [job.request_hash for job in first])
    if not earlier:
        return None
    again = read_again(intake, basis, await contents.unchanged(earlier))
    return again if again.unchanged else None


def read_again(intake: Intake, basis: bytes, earlier: Iterable[UnchangedJob] = ()) -> SecondReading:
    """Reads all lines, without a word, and finds each among earlier jobs."""
    reading = SecondReading(ContentDigest(basis))
    # Of other prompts than the first jobs have, nothing tells whether the text was the same then.
    foreign_positions: set[int] = set()
    reading.digest.foreign_positions = foreign_positions
    again = replace(
        intake, order=replace(intake.order, strict=False), on_refused=lambda _: None, tell=lambda _: None,
        digest=reading.digest, lines=0, position=0, accepted=0, refused=[], warnings=Counter(), first={}, _places={},
    )  # fmt: skip
    jobs_by_hash: dict[bytes, deque[UnchangedJob]] = defaultdict(deque)
    for each in earlier:
        jobs_by_hash[each.request_hash].append(each)
    for number, chunk in enumerate(chunked(again.jobs(), CHUNK)):
        if not number:
            reading.digest.end_head()
        for job in chunk:
            same = jobs_by_hash.get(job.request_hash) if job.position not in foreign_positions else None
            while same and job.position not in reading.unchanged:
                if (candidate := same.popleft()).serves(job, intake.batch):
                    reading.unchanged[job.position] = candidate
    reading.lines = again.lines
    return reading
