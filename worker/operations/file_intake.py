"""Reads files line by line and makes a job of each; tells which lines are no valid jobs, and at once what a whole file lacks."""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from shlex import quote, split
from typing import Any, NamedTuple

from schemas.job import MAX_SOURCES, JobRequest
from tasks.errors import InputError
from tasks.policy.relevance import without_threshold
from tasks.ports import Catalog, Everything, NewBatch, NewJob, Refused, Submitter
from tasks.raw_jobs import as_check_only, read_job, scores_of
from tasks.raw_jobs.left_over import (
    MOST_NAMED,
    listed,
    possible_questions,
    possible_sources,
    require_sources,
    shortened,
    text_size,
)
from tasks.raw_jobs.names import field_of
from tasks.raw_jobs.nested import ASKS
from tasks.raw_jobs.printed import structure
from tasks.raw_jobs.sources import read_sources
from tasks.submit import FIRST, make_job, parse_request
from worker.operations.counts import count_of
from worker.operations.input_columns import ColumnMap, JobMaker, likeness_to_several, name_main, reach, renamed
from worker.operations.input_content import ContentDigest, SameInput
from worker.operations.input_rows import LINES, Row, Rows, reading
from worker.operations.json_lines import display_name
from worker.operations.unpacked_file import too_many_lines

CHUNK = 20
"""Jobs read at a time, in a millisecond; then the ledger's connection is served, which writes those read before.

The first of them are compared with earlier batches before the others are read.
"""


class InputBounds(NamedTuple):
    """Most lines of an input, and most of them that may be refused; beyond either nothing is accepted."""

    lines: int
    refused: int

    def check(self, lines: int, refused: int) -> None:
        """Raises ``InputError`` beyond a bound."""
        if lines > self.lines:
            raise too_many_lines(self.lines)
        if refused > self.refused:
            raise InputError(f"more than {self.refused:,} lines are not valid; nothing was accepted")


@dataclass(frozen=True, slots=True)
class InputOrder:
    """The files of one batch, and how they are read."""

    files: Sequence[str]
    """Names; ``-`` is standard input."""
    batch: Mapping[str, Any] = field(default_factory=dict)
    """Name, key, ceiling and defaults of the batch, as ``BatchRequest`` takes them."""
    strict: bool = False
    """Accept all lines or none."""
    check_only: bool = False
    """Each line holds an answer to check."""
    columns: ColumnMap = field(default_factory=ColumnMap)
    """Of the rows, beside those known by their names."""
    same_input: SameInput | None = None
    """The way of an input that was submitted before; None: each submission is a batch of its own."""
    priority: int = 0
    """Of jobs that set none; no part of their request, so that the same input stays the same."""
    tenant: str | None = None
    """The tenant whose jobs they are; None: that of the settings."""
    submitter: Submitter | None = None
    """The key of the HTTP service that they came with."""
    bounds: InputBounds | None = None
    """None: any number of lines."""
    opened: Callable[[Iterator[Row]], Iterator[Row]] | None = None
    """Takes the jobs out of what is around them in each row; None: they are the rows, or in these."""
    named: Callable[[InputError, Any], InputError] | None = None
    """Tells the fault of a job by the names that its producer knows; None: they are those of a job."""


