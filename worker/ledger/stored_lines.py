"""Keeps what a short record gives to the line of its result as text, so that a line is put together and not read and written again."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, get_args, get_origin
from uuid import UUID

import orjson
from pydantic import BaseModel

from schemas.claim_error import ErrorKind
from schemas.model_call import ProviderSnapshot, plain_usd
from schemas.record import JobResult
from schemas.states import JobState
from tasks.ports import ResultLine
from worker.ledger.packing import LEAST_BYTES, compress, decompress, has_long_number, in_stored_order

OF_JOB = (
    "job_id",
    "custom_id",
    "position",
    "batch_id",
    "message_id",
    "trace_id",
    "state",
    "outcome",
    "held_reason",
    "query",
    "sources_provided",
    "cost_usd",
    "replay_of",
    "metadata",
)
"""Fields that a result has of its job and of the request, in its order; the others are those of the record."""

_CONSTANT = {"truncated": False}

MOST_BYTES = 2 * LEAST_BYTES
"""Of a line's text: records of the usual short answers; what is longer is no slower to read than it was."""

_INEXACT = ("e+", "-0.0", "\\u0000")
"""Parts of values that the server may give back in another form than it got."""


def _shape(annotation: Any) -> Any:
    """The names of the fields of a model and of the models within."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(name, _shape(field.annotation)) for name, field in annotation.model_fields.items()]
    return [shape for argument in get_args(annotation) if (shape := _shape(argument))]


FORM = sha256(repr((2, _shape(JobResult))).encode()).digest()[:4]
"""Begins a stored line. Another version of the models writes another one, and its lines are not used: what their records hold is.
The number changes where a field is written differently under the same name."""

_RUNS = [
    [*names] for of_job, names in groupby(JobResult.model_fields, {*OF_JOB, *_CONSTANT}.__contains__) if not of_job
]
"""Fields of the record that follow each other in a result; between them are those of the job."""

_NOT_OF_RECORD = {*OF_JOB, *_CONSTANT}
_OPENING = f'{{"{_RUNS[0][0]}":'
_MARKS = tuple(f',"{run[0]}":' for run in _RUNS[1:])
"""Stand between two runs where a record is written without the fields of its job."""

_BETWEEN = "\0"
"""Stands there as stored, so that each text is written in place of the value of its first field; JSON has no such character."""


def stored_line(fields: Mapping[str, Any]) -> bytes | None:
    """The part of a line that its record gives, as it is stored; None where the line has to be made of the record.

    Args:
        fields: of a result, as its record makes them (``tasks.results.fields_of_record``).
    """
    if not fields["response"].strip():
        return None
    read_back = {
        "structured": in_stored_order(fields["structured"]),
        "provider_snapshot": _as_read(fields["provider_snapshot"]),
    }
    # To make a model anew takes longer than to write it.
    result = _blank_result().model_copy(update={**fields, **read_back})
    text = result.model_dump_json(exclude=_NOT_OF_RECORD)[len(_OPENING) : -1]
    if len(text) > MOST_BYTES or any(part in text for part in _INEXACT) or has_long_number(text):
        return None
    for mark in _MARKS:
        # An object of a user's may have a field of this name.
        if text.count(mark) != 1:
            return None
        text = text.replace(mark, _BETWEEN)
    return FORM + compress(text.encode())


@cache
def _blank_result() -> JobResult:
    no_id = UUID(int=0)
    return JobResult(job_id=no_id, position=0, batch_id=no_id, state=JobState.COMPLETED)


def _as_read(snapshot: ProviderSnapshot | None) -> ProviderSnapshot | None:
    """The snapshot with the keys of its dictionaries in the order in which the server gives them back."""
    if snapshot is None:
        return None
    dictionaries = {name: value for name in _DICTIONARIES if (value := getattr(snapshot, name))}
    if not dictionaries:
        return snapshot
    return snapshot.model_copy(update=in_stored_order(orjson.loads(orjson.dumps(dictionaries))))


_DICTIONARIES = [name for name, field in ProviderSnapshot.model_fields.items() if get_origin(field.annotation) is dict]


class _Codec(NamedTuple):
    read: Callable[[Any], Any]
    raw: Callable[[bytes], Any]
    """Text that is written as it is."""
    new_line: Callable[..., Any]
    """An object of the fields of a job, and of a text for each run between them."""
    in_order: Callable[[Sequence[Any]], Sequence[Any]]
    """Its arguments in order, of the fields in the order of ``OF_JOB``, the constant ones and the texts."""
    write: Callable[[Any], bytes]


@cache
def _codec() -> _Codec:
    # Most commands read no line.
    import msgspec  # noqa: PLC0415

    arguments = [*OF_JOB, *_CONSTANT, *(run[0] for run in _RUNS)]
    names = [name for name in JobResult.model_fields if name in arguments]
    return _Codec(
        msgspec.json.Decoder().decode,
        msgspec.Raw,
        msgspec.defstruct(JobResult.__name__, names, gc=False),
        itemgetter(*map(arguments.index, names)),
        msgspec.json.Encoder().encode,
    )


def joined_line(document: memoryview, stored: memoryview) -> ResultLine:
    """The line of a row.

    Args:
        document: an array of the errors of the job, and its fields in the order of ``OF_JOB``.
        stored: made by ``stored_line`` of this version.
    """
    read, raw, new_line, in_order, write = _codec()
    errors, *fields = read(document)
    if fields[_COST] is not None:
        fields[_COST] = plain_amount(fields[_COST])
    fields += _CONSTANT.values()
    fields += map(raw, decompress(stored[len(FORM) :]).split(_BETWEEN.encode()))
    return ResultLine(fields[_POSITION], fields[_STATE], write(new_line(*in_order(fields))), error_counts(errors))


_POSITION, _STATE, _COST = (OF_JOB.index(name) for name in ("position", "state", "cost_usd"))


@lru_cache(maxsize=1024)
def plain_amount(amount: str) -> str:
    """An amount of PostgreSQL's as the model writes it; many jobs cost the same."""
    return plain_usd(Decimal(amount))


def error_counts(stored: Mapping[str, int] | None) -> dict[ErrorKind, int]:
    """Claims by the kind of their error, as their job has them."""
    return {ErrorKind(kind): count for kind, count in stored.items()} if stored else {}
