"""Makes raw jobs of the rows of a file: names and columns of others become the fields of the contract."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Self
from uuid import UUID

import orjson

from schemas.job import SHOWN_METADATA, GenerationConfig, SourceContext
from tasks.errors import InputError
from tasks.raw_jobs import longest_in
from tasks.raw_jobs.left_over import listed
from tasks.raw_jobs.names import field_of, is_field, plan_names
from tasks.raw_jobs.printed import structure, structure_of
from worker.operations.json_lines import json_fault

_JSON_FIELDS = frozenset({"config", "metadata", "conversation_history", "aggregate", "priority"})
"""Fields whose cells in a table of text hold JSON."""

_OPEN_FIELDS = ("config", "metadata")
"""Fields with members, which a column may name: ``config.model``."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """The columns that a person names for fields of a job, beside those that are known by their names."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By field; several only for ``context``."""
    source_delimiter: str | None = None
    """Stands between the sources in one cell."""
    encoding: str | None = None
    """Of files of text; None: UTF-8, or UTF-16 with its mark."""
    group_by: str | None = None
    """Rows that follow each other with the same value in this column are one job."""

    @classmethod
    def parse(
        cls,
        options: Iterable[str],
        source_delimiter: str | None = None,
        encoding: str | None = None,
        group_by: str | None = None,
    ) -> Self:
        """Reads options in the form FIELD=COLUMN; raises ``InputError``."""
        columns: dict[str, tuple[str, ...]] = {}
        for option in options:
            name, equals, column = option.partition("=")
            head, dot, member = name.strip().partition(".")
            target = field_of(head) + dot + member
            if not equals or not target or not column:
                raise InputError(f"--map {option!r}: give FIELD=COLUMN, such as query=frage or sources=text1,text2")
            _require_field(option, target, column)
            if target in columns:
                raise InputError(f"--map names {target!r} twice; several columns of sources: sources=text1,text2")
            columns[target] = tuple(filter(None, column.split(","))) if target == "context" else (column,)
        if source_delimiter == "":
            raise InputError("--source-delimiter is empty; give the text that stands between two sources")
        if encoding is not None:
            try:
                "".encode(encoding)
            except LookupError:
                raise InputError(
                    f"--encoding {encoding!r} is not known; Excel in Western Europe writes cp1252"
                ) from None
        return cls(columns, source_delimiter, encoding, group_by)

    @property
    def named(self) -> list[str]:
        """All columns that are named for a field of the job."""
        return [column for target, columns in self.columns.items() if not _of_source(target) for column in columns]

    @property
    def inside(self) -> dict[str, str]:
        """The names that are given for members of a source, with the member."""
        return {names[0]: _of_source(target) for target, names in self.columns.items() if _of_source(target)}


def _of_source(target: str) -> str:
    """The member of a source that a target names; empty for a field of the job."""
    head, _, member = target.partition(".")
    return member if head == "context" else ""


def _require_field(option: str, target: str, column: str) -> None:
    head, dot, member = target.partition(".")
    exists = (
        is_field(target)
        if not dot
        else head == "metadata"
        or (head == "config" and member in GenerationConfig.model_fields)
        or (head == "context" and member in {*SourceContext.model_fields, *SHOWN_METADATA})
    )
    if not exists:
        cure = (
            f"the field stands first: {column}={target}"
            if is_field(field_of(column))
            else "see 'nightdesk schema JobRequest'"
        )
        raise InputError(f"--map {option!r}: a job has no field {target!r}; {cure}")