@dataclass(slots=True)
class Intake:
    """The jobs of some files, in order; afterwards, what was refused on the way.

    A job's position is that of its line over all files; a blank line has one, too, and so has the first row of a table: the line
    that screens and ``BATCH:lineN`` name is the one that an editor or a spreadsheet shows. Line N of the output answers the Nth
    line with a job.
    """

    order: InputOrder
    batch: NewBatch
    on_refused: Callable[[Refused], None] = lambda _: None
    """Receives each refused line at once."""
    catalog: Catalog = field(default_factory=Everything)
    """The models and prompts that the installation serves."""
    tell: Callable[[str], None] = lambda _: None
    """Receives how a file is read, where that is not plain from its lines."""
    digest: ContentDigest | None = None
    """Of what was read; None: nobody asks for it."""
    lines: int = 0
    """Those that are not blank."""
    position: int = 0
    """Of the next line."""
    accepted: int = 0
    refused: list[Refused] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    _common_faults: Counter[str] = field(default_factory=Counter)
    """Lines by a fault that is none of theirs: of the batch's defaults, or of the settings."""
    _places: dict[tuple[str, str], str] = field(default_factory=dict)
    """The line of the job that has a custom id or a message id."""
    _chunks: dict[int, int] = field(default_factory=dict)
    """What the first row that asked a question had as its one source, both as hashes."""
    _asked_again: str = ""
    """The first row that asks as one above, with another source."""

    def jobs(self) -> Iterator[NewJob]:
        """Reads and validates everything once; refused lines are noted and skipped.

        Raises: InputError when a file can't be read, and at the end in strict mode when a line was refused.
        """
        order = self.order
        headings = partial(name_main, order.columns, check_only=order.check_only)
        for name in order.files:
            with reading(name, headings, order.columns.encoding, order.opened) as file:
                yield from self._jobs_of(name, file)
        if order.strict and self.refused:
            raise InputError(
                self.common_fault
                or f"{len(self.refused):,} of {count_of(self.lines, 'line')} not valid; nothing was submitted (strict)"
            )

    @property
    def common_fault(self) -> str | None:
        """The one fault of all lines, where it is none of theirs; None where a line is at fault, or valid."""
        message = next(iter(self._common_faults), None)
        return message if message is not None and self._common_faults[message] == self.lines else None

    def warn_of_jobs(self, warn: Callable[[str], None]) -> None:
        """Tells what the producer should know of the accepted lines, each thing once, with the names of all lines."""
        jobs: Counter[str] = Counter()
        names: dict[str, dict[str, None]] = {}
        for warning, count in self.warnings.items():
            what, _, of_one = warning.partition(": ")
            jobs[what] += count
            names.setdefault(what, {}).update(dict.fromkeys(of_one.split(", ") if of_one else ()))
        for what, count in jobs.items():
            warn(": ".join(filter(None, (what, shortened([*names[what]])))) + f" ({count_of(count, 'job')})")

    def refuse(self, lines: Iterable[Refused]) -> None:
        """Takes back lines that counted as accepted."""
        for line in lines:
            self.accepted -= 1
            self._note(line)

    def _note(self, line: Refused) -> None:
        self.refused.append(line)
        self.on_refused(line)

    def _jobs_of(self, name: str, file: Rows) -> Iterator[NewJob]:
        title, order = display_name(name), self.order

        def tell(message: str) -> None:
            self.tell(f"{title}: {message}" if file.form is LINES else f"{title} is {file.form.name}: {message}")

        maker = JobMaker(order.columns, order.check_only, tell, cells=file.form.cells, text=bool(file.form.delimiter))
        first_rows = FirstRows(maker)
        rows = first_rows.read(file.rows, title, by_person=order.bounds is None)
        defaults, about_scores = without_threshold(first_rows.scores, self.batch.defaults)
        first = self.position
        for group in _groups(rows, order.columns.group_by):
            row = group[0]
            # A line may hold several questions, each of which takes a position; without lines rows follow each other.
            position = max(self.position, first + row.line - 1)
            self.lines, self.position = self.lines + len(group), position + 1
            if order.bounds is not None:
                order.bounds.check(self.lines, len(self.refused))
            raw: Any = row.value
            try:
                raw = _raw_job(maker, group)
                job = self._job(raw, position, row.place, defaults, maker)
            except InputError as error:
                if order.named is not None and row.error is None:
                    error = order.named(error, raw)
                if (fault := self._common_fault(raw, error)) is not None:
                    self._common_faults[fault] += 1
                own = f"; to keep the column as it is: --map metadata.{error.field}={error.field}"
                message = (
                    f"{maker.words_of(error, raw)}{own if file.form.cells and error.field in _OFTEN_FOREIGN else ''}"
                )
                self._note(Refused(position, message, error.field, _custom_id(raw), row.place))
                continue
            if about_scores is not None:
                self.warnings[about_scores] += 1
            # In strict mode the rest is read only to name all that is wrong.
            if not (order.strict and self.refused):
                self.accepted += 1
                yield job

    def _common_fault(self, raw: Any, error: InputError) -> str | None:
        """The message of a fault in a config that the line has not set itself, with the default at fault; else None."""
        section, _, path = (error.field or "").partition(".")
        name = path.partition(".")[0]
        config = raw.get("config") if isinstance(raw, dict) else None
        own = config.keys() if isinstance(config, dict) else frozenset()
        # A provider and its model are at fault together.
        if section != "config" or own & ({"provider", "model"} if name in {"provider", "model"} else {name}):
            return None
        message = str(error).removeprefix(f"{error.field}: ")
        return f"{name}: {message}" if name in (self.batch.defaults or {}) else message

    def _job(self, raw: Any, position: int, place: str, defaults: dict[str, Any] | None, maker: JobMaker) -> NewJob:
        order, together = self.order, f"to ask once with all sources: --group-by {quote(maker.column_of('query'))}"
        if order.check_only:
            raw = as_check_only(raw)
        request, warnings = parse_request(raw, defaults)
        job, more = make_job(request, self.batch, self.catalog, position=position, place=place)
        again = self._asks_again(request)
        for name, value in (("custom_id", job.custom_id), ("message_id", job.message_id)):
            if value is not None and (earlier := self._places.setdefault((name, value), place)) != place:
                remedy = f"a row is one job; {together}" if again else "give each row one of its own, or none"
                raise InputError(f"{value!r} is already in {earlier}; {remedy}", field=name)
        if order.priority and "priority" not in request.model_fields_set:
            job = replace(job, priority=order.priority)
        if order.bounds is None and not any(source.content.strip() for source in request.context):
            warnings.append(f"without sources there is no answer: {place}")
        if request.response in {source.content for source in request.context}:
            warnings.append("an answer that is the whole text of one of its sources is supported by itself")
        if request.check_only and not order.check_only and order.bounds is None:
            warnings.append("a line with 'response' holds an answer: it is checked, and none is made")
        if again:
            self._asked_again = self._asked_again or place
            warnings.append(
                f"from {self._asked_again} on, rows ask as a row above, each as a job with its own source alone; {together}"
            )
        self.warnings.update(warnings + more)
        if self.digest is not None:
            self.digest.add(job, request)
        return job

    def _asks_again(self, request: JobRequest) -> bool:
        """Tells a row of a table that has a chunk a row, and the question again in each."""
        chunk = hash(tuple(source.content for source in request.context))
        return len(request.context) == 1 and chunk != self._chunks.setdefault(
            hash((request.query, request.response)), chunk
        )


