"""Recognises requests: their canonical form with its hash, and conflicts between the ids of jobs. Pure."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
from pydantic_core import PydanticSerializationError

from schemas.job import MAX_REQUEST_BYTES, JobRequest
from tasks.errors import InputError, MessageTaken
from tasks.ports.rows import NewJob, Refused


def canonical(request: JobRequest) -> tuple[bytes, bytes]:
    """The request as it is stored, and its SHA-256.

    The hash leaves defaults out, so that a later version with more fields still recognises the same request.

    Raises: InputError for characters PostgreSQL can't keep (U+0000, lone surrogates), naming the field, and for a job
    of more than ``MAX_REQUEST_BYTES``.
    """
    try:
        stored = request.model_dump_json().encode()
        basis = orjson.dumps(request.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS)
    except (PydanticSerializationError, UnicodeEncodeError, orjson.JSONEncodeError) as error:
        _refuse_unstorable(request.model_dump())
        raise InputError(f"can't be written as JSON: {error}") from error
    if b"\\u0000" in stored:
        _refuse_unstorable(request.model_dump())
    if len(stored) > MAX_REQUEST_BYTES:
        raise InputError(
            f"the job holds {len(stored):,} bytes of JSON, at most {MAX_REQUEST_BYTES:,} are taken; "
            "give fewer or shorter sources"
        )
    return stored, hashlib.sha256(basis).digest()


def _refuse_unstorable(value: Any, path: str = "") -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise InputError(f"holds the character U+0000 at position {value.index(chr(0))}; remove it", field=path)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"holds half of a surrogate pair at position {error.start}; it is not valid Unicode, repair the text",
                field=path,
            ) from None
    elif isinstance(value, dict):
        for key, inner in value.items():
            inside = f"{path}.{key}" if path else str(key)
            if isinstance(key, str):
                _refuse_unstorable(key, f"{inside} (the key itself)")
            _refuse_unstorable(inner, inside)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_unstorable(inner, f"{path}.{index}")


# ---- conflicts of ids --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """The job that an idempotency key names."""

    job_id: UUID
    batch_id: UUID
    request_hash: bytes


@dataclass(slots=True)
class Present:
    """The ids of jobs in the ledger, as far as new jobs bring the same."""

    keys: dict[str, Holder] = field(default_factory=dict)
    """By idempotency key of the tenant."""
    custom_ids: set[str] = field(default_factory=set)
    """Of the batch."""
    message_ids: set[str] = field(default_factory=set)
    """Of the tenant: of a job without one, its own id."""
    job_ids: set[UUID] = field(default_factory=set)

    def add(self, job: NewJob, batch_id: UUID) -> None:
        """Adds the ids of a job that is about to be written."""
        if job.idempotency_key is not None:
            self.keys[job.idempotency_key] = Holder(job.id, batch_id, job.request_hash)
        if job.custom_id is not None:
            self.custom_ids.add(job.custom_id)
        self.message_ids.add(job.record_message_id)
        self.job_ids.add(job.id)


@dataclass(slots=True)
class Sorted:
    """Jobs by their fate: new, known or refused."""

    fresh: list[NewJob] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list)
    """Of the fresh and the known ones, in order."""
    existing: dict[int, UUID] = field(default_factory=dict)
    """The ids of the known ones by position."""
    refused: list[Refused] = field(default_factory=list)
    holders: Counter[UUID] = field(default_factory=Counter)
    """Number of known jobs by the batch that holds them, this one left out."""

    def extend(self, other: "Sorted") -> None:
        """Adds the ids and counts of further jobs; the fresh ones of those are written by now."""
        self.ids += other.ids
        self.existing |= other.existing
        self.refused += other.refused
        self.holders += other.holders


def sort(jobs: Iterable[NewJob], present: Present, batch_id: UUID) -> Sorted:
    """Sorts jobs; of two with the same id the first has it. ``present`` takes up the fresh ones."""
    done = Sorted()
    for job in jobs:
        holder = None if job.idempotency_key is None else present.keys.get(job.idempotency_key)
        if holder is not None and holder.request_hash == job.request_hash:
            done.ids.append(holder.job_id)
            done.existing[job.position] = holder.job_id
            if holder.batch_id != batch_id:
                done.holders[holder.batch_id] += 1
        elif (refused := _refusal(job, holder, present)) is not None:
            done.refused.append(refused)
        else:
            done.fresh.append(job)
            done.ids.append(job.id)
            present.add(job, batch_id)
    return done


def _refusal(job: NewJob, holder: Holder | None, present: Present) -> Refused | None:
    """The reason that a job can't be written, by the field that its producer sent; None: it can."""
    if holder is not None:
        own = job.idempotency_key == own_id_key(job.id)
        field, value = ("job_id", str(job.id)) if own else ("idempotency_key", repr(job.idempotency_key))
        message = f"{value} was used before for job {holder.job_id} with a different request"
    elif job.custom_id is not None and job.custom_id in present.custom_ids:
        field, message = "custom_id", f"{job.custom_id!r} is already that of another job of the batch"
    elif job.id in present.job_ids:
        field, message = "job_id", f"{job.id} is already the id of another job"
    elif job.record_message_id in present.message_ids:
        error = MessageTaken(job.record_message_id, own_id=job.message_id is None)
        field, message = error.field or "", str(error).removeprefix(f"{error.field}: ")
    else:
        return None
    return Refused(job.position, f"{field}: {message}", field, job.custom_id, job.place)


def own_id_key(job_id: UUID) -> str:
    """The idempotency key of a job whose producer sent its id and no key."""
    return f"job:{job_id}"


TOMBSTONE = JobRequest(query="[erased]")
"""The request of an erased job, the least that is valid: all that its producer wrote is gone."""

TOMBSTONE_JSON, TOMBSTONE_HASH = canonical(TOMBSTONE)
