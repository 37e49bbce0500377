"""Makes the line of a result of the document of its row: byte for byte as the model writes it, without its validation."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic import BaseModel

from schemas.claim_error import ErrorKind
from schemas.grounding import Grounding
from schemas.model_call import ProviderSnapshot, Usage, plain_usd
from schemas.record import JobResult, Quality
from tasks.ports import ResultLine
from worker.ledger.document_query import ELEMENTS

DERIVED = {"sources_used", "tokens_used", "shared_from", "latency_ms"}
"""Fields of a result that are made of its others."""

_PARTS = ("grounding", "quality", "answer", "errors")
_FROM_GROUNDING = ("grounding_score", "confidence", "claims", "values")
_FROM_QUALITY = tuple(Quality.model_fields)


class _Codec(NamedTuple):
    """The functions that read a row's document and what is packed of it, and write the result of both."""

    read: Callable[[Any], Any]
    read_packed: Callable[[Any], Any]
    in_order: Callable[[Sequence[Any]], Sequence[Any]]
    """The elements of a document in the order of a result's fields; the last one in place of those that it has not."""
    new_result: Callable[..., Any]
    write: Callable[[Any], bytes]
    unreadable: type[Exception]


@cache
def _codec() -> _Codec:
    # Most commands read no line.
    import msgspec  # noqa: PLC0415

    from worker.ledger.field_order import kind_of, ordered_class  # noqa: PLC0415

    def part(model: type[BaseModel], names: tuple[str, ...], *, strict: bool) -> Any:
        fields = [(name, kind_of(model.model_fields[name].annotation), None) for name in names]
        return msgspec.defstruct(model.__name__, fields, forbid_unknown_fields=strict, gc=False)

    def or_none(kind: Any) -> Any:
        return kind if kind is Any else kind | None

    answer = tuple[or_none(ordered_class(Usage)), or_none(ordered_class(ProviderSnapshot))]  # type: ignore[misc, valid-type]
    parts = [part(Grounding, _FROM_GROUNDING, strict=False), part(Quality, _FROM_QUALITY, strict=False), answer, Any]
    fields = [kind_of(JobResult.model_fields[name].annotation) for name in [*ELEMENTS][len(parts) :]]
    document = tuple[tuple(or_none(kind) for kind in [*parts, *fields])]  # type: ignore[misc, valid-type]
    places = {name: place for place, name in enumerate(ELEMENTS)}
    packed = part(JobResult, ("citations", *_FROM_QUALITY, "claims", "values"), strict=True)
    return _Codec(
        msgspec.json.Decoder(document).decode,
        msgspec.json.Decoder(packed).decode,
        itemgetter(*(places.get(name, -1) for name in JobResult.model_fields)),
        ordered_class(JobResult),
        msgspec.json.Encoder().encode,
        msgspec.DecodeError,
    )


def line_of_document(document: memoryview, packed: bytes | None) -> ResultLine | None:
    """The line of a document, an array of ``ELEMENTS``; None where the model has to make it, or it has no answer.

    ``packed`` is the JSON of those parts of the record that are packed.
    """
    read, read_packed, in_order, new_result, write, unreadable = _codec()
    try:
        elements = (*read(document), None)
        parts: Any = None if packed is None else read_packed(packed)
    except unreadable:
        # Stored by a version whose models have other fields.
        return None
    if packed is not None and b"e+" in packed and parts.values:
        # A number from 1e16 on: the model writes its exponent with a sign.
        return None
    grounding, quality, answer, errors = elements[: len(_PARTS)]
    result = new_result(*in_order(elements))
    if not result.response.strip():
        return None
    _fill(result, grounding, quality, answer, parts)
    _derive(result)
    return ResultLine(result.position, result.state, write(result), error_counts(errors))


def error_counts(stored: Mapping[str, int] | None) -> dict[ErrorKind, int]:
    """Claims by the kind of their error, as their job has them."""
    return {ErrorKind(kind): count for kind, count in stored.items() if kind in _KINDS} if stored else {}


_KINDS = frozenset(ErrorKind)
"""A later version may tell further kinds apart."""


def _fill(result: Any, grounding: Any, quality: Any, answer: Any, packed: Any) -> None:
    """Set the fields that come in parts of the record."""
    if grounding is not None:
        result.grounding_score, result.confidence = grounding.grounding_score, grounding.confidence
    if packed is None:
        checked, judgement = grounding, quality
        result.citations = result.citations or []
    else:
        checked = judgement = packed
        result.citations = packed.citations
    result.claims = checked.claims or [] if checked is not None else []
    result.values = checked.values or [] if checked is not None else []
    result.answer_quality, result.sufficient_context = judgement.answer_quality, judgement.sufficient_context
    result.reasoning, result.abstain_reason = judgement.reasoning or "", judgement.abstain_reason
    result.warnings, result.asks = judgement.warnings or [], result.asks or []
    if answer is not None:
        usage, snapshot = answer
        result.usage = usage if result.usage is None else result.usage
        result.provider_snapshot = snapshot if result.provider_snapshot is None else result.provider_snapshot


def _derive(result: Any) -> None:
    """Set the fields that no column has: ``DERIVED`` and the mark of the cut form."""
    usage, snapshot, timing = result.usage, result.provider_snapshot, result.timing_ms
    result.sources_used = list(dict.fromkeys([citation.chunk_id for citation in result.citations]))
    result.tokens_used = usage.input_tokens + usage.output_tokens if usage else None
    result.shared_from = snapshot.shared_from.job_id if snapshot and snapshot.shared_from else None
    result.latency_ms = timing.total if timing else None
    if result.cost_usd is not None:
        result.cost_usd = _plain(result.cost_usd)
    result.truncated = False


@lru_cache(maxsize=1024)
def _plain(amount: str) -> str:
    """An amount of PostgreSQL's as the model writes it; many jobs cost the same."""
    return plain_usd(Decimal(amount))