_OFTEN_FOREIGN = frozenset({"priority", "deadline", "scheduled_at", "intent", "aggregate"})
"""Fields whose names are columns of other meaning in tables of tickets and orders."""


def _groups(rows: Iterable[Row], column: str | None) -> Iterator[list[Row]]:
    """The rows one by one, or those together that follow each other with the same value in a column."""
    group: list[Row] = []
    last: Any = None
    for row in rows:
        value = reach(row.value, [column]).get(column) if column and isinstance(row.value, dict) else None
        if group and (value in (None, "") or value != last or len(group) == MAX_SOURCES):
            yield group
            group = []
        group.append(row)
        last = value
    if group:
        yield group


def _raw_job(maker: JobMaker, rows: Sequence[Row]) -> Any:
    """The raw job of the first of some rows, with the sources of all."""
    if (error := rows[0].error) is not None:
        raise error
    if len(rows) == 1:
        return maker.job(rows[0].value)
    jobs = [read_job(maker.job(row.value), check_only=maker.check_only) for row in rows]
    return {**jobs[0], "context": [*chain.from_iterable(job.get("context", ()) for job in jobs)]}


def _custom_id(raw: Any) -> str | None:
    """The custom id of a refused row, so that its producer recognises it."""
    members = raw.items() if isinstance(raw, dict) else ()
    return next((each for key, each in members if field_of(key) == "custom_id" and isinstance(each, str)), None)