@dataclass(slots=True)
class JobMaker:
    """Makes raw jobs of the rows of one file."""

    columns: ColumnMap
    check_only: bool
    tell: Callable[[str], None]
    """Receives which columns are read as which fields, once for each."""
    cells: bool = False
    """Values are cells of a table, to be read by their field; else values of JSON."""
    text: bool = False
    """Cells are text alone."""
    _plans: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)
    """By the keys of rows the field of each key, with its member after a point; none: the rows are jobs as they are."""
    _announced: set[tuple[str, str]] = field(default_factory=set)

    def job(self, raw: Any) -> Any:
        """The raw job of a row; a value that is no object is returned for ``parse_request`` to refuse.

        Raises: InputError naming the field.
        """
        if not isinstance(raw, dict):
            return raw
        raw = reach(raw, named := self.columns.named)
        # An empty cell takes no field, as null does not.
        keys = tuple(key for key, each in raw.items() if each not in (None, "") or key in named)
        plan = self._plans.get(keys)
        if plan is None:
            plan = self._planned(keys)
        if not plan:
            return raw
        job = self._apply(plan, raw)
        if self.cells and isinstance(about := job.get("metadata"), dict) and (long := longest_in(about)):
            job["metadata"] = {key: each for key, each in about.items() if key not in long}
            if new := [key for key in long if (key, "") not in self._announced]:
                self._announced.update((key, "") for key in new)
                self.tell(f"too long for metadata, and left out: {listed(new)}")
        if inside := self.columns.inside:
            job["context"] = renamed(structure(job.get("context")), inside)
        return job

    def _planned(self, keys: tuple[str, ...]) -> dict[str, str]:
        plan = _plan(keys, self.columns, check_only=self.check_only, cells=self.cells)
        self._announce(plan)
        if not (self.cells or self.columns.source_delimiter or self.columns.columns or len(plan) < len(keys)):
            # What names of others mean in JSON, every door reads alike.
            plan = {}
        if len(self._plans) < MOST_PLANS:
            self._plans[keys] = plan
        return plan

    def words_of(self, error: InputError, raw: Any) -> str:
        """The words of an error of a row, with the names that the file has for fields, unless the row has the field itself."""
        message = str(error)
        for key, target in self._announced:
            if isinstance(raw, dict) and target in raw:
                continue
            message = message.replace(f"'{target}'", repr(key))
            if message.startswith((f"{target}.", f"{target}:")):
                message = key + message.removeprefix(target)
        return message

    def column_of(self, target: str) -> str:
        """The name that the file has for a field."""
        return next((key for key, each in self._announced if each == target), target)

    def _announce(self, plan: Mapping[str, str]) -> None:
        renamed = (pair for pair in plan.items() if pair[0] != pair[1])
        if new := [pair for pair in renamed if pair not in self._announced]:
            self._announced.update(new)
            fields = [f"{target} is {key!r}" for key, target in new if not target.startswith("metadata.")]
            rest = [key for key, target in new if target.startswith("metadata.")]
            parts = [", ".join(fields)] if fields else []
            parts += [f"kept as metadata: {listed(rest)}"] if rest else []
            self.tell("; ".join(parts))

    def _apply(self, plan: Mapping[str, str], raw: Mapping[str, Any]) -> dict[str, Any]:
        job: dict[str, Any] = {}
        source: dict[str, Any] = {}
        for key, value in raw.items():
            target = plan.get(key)
            if target is None or value in (None, ""):
                continue
            head, _, member = target.partition(".")
            if member and head == "context":
                source[member] = _plain(value)
            elif member:
                members = job.setdefault(head, {})
                if isinstance(members, dict):
                    is_json = head == "config" and isinstance(value, str)
                    members[member] = _json_cell(value) if is_json else _plain(value)
            elif target == "context":
                job["context"] = _joined(job.get("context"), _sources(value, self.columns.source_delimiter))
            elif target in _JSON_FIELDS and isinstance(value, str):
                job[target] = _merged(job.get(target), _json_cell(value, target))
            else:
                job[target] = _plain(value)
        if source:
            source.setdefault("content", "")
            job["context"] = _joined(job.get("context"), [source])
        return job


