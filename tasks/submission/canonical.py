"""Writes a request in its canonical form, with the hash that recognises it."""

import hashlib
from typing import Any

import orjson
from pydantic_core import PydanticSerializationError

from schemas.job import MAX_REQUEST_BYTES, JobRequest
from tasks.errors import InputError


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
