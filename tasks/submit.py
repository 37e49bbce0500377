"""Validates requests and writes them to the ledger; ids are returned only after the commit."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from uuid_utils.compat import uuid7

from schemas import CONTRACT_VERSION
from schemas.batch import BatchRequest
from schemas.job import MAX_REQUEST_BYTES, MAX_VALUES, GenerationConfig, JobRequest, unknown_keys
from schemas.states import Step
from schemas.window import parse_window
from tasks.errors import InputError, JobsRefused
from tasks.policy.relevance import without_threshold
from tasks.ports import (
    Catalog,
    Everything,
    NewBatch,
    NewJob,
    Receipt,
    Refused,
    Submission,
    Submitter,
    own_id_key,
)
from tasks.prompting.template_files import present_version
from tasks.raw_jobs import has_blank_source, longest_in, read_job, scores_of, shorten_metadata
from tasks.raw_jobs.left_over import possible_questions, require_sources
from tasks.raw_jobs.refusals import named_problems

CHUNK_BYTES = 32_000_000
"""Of requests held at a time while a submission is read: jobs may be half as large each."""

FIRST = 20
"""Jobs of a submission whose scores tell the scale of all."""

MOST_CONFIGS = 64
"""Configs remembered at a time: nearly all jobs of a batch have one of a few."""

LONGEST_CONFIG = 20_000
"""Characters; a longer one, with a big schema, is parsed anew for each job."""

_CONFIGS: dict[str, GenerationConfig] = {}


def validated(model: type["BaseModel"], raw: Any) -> Any:
    """Parses a raw value as a contract model; raises ``InputError`` that names each field at fault."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problems = named_problems(error.errors(include_url=False), raw)
        messages = [f"{path}: {words}" if path else words for path, words in problems[:5]]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""  # noqa: PLR2004 - as many as named
        field = problems[0][0] or None
        raise InputError("; ".join(messages) + more, field=field) from None


def parse_request(raw: Any, defaults: dict[str, Any] | None = None) -> tuple[JobRequest, list[str]]:
    """Makes a request of a raw JSON object.

    Args:
        raw: one job as it came; unknown top-level keys go to ``metadata``.
        defaults: config fields for jobs that don't set them.

    Returns: the request and warnings for the producer.
    Raises: InputError naming the field.
    """
    if not isinstance(raw, dict):
        raise InputError(f"a job must be a JSON object, this is {_kind(raw)}")
    _check_values(raw)
    raw = read_job(raw)
    warnings = []
    if has_blank_source(raw):
        warnings.append("sources without text are left out")
    if long := shorten_metadata(raw):
        names = ", ".join(map(repr, long))
        warnings.append(f"the metadata of some sources is too long, and of it is left out: {names}")
    if "query" not in raw and raw.get("response") is None and (likely := possible_questions(raw)):
        raise InputError(f"'query' is missing or empty; is it {likely[0]!r}? Send it under this name")
    extra = unknown_keys(raw)
    if long := longest_in({key: raw[key] for key in extra}):
        raw = {key: each for key, each in raw.items() if key not in long}
        extra = unknown_keys(raw)
        warnings.append(f"keys too long for metadata are left out: {', '.join(map(repr, long))}")
    if extra:
        warnings.append(f"unknown keys were put into metadata: {', '.join(map(repr, extra))}")
    config = raw.get("config")
    if isinstance(config, dict) or (config is None and defaults):
        own = {
            key: each
            for key, each in (config or {}).items()
            if each != "" and (each is not None or key not in (defaults or {}))
        }
        raw = {**raw, "config": _parsed_config({**(defaults or {}), **own})}
    request: JobRequest = validated(JobRequest, raw)
    _check_schema(request.config)
    if not request.check_only:
        present_version(request.config.prompt_name or request.config.mode.value, request.config.prompt_version)
    return request, warnings


def too_many_values() -> InputError:
    """The error of a job that is large by the number of its values."""
    return InputError(
        f"the job holds more than {MAX_VALUES:,} JSON values; leave out what the answer does not need, or put it as text into a source"
    )


def _check_values(raw: Any) -> None:
    """Counts the values before anything is done with each; raises ``InputError``."""
    count, inside = 0, [raw]
    while inside:
        outer = inside.pop()
        count += len(outer)
        if count > MAX_VALUES:
            raise too_many_values()
        values = outer.values() if isinstance(outer, dict) else outer
        inside += [value for value in values if isinstance(value, dict | list | tuple)]