def reach(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The row with what stands further inside of it under names of several parts, such as ``run.hits``."""
    for name in names:
        if name not in row:
            value, rest = _part(row, name)
            row = row if value is None else {**rest, name: value}
    return row


def _part(value: Any, path: str) -> tuple[Any, Any]:
    """The part of a value at a path of names, of a list those of its elements, and the value without it."""
    value = structure(value)
    name, _, inner = path.partition(".")
    match value:
        case list():
            pairs = [_part(each, path) for each in value]
            return [part for part, _ in pairs if part is not None] or None, [rest for _, rest in pairs]
        case dict() if path in value:
            return value[path], {key: each for key, each in value.items() if key != path}
        case dict() if name in value:
            part, rest = _part(value[name], inner)
            return part, {**value, name: rest}
    return None, value


MOST_PLANS = 1_000
"""Sets of keys whose plan is kept; a file has one or a few."""


def _plan(keys: Sequence[str], columns: ColumnMap, *, check_only: bool, cells: bool) -> dict[str, str]:
    named = {column: target for target, names in columns.columns.items() for column in names if column in keys}
    rest = [key for key in keys if key not in named]
    fields = plan_names(rest, check_only=check_only, elsewhere=set(named.values()))
    targets = dict(named)
    for key in rest:
        target = fields.get(key, key)
        head, dot, member = target.partition(".")
        is_target = is_field(target) or (dot and member and head in _OPEN_FIELDS)
        if target in named.values() or (not is_target and (cells or dot)):
            # Its field is taken from another column, or it is none.
            target = f"metadata.{key}"
        targets[key] = target
    return {key: targets[key] for key in keys if key in targets}


def name_main(columns: ColumnMap, headings: Collection[str], *, check_only: bool) -> bool:
    """Tells that a table names the question, or the answer to check."""
    main = {"query", "response"}
    named = any(target in main and names[0] in headings for target, names in columns.columns.items())
    return named or any(field_of(heading, check_only=check_only) in main for heading in headings)


# ---- cells that a spreadsheet could run ------------------------------------------------------------------------------

_FORMULA = re.compile(r"['\s]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Beginning of a cell that a spreadsheet takes for a formula; some leave out the blanks before it."""


def harmless(cell: str) -> str:
    """A cell that no spreadsheet runs: an apostrophe before what could be a formula.

    >>> harmless("=1+1"), harmless("'=1"), harmless(" =1"), harmless("1+1")
    ("'=1+1", "''=1", "' =1", '1+1')
    """
    return f"'{cell}" if _FORMULA.match(cell) else cell


# ---- cells -----------------------------------------------------------------------------------------------------------


_PRINT = re.compile(r"\s*\[\s*(?:\{|\(?[\w.]+\(\w+=)|[\[<(].* object at 0x|(?s:.*)\ndtype: \w+\s*\Z")
"""A list of objects, or a Series of pandas, of which only a print is left."""


_MARK = re.compile(r"\|\||(?<=[.!?])\|(?=\S)")
"""What programs put between texts in a cell; tables of Markdown have a blank on either side."""


def likeness_to_several(sources: Sequence[str]) -> str:
    """The words for the one source of a job if it looks like several, with the cure; else empty."""
    match sources:
        case [str() as text] if mark := _MARK.search(text):
            return f"a source holds {mark[0]!r} and is taken as one; to cut it there: --source-delimiter {mark[0]!r}"
        case [str() as text] if text[:1] + text[-1:] == "[]":
            return "texts in brackets are taken as one source; write a list as JSON (to_json of DuckDB)"
    return ""


def _sources(value: Any, delimiter: str | None) -> Any:
    """The sources in a value: a list, one that is printed into a text, texts between a delimiter, or one text."""
    value = structure(value)
    if delimiter is not None and isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        if _PRINT.match(value):
            raise InputError(
                "the cell is a print that can't be read back; write a list as JSON (json.dumps of Python, to_json of DuckDB)",
                field="context",
            )
        parts = [value] if delimiter is None else value.split(delimiter)
        return [part for each in parts if (part := each.strip())]
    return _plain(value)


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Sources in any shape, with the members under the names that a person gave for them."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(each, names) for key, each in value.items()}
    return [renamed(each, names) for each in value] if isinstance(value, list) else value


def _joined(earlier: Any, sources: Any) -> Any:
    if earlier is None:
        return sources
    return [
        *(earlier if isinstance(earlier, list) else [earlier]),
        *(sources if isinstance(sources, list) else [sources]),
    ]


def _merged(earlier: Any, value: Any) -> Any:
    return {**value, **earlier} if isinstance(earlier, dict) and isinstance(value, dict) else value


def _json_cell(cell: str, name: str = "") -> Any:
    """The JSON in a cell; a text that does not begin as such is taken as it is, and without a field any other, too."""
    try:
        return structure_of(cell) or orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        if not name or cell.lstrip()[0] not in "[{":
            return cell
        raise InputError(f"the cell: {json_fault(error)}", field=name) from None


def _plain(value: Any) -> Any:
    """A value as JSON has it: times, decimals and ids of a Parquet file become text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal | UUID):
        return str(value)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
