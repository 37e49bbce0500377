"""Looks at the first rows of a file before anything is submitted: whether they have a question, sources, and the columns that were named."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tasks.errors import InputError
from tasks.raw_jobs import blank_sources, read_job, scores_of
from tasks.raw_jobs.left_over import (
    listed,
    possible_questions,
    possible_sources,
    require_sources,
    structure,
    text_size,
)
from tasks.submit import FIRST
from worker.operations.input_columns import JobMaker
from worker.operations.input_rows import Row

MOST = 100
"""Rows that are looked at where none has sources."""

MOST_CHARACTERS = 4_000_000
"""Of these rows, which are held until they are read."""


@dataclass(slots=True)
class FirstRows:
    """The first rows of a file, as far as they had to be read."""

    maker: JobMaker
    rows: deque[Row] = field(default_factory=deque)
    scores: list[float] = field(default_factory=list)
    """Relevance scores of their sources."""
    _size: int = 0
    _jobs: int = 0
    _main: bool = False
    """A row has the question, or the answer to check."""
    _sources: bool = False
    _chat: bool = False
    """A row has a conversation."""
    _names_sources: bool = False
    """A row says what its sources are, though it be none."""
    _missing: set[str] = field(default_factory=set)
    _keys: dict[str, Any] = field(default_factory=dict)
    """Keys of the rows, each with a value."""

    def read(self, rows: Iterator[Row], title: str, *, by_person: bool) -> Iterator[Row]:
        """Reads as many rows as tell what the file is like; returns all rows.

        Args:
            rows: of the file.
            title: of the file.
            by_person: the file is a person's, who can name columns; else the body of a request.

        Raises: InputError where none has a column that was named, a question or sources.
        """
        columns = self.maker.columns
        self._missing = {*columns.inside, *(() if self.maker.cells else columns.named)}
        for row in rows:
            self.rows.append(row)
            self._add(row)
            full = self._size > MOST_CHARACTERS
            enough = full or len(self.rows) >= FIRST
            certain = not self._missing and self._main and (self._sources or (self._names_sources and not by_person))
            if (enough and certain) or full or len(self.rows) == MOST:
                break
        if self._keys and by_person:
            self._check(title)
        elif self._jobs and not self._names_sources:
            require_sources(self._keys, self._jobs)
        return self._all(rows)

    def _check(self, title: str) -> None:
        if self._missing:
            raise InputError(
                f"{title} has no {min(self._missing)!r}, which --map names, in its first {len(self.rows)} rows; "
                f"they have {listed(self._keys)}. Nothing was submitted"
            )
        if not self._main:
            raise InputError(self._no_question(title))
        if self._jobs and not self._sources:
            raise InputError(self._no_sources(title))

    def _all(self, rows: Iterator[Row]) -> Iterator[Row]:
        while self.rows:
            yield self.rows.popleft()
        yield from rows

    def _add(self, row: Row) -> None:
        if row.error is not None or not isinstance(row.value, dict):
            return
        self._size += text_size(row.value)
        self._keys.update({key: structure(each) for key, each in row.value.items() if each or key not in self._keys})
        if self._missing:
            self._missing -= _keys_in(row.value)
        try:
            raw = self.maker.job(row.value)
            self._main = self._main or self._field in raw
            job = read_job(raw, check_only=self.maker.check_only)
        except InputError as error:
            # It is told with its line; a source without a known text is one.
            self._main = True
            self._sources = self._sources or (error.field or "").startswith("context")
            return
        self._main = self._main or self._field in job
        self._names_sources = self._names_sources or "context" in job
        self._chat = self._chat or bool(job.get("conversation_history"))
        if job.get("query") or job.get("response"):
            self._jobs += 1
            self._sources = self._sources or len(job.get("context", ())) > blank_sources(job)
            self.scores += scores_of(job)

    @property
    def _field(self) -> str:
        return "response" if self.maker.check_only else "query"

    def _no_question(self, title: str) -> str:
        if self._chat and not self.maker.check_only:
            return (
                f"{title} holds no questions: its conversations do not end with the user's turn. 'nightdesk check' checks "
                "an answer that ends one. Nothing was submitted"
            )
        what = "the answer to check" if self.maker.check_only else "the question"
        name = next(iter(possible_questions(self._keys)), "NAME")
        return (
            f"{title} holds no jobs by its keys {listed(self._keys)}: none is known as {what}. Say which it is: "
            f"--map {self._field}={name}. Nothing was submitted"
        )

    def _no_sources(self, title: str) -> str:
        start = (
            f"none of the first {len(self.rows)} rows of {title} has sources"
            if len(self.rows) > 1
            else f"{title} has no sources"
        )
        names = possible_sources(self._keys, self.maker.columns.named)
        if not names:
            return f"{start}, and without them there is no answer: give them in 'context'. Nothing was submitted"
        return (
            f"{start}, and without them there is no answer. Left over is {listed(names)}; take them from there: "
            f"{_maps(names[0], self._keys[names[0]])}. Nothing was submitted"
        )


def _keys_in(value: Any) -> set[str]:
    """All names in a value and the values inside of it."""
    value = structure(value)
    if isinstance(value, dict):
        return set(value).union(*map(_keys_in, value.values()))
    return set().union(*map(_keys_in, value)) if isinstance(value, list) else set()


def _maps(name: str, value: Any) -> str:
    """The options that take sources from a column."""
    options = f"--map sources={name}"
    try:
        read_job({"query": "?", "context": value})
    except InputError as error:
        _, option, hint = str(error).rpartition(" --map ")
        options += option + hint if option else ""
    return options