def _check_schema(config: GenerationConfig) -> None:
    """Validates a schema of the caller's own; most jobs have none, and load neither the validator nor the parser of answers."""
    if isinstance(config.output_schema, dict):
        from tasks.answers.objects import check_schema  # noqa: PLC0415

        check_schema(config)


def _parsed_config(raw: dict[str, Any]) -> GenerationConfig | dict[str, Any]:
    """The config of a raw one, parsed once for all jobs that say the same; the raw one where it is at fault or big."""
    try:
        spelling = repr(raw)
    except (RecursionError, ValueError):
        # Nested so deeply, or a number so long, that it can't be written: what reads the job refuses it.
        return raw
    if len(spelling) > LONGEST_CONFIG:
        return raw
    config = _CONFIGS.get(spelling)
    if config is None:
        try:
            config = GenerationConfig.model_validate(raw)
        except ValidationError:
            # It is named as a field of its job.
            return raw
        if len(_CONFIGS) >= MOST_CONFIGS:
            _CONFIGS.clear()
        _CONFIGS[spelling] = config
    return config


def check_served(request: JobRequest, catalog: Catalog, *, priced: bool) -> list[str]:
    """Compares a request with the providers and options of the installation.

    Args:
        request: a valid one.
        catalog: of the installation.
        priced: whether its batch has a ceiling on cost.

    Returns: warnings for the producer.
    Raises: InputError naming the field, for an option that certainly can't be served.
    """
    objections = catalog.objections(request.config, generates=not request.check_only, priced=priced)
    for objection in objections:
        if objection.certain:
            raise InputError(objection.message, field=objection.field)
    return [
        f"{objection.field}: {objection.message} (by the settings here; the workers may have others)"
        for objection in objections
    ]


def _unknown_price(request: JobRequest, catalog: Catalog) -> tuple[str, str] | None:
    """The field and the message of a price that is certainly not known; None where every call has one."""
    generates = not request.check_only
    priced = catalog.objections(request.config, generates=generates, priced=True)
    if not priced:
        return None
    free = catalog.objections(request.config, generates=generates, priced=False)
    return next(((each.field, each.message) for each in priced if each.certain and each not in free), None)


def _kind(raw: Any) -> str:
    names = {
        str: "a text",
        list: "a list",
        int: "a number",
        float: "a number",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(raw), type(raw).__name__)


def new_job(
    request: JobRequest,
    *,
    position: int,
    tenant: str,
    job_id: UUID | None = None,
    place: str | None = None,
    unpriced: tuple[str, str] | None = None,
) -> NewJob:
    """Makes the ledger's row of a request. A caller's own ``job_id`` serves as idempotency key unless one is given."""
    stored, request_hash = canonical(request)
    key = request.idempotency_key
    if key is None and job_id is not None:
        key = own_id_key(job_id)
    return NewJob(
        id=job_id or uuid7(),
        position=position,
        tenant=tenant,
        step=request.config.check_step if request.check_only else Step.GENERATE,
        request=stored,
        request_hash=request_hash,
        contract_version=CONTRACT_VERSION,
        custom_id=request.custom_id,
        message_id=request.message_id,
        idempotency_key=key,
        priority=request.priority,
        scheduled_at=request.scheduled_at,
        deadline=request.deadline,
        place=place,
        unpriced=unpriced,
    )


def make_job(
    request: JobRequest,
    batch: NewBatch,
    catalog: Catalog,
    *,
    position: int,
    job_id: UUID | None = None,
    place: str | None = None,
) -> tuple[NewJob, list[str]]:
    """Makes a job of a batch of a request, with warnings for its producer; raises ``InputError`` for what can't be served in time."""
    warnings = check_served(request, catalog, priced=batch.max_cost_usd is not None)
    _check_times(request, batch)
    unpriced = _unknown_price(request, catalog)
    job = new_job(request, position=position, tenant=batch.tenant, job_id=job_id, place=place, unpriced=unpriced)
    return job, warnings


def new_batch(
    raw: dict[str, Any] | None, *, tenant: str, max_queued: int | None = None, submitter: Submitter | None = None
) -> NewBatch:
    """Makes the ledger's row of a batch from its producer's options; raises ``InputError``."""
    batch: BatchRequest = validated(BatchRequest, raw or {})
    if batch.defaults:
        # A typo in the defaults would fail every job; it is one error of the batch instead.
        _check_schema(validated(JobRequest, {"query": "-", "config": batch.defaults}).config)
    check_window(batch.window, batch.not_before, batch.deadline)
    return NewBatch(
        id=uuid7(),
        tenant=tenant,
        key=batch.key,
        name=batch.name,
        not_before=batch.not_before,
        window=batch.window,
        deadline=batch.deadline,
        max_cost_usd=batch.max_cost_usd,
        callback_url=batch.callback_url,
        defaults=batch.defaults,
        max_queued=max_queued,
        submitter=submitter,
    )


