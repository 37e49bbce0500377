"""Reads answers that already exist, in the spellings that data sets use, as check-only jobs. Pure."""

from typing import Any

from tasks.errors import InputError

SPELLINGS = {"sources": "context", "answer": "response", "question": "query"}
"""Other names of a job's fields that a line of answers may use."""


def as_check_only(raw: Any) -> Any:
    """Makes a raw check-only job of a line that holds an answer and its sources.

    Other keys are left as they are; what is no JSON object is passed through, for ``parse_request`` to refuse.

    Raises: InputError for a line without an answer, or with two spellings of one field.
    """
    if not isinstance(raw, dict):
        return raw
    fields: dict[str, Any] = raw
    job: dict[str, Any] = {}
    for key, value in fields.items():
        name = SPELLINGS.get(key, key)
        if name != key and name in raw:
            raise InputError(f"stands for {name!r}, which is given too; keep one of them", field=key)
        job[name] = value
    if job.get("response") is None:
        raise InputError("is missing: a line to check holds its answer there, or under 'answer'", field="response")
    return job
