"""Looks at the first rows of a file before anything is submitted: whether they have sources, and the columns that a person named."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas.job import JobRequest
from tasks.errors import InputError
from tasks.raw_jobs import read_job, scores_of
from tasks.raw_jobs.names import names_of
from tasks.raw_jobs.printed import structure_of
from tasks.raw_jobs.sources import TEXTS
from tasks.submit import FIRST
from worker.operations.input_columns import JobMaker
from worker.operations.input_rows import Row

MOST = 100
"""Rows that are looked at where none has sources."""

MOST_CHARACTERS = 4_000_000
"""Of these rows, which are held until they are read."""

MOST_NAMED = 10


@dataclass(slots=True)
class FirstRows:
    """The first rows of a file, as far as they had to be read."""

    maker: JobMaker
    rows: deque[Row] = field(default_factory=deque)
    scores: list[float] = field(default_factory=list)
    """Relevance scores of their sources."""
    _size: int = 0
    _jobs: int = 0
    _sources: bool = False
    _missing: set[str] = field(default_factory=set)
    _keys: dict[str, Any] = field(default_factory=dict)
    """Keys of the rows, each with a value."""

    def read(self, rows: Iterator[Row], title: str, *, need_sources: bool) -> Iterator[Row]:
        """Reads as many rows as tell what the file is like; returns all rows.

        Raises: InputError where a column that was named is in none, or none has sources though they are needed.
        """
        columns = self.maker.columns
        self._missing = {*columns.inside, *(() if self.maker.cells else columns.named)}
        for row in rows:
            self.rows.append(row)
            self._add(row)
            full = self._size > MOST_CHARACTERS
            enough = full or len(self.rows) >= FIRST
            certain = not self._missing and (self._sources or not need_sources)
            if (enough and certain) or full or len(self.rows) == MOST:
                break
        if self._keys and self._missing:
            raise InputError(
                f"{title} has no {min(self._missing)!r}, which --map names, in its first {len(self.rows)} rows; "
                f"they have {_listed(self._keys)}. Nothing was submitted"
            )
        if self._jobs and need_sources and not self._sources:
            raise InputError(self._no_sources(title))
        return self._all(rows)

    def _all(self, rows: Iterator[Row]) -> Iterator[Row]:
        while self.rows:
            yield self.rows.popleft()
        yield from rows

    def _add(self, row: Row) -> None:
        if row.error is not None or not isinstance(row.value, dict):
            return
        self._size += _text_size(row.value)
        self._keys.update({key: _structure(each) for key, each in row.value.items() if each or key not in self._keys})
        if self._missing:
            self._missing -= _keys_in(row.value)
        try:
            raw = self.maker.job(row.value)
            job = read_job(raw, check_only=self.maker.check_only)
        except InputError as error:
            # It is told with its line; a source without a known text is one.
            self._sources = self._sources or (error.field or "").startswith("context")
            return
        if job.get("query") or job.get("response"):
            self._jobs += 1
            self._sources = self._sources or bool(job.get("context"))
            self.scores += scores_of(job)

    @property
    def _other_fields(self) -> set[str]:
        """Names of what is no source."""
        names = {name for name, field in names_of(check_only=True).items() if field != "context"}
        return {*JobRequest.model_fields, *names, *self.maker.columns.named}

    def _no_sources(self, title: str) -> str:
        start = (
            f"none of the first {len(self.rows)} rows of {title} has sources"
            if len(self.rows) > 1
            else f"{title} has no sources"
        )
        texts = {
            # A list is rather the sources than a text is.
            key: size * (10 if isinstance(each, list) else 1)
            for key, each in self._keys.items()
            if key.lower() not in self._other_fields and (size := _text_size(each))
        }
        if not texts:
            return f"{start}: give them in 'context'. Nothing was submitted"
        name = max(texts, key=lambda key: texts[key])
        return f"{start}, and without them there is no answer. Left over is {_listed(texts)}; take them from there: {_maps(name, self._keys[name])}. Nothing was submitted"


def _structure(value: Any) -> Any:
    return structure_of(value) or value if isinstance(value, str) else value


def _keys_in(value: Any) -> set[str]:
    """All names in a value and the values inside of it."""
    value = _structure(value)
    if isinstance(value, dict):
        return set(value).union(*map(_keys_in, value.values()))
    return set().union(*map(_keys_in, value)) if isinstance(value, list) else set()


def _text_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_text_size, value)) if isinstance(value, list) else 0


def _maps(name: str, value: Any) -> str:
    """The options that take sources from a column."""
    options = f"--map sources={name}"
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and not first.keys() & {*TEXTS}:
        texts = {key: len(each) for key, each in first.items() if isinstance(each, str)}
        options += f" --map sources.content={max(texts, key=lambda key: texts[key])}" if texts else ""
    return options


def _listed(names: Any) -> str:
    listed = [*map(repr, names)]
    return ", ".join(listed[:MOST_NAMED]) + (", ..." if len(listed) > MOST_NAMED else "")