def check_window(window: str | None, not_before: datetime | None, deadline: datetime | None) -> None:
    """Raises ``InputError`` for a window that does not open before a deadline."""
    if window is None or deadline is None:
        return
    now = datetime.now(UTC)
    opening = parse_window(window).opening(now if not_before is None else max(now, not_before))
    if opening >= deadline:
        raise InputError(
            f"{window!r} does not open before {opening.isoformat(timespec='minutes')}, and the deadline is "
            f"{deadline.isoformat(timespec='minutes')}: no call could be made; set a later deadline, or leave the window out",
            field="window",
        )


def _check_times(request: JobRequest, batch: NewBatch) -> None:
    """Raises ``InputError`` for a job with times of its own that leave it no part of the window of its batch."""
    if batch.window is not None and (request.deadline is not None or request.scheduled_at is not None):
        check_window(batch.window, request.scheduled_at or batch.not_before, request.deadline or batch.deadline)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submission: an id or None for each job, and the reasons of the Nones.

    ``conflicts`` are those of the refused that bring an id of another job.
    """

    receipt: Receipt | None
    job_ids: tuple[UUID | None, ...]
    refused: tuple[Refused, ...]
    warnings: tuple[str, ...]
    conflicts: tuple[Refused, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer of ``nightdesk.submit``."""
        return {
            "batch_id": str(self.receipt.batch_id) if self.receipt else None,
            "created": bool(self.receipt and self.receipt.created),
            "job_ids": [str(job_id) if job_id else None for job_id in self.job_ids],
            "errors": [
                {"position": refused.position, "field": refused.field, "message": refused.message}
                for refused in self.refused
            ],
            "warnings": list(self.warnings),
        }


@dataclass(slots=True)
class _Reading:
    """The jobs of a submission as they are read: the good ones, the bad ones, and what their producer should know."""

    batch: NewBatch
    catalog: Catalog
    defaults: dict[str, Any] | None
    jobs: list[NewJob] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _bare: dict[str, Any] | None = field(default_factory=dict)
    """The values of the jobs by their keys; None once a job says what its sources are."""

    def read(self, raw_jobs: Iterable[Any]) -> None:
        """Makes a job of each raw one, or names what is wrong with it; raises ``InputError`` where none is said to have sources."""
        for position, raw in enumerate(raw_jobs):
            try:
                self._add(position, raw)
            except InputError as error:
                self.refused.append(Refused(position, str(error), error.field))
            except (RecursionError, ValueError):
                self.refused.append(
                    Refused(position, "can't be read: it is nested too deeply, or has a number that is too long")
                )
        if self._bare is not None and self.jobs:
            require_sources(self._bare, len(self.jobs))

    def _add(self, position: int, raw: Any) -> None:
        job_id, rest = _own_id(raw)
        request, warnings = parse_request(rest, self.defaults)
        job, more = make_job(request, self.batch, self.catalog, position=position, job_id=job_id)
        if "context" in request.model_fields_set:
            self._bare = None
        elif self._bare is not None:
            self._bare.update((key, each) for key, each in rest.items() if each)
        self.jobs.append(job)
        self.warnings += [f"job {position}: {warning}" for warning in warnings + more]


async def submit(
    submission: Submission, raw_jobs: Sequence[Any], *, batch: NewBatch, catalog: Catalog | None = None
) -> Submitted:
    """Validates jobs that are all at hand and writes the good ones; each bad one is named.

    A job that the ``catalog`` certainly does not serve is bad, too; without a catalog that is left to the workers.

    Where no job says what its sources are, and some have what could be them under another name, nothing is accepted.
    A raw job may carry its own ``job_id`` (a UUID), so that its producer can poll without waiting for the answer.
    """
    scores = chain.from_iterable(map(scores_of, raw_jobs[:FIRST]))
    defaults, about_scores = without_threshold(scores, batch.defaults)
    reading = _Reading(batch, catalog or Everything(), defaults)
    reading.read(raw_jobs)
    jobs, refused, warnings = reading.jobs, reading.refused, [*filter(None, [about_scores]), *reading.warnings]
    receipt: Receipt | None = None
    late: tuple[Refused, ...] = ()
    if jobs:
        try:
            receipt = await submission.submit(batch, [jobs], refused=refused)
            late = receipt.refused
        except JobsRefused as error:
            late = error.refused
    ids = receipt.ids_by_position(job.position for job in jobs) if receipt else {}
    if receipt and receipt.nothing_new:
        batches = ", ".join(f"{batch_id} ({count})" for batch_id, count in receipt.holders.items())
        warnings.append(f"nothing is new: all jobs are known by their idempotency key or id, in the batches {batches}")
    return Submitted(
        receipt,
        tuple(map(ids.get, range(len(raw_jobs)))),
        tuple(sorted([*refused, *late], key=lambda refusal: refusal.position)),
        tuple(warnings),
        conflicts=_conflicts(late),
    )