MOST = 100
"""Rows that are looked at where none has sources."""

MOST_CHARACTERS = 4_000_000
"""Of these rows, which are held until they are read."""


_ID = re.compile(
    r"(?:[!-)+-.:-^`-~]*[\d_*/][!-~]*|[^\n]{1,200}\.(?:pdf|docx?|txt|md|html?|csv|jsonl?|pptx?|xlsx?)|\*[^*.\n]{1,99}\*(?:, \*[^*.\n]{1,99}\*)*)?"
)
"""Nothing, or an id, the name of a file or a pattern of such names in the place of a source; '12.50' may end a sentence."""


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
    _likeness: str = ""
    """Says that a source looks like several."""
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
        self._missing = {*columns.inside, *columns.named, *filter(None, [columns.group_by])}
        for row in rows:
            self.rows.append(row)
            self._add(row)
            full = self._size > MOST_CHARACTERS or len(self.rows) == MOST
            certain = not self._missing and self._main and (self._sources or (self._names_sources and not by_person))
            if full or (certain and len(self.rows) >= FIRST):
                break
        if self._keys and by_person:
            self._check(title)
        elif self._jobs and not self._names_sources:
            require_sources(self._keys, self._jobs)
        return self._all(rows)

    def _check(self, title: str) -> None:
        if self._missing:
            raise InputError(
                f"{title} has no {min(self._missing)!r}, which --map or --group-by names, in its first {count_of(len(self.rows), 'row')}; "
                f"they have {listed(self._keys)}. Nothing was submitted"
            )
        if not self._main:
            raise InputError(self._no_question(title))
        if self._jobs and not self._sources:
            raise InputError(self._no_sources(title))
        if self._likeness and self.maker.columns.source_delimiter is None:
            self.maker.tell(self._likeness)

    def _all(self, rows: Iterator[Row]) -> Iterator[Row]:
        while self.rows:
            yield self.rows.popleft()
        yield from rows

    def _add(self, row: Row) -> None:
        if row.error is not None or not isinstance(row.value, dict):
            return
        self._size += text_size(row.value)
        for key, value in row.value.items():
            # The longest of its values tells best what a column holds.
            each = structure(value)
            if key not in self._keys or text_size(each) > text_size(self._keys[key]):
                self._keys[key] = each
        if self._missing:
            self._missing -= _keys_in(reach(row.value, self._missing))
        try:
            job = read_job(self.maker.job(row.value), check_only=self.maker.check_only)
        except InputError as error:
            # It is told with its line; a source without a known text is one.
            self._main = True
            self._sources |= (error.field or "").startswith("context")
            return
        self._main |= self._field in job
        self._names_sources |= "context" in job
        if job.get("query") or job.get("response"):
            self._jobs += 1
            texts = [str(source["content"]) for source in job.get("context", ())]
            self._likeness = self._likeness or likeness_to_several(texts)
            self._sources |= not all(_ID.fullmatch(text.strip()) for text in texts)
            self.scores += scores_of(job)

    @property
    def _field(self) -> str:
        return "response" if self.maker.check_only else "query"

    @property
    def _free(self) -> dict[str, Any]:
        """The keys, and those inside of them, that no option names."""
        return {key: each for key, each in _members(self._keys) if key not in self.maker.columns.named}

    def _no_question(self, title: str) -> str:
        keys = self._free
        likely = [] if self.maker.check_only else possible_questions(keys)
        name = [*likely, "NAME"][0]
        options = f"--map {quote(f'{self._field}={name}')}"
        keys.pop(name, None)
        if not self._names_sources:
            options += self._maps(keys)
        what = "the answer to check" if self.maker.check_only else "the question"
        if self.maker.text and any(map(_SENTENCE.fullmatch, self._keys)):
            return (
                f"{title} holds no jobs: its first row must name the columns, and reads like a job: {listed(self._keys)}. Write a row of "
                f"names above it (query,context); or, where these are names, say which is {what}: {options}. Nothing was submitted"
            )
        return (
            f"{title} holds no jobs by its {'columns' if self.maker.cells else 'keys'} {listed(self._keys)}: none is known as "
            f"{what}, and no conversation ends with one. Add it to each row as {self._field!r}, or say which it is: {options}. "
            "Nothing was submitted"
        )

    def _no_sources(self, title: str) -> str:
        empty = " but empty ones, or ids," if self._names_sources else ""
        keys = self._free
        cure = (
            f"left over is {listed(possible_sources(keys))}; take them from there:{options}"
            if (options := self._maps(keys))
            else "give them in 'context'"
        )
        return (
            f"{title} has no sources{empty} in its first {count_of(len(self.rows), 'row')}, and without them there is no answer: "
            f"{cure}. Nothing was submitted"
        )

    def _maps(self, values: Mapping[str, Any]) -> str:
        """The options that take sources from the likeliest column that can be read, and from those that only their numbers tell from it.

        Empty where none would help.
        """
        for name in possible_sources(values)[:MOST_NAMED]:
            if (option := _content_option(values[name])) is not None:
                columns = ",".join(each for each in values if _DIGITS.sub("", each) == _DIGITS.sub("", name))
                options = f" --map {quote(f'sources={columns}')}{option}"
                if not self._take_answer(options):
                    return options
        return ""

    def _take_answer(self, options: str) -> bool:
        """Tells options that make a source of an answer, which would support itself."""
        columns = replace(self.maker.columns, columns=ColumnMap.parse(split(options)[1::2]).columns)
        maker = replace(self.maker, columns=columns, tell=lambda _: None, _plans={})
        for row in [each.value for each in self.rows if isinstance(each.value, dict)]:
            answers = [each for key, each in row.items() if each and field_of(key) == "response"]
            with suppress(InputError):
                if any(source["content"] in answers for source in read_job(maker.job(row)).get("context", ())):
                    return True
        return False