def _conflicts(refused: Sequence[Refused]) -> tuple[Refused, ...]:
    """Those of the ledger's refusals that are about ids; the others are about prices."""
    return tuple(refusal for refusal in refused if not (refusal.field or "").startswith("config."))


def _own_id(raw: Any) -> tuple[UUID | None, Any]:
    if not isinstance(raw, dict) or raw.get("job_id") is None:
        return None, raw
    try:
        job_id = UUID(str(raw["job_id"]))
    except ValueError:
        raise InputError("must be a UUID", field="job_id") from None
    return job_id, {key: value for key, value in raw.items() if key != "job_id"}


def chunked(jobs: Iterable[NewJob], size: int, most_bytes: int = CHUNK_BYTES) -> Iterator[list[NewJob]]:
    """Cuts a stream of jobs into lists, so that a large submission is written as it is read.

    A list ends with the job that makes it ``size`` jobs long, or at least ``most_bytes`` of requests heavy.
    """
    chunk: list[NewJob] = []
    weight = 0
    for job in jobs:
        chunk.append(job)
        weight += len(job.request)
        if len(chunk) == size or weight >= most_bytes:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


# ---- the canonical form ----------------------------------------------------------------------------------------------


def canonical(request: JobRequest) -> tuple[bytes, bytes]:
    """The request as it is stored, and its SHA-256.

    The hash leaves defaults out, so that a later version with more fields still recognises the same request; and the
    trace, which a repeated submission has anew.

    Raises: InputError for characters PostgreSQL can't keep (U+0000, lone surrogates), naming the field, and for a job
    of more than ``MAX_REQUEST_BYTES``.
    """
    try:
        config = _forms_of(request.config)
        rest = request.model_dump_json(exclude=_CONFIG).encode()
        stored = b'%b,"config":%b}' % (rest[:-1], config.stored)
        chosen = request.model_dump(mode="json", exclude=_UNCOMPARED, exclude_defaults=True) | config.chosen
        basis = orjson.dumps(chosen, option=orjson.OPT_SORT_KEYS)
    except (PydanticSerializationError, UnicodeEncodeError, orjson.JSONEncodeError) as error:
        _refuse_unstorable(request.model_dump())
        raise InputError("holds a number beyond 64 bits; send it as a text") from error
    if b"\\u0000" in stored:
        _refuse_unstorable(request.model_dump())
    if len(stored) > MAX_REQUEST_BYTES:
        raise InputError(
            f"the job holds {len(stored):,} bytes of JSON, at most {MAX_REQUEST_BYTES:,} are taken; "
            "give fewer or shorter sources"
        )
    return stored, hashlib.sha256(basis).digest()


_CONFIG = {"config"}
_UNCOMPARED = {"config", "traceparent"}
"""Not part of what is asked: a repeated submission has a trace of its own."""


@dataclass(frozen=True, slots=True)
class _ConfigForms:
    """A config with both of its written forms; the config itself is kept so that no other gets its id."""

    config: GenerationConfig
    stored: bytes
    chosen: dict[str, Any]
    """What differs from the defaults, under its name; empty where nothing does."""


_CONFIG_FORMS: dict[int, _ConfigForms] = {}


def _forms_of(config: GenerationConfig) -> _ConfigForms:
    """The written forms of a config, made once for all requests that share the object."""
    forms = _CONFIG_FORMS.get(id(config))
    if forms is None:
        chosen = config.model_dump(mode="json", exclude_defaults=True)
        forms = _ConfigForms(config, config.model_dump_json().encode(), {"config": chosen} if chosen else {})
        if len(_CONFIG_FORMS) >= MOST_CONFIGS:
            _CONFIG_FORMS.clear()
        _CONFIG_FORMS[id(config)] = forms
    return forms


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