def _keys_in(value: Any) -> set[str]:
    """All names in a value and the values inside of it."""
    value = structure(value)
    if isinstance(value, dict):
        return set(value).union(*map(_keys_in, value.values()))
    return set().union(*map(_keys_in, value)) if isinstance(value, list) else set()


_SENTENCE = re.compile(r"(?:\S+\s+){3,}\S*[.?!]")
"""What names no column: four words at least, with a mark at their end."""

_DIGITS = re.compile(r"\d+")


def _content_option(value: Any) -> str | None:
    """The option that names the text of each source in a value; empty where that is known, None where none would help."""
    try:
        return "" if _has_text(value) else None
    except InputError as error:
        option = str(error).partition(" --map ")[2]
    if not option:
        return ""
    try:
        return (
            f" --map {option}" if _has_text(renamed(structure(value), ColumnMap.parse(split(option)).inside)) else None
        )
    except InputError:
        return None


def _has_text(value: Any) -> bool:
    return any(str(each["content"]).strip() for each in read_sources(value))


def _members(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values and those inside of objects, of a list those of its elements, by names as ``--map`` takes them."""
    for key, each in values.items():
        yield before + key, each
        listed = each[:MOST] if isinstance(each, list) and field_of(key) not in ASKS else ()
        elements = chain.from_iterable(row if isinstance(row, list) else [row] for row in listed)
        rows = [row for row in elements if isinstance(row, dict)]
        names = dict.fromkeys(chain.from_iterable(rows))
        inner = {name: [row[name] for row in rows if name in row] for name in names}
        yield from _members(each if isinstance(each, dict) else inner, f"{before}{key}.")
