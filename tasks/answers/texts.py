"""Texts for a person in place of an answer: the reason and a next step, in the language of the question."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from schemas.generation import OutputFormat
from schemas.job import JobRequest
from schemas.states import JobState
from tasks.text.language import SUPPORTED, language_of, language_tables

INVALID = (
    "This could not be answered, because it is not a valid question with its sources. Correct it as the failure says,"
    " and submit it again."
)
"""The text for a line that submission refuses; in English, because the question itself may be missing."""


@cache
def _codes() -> Mapping[str, str]:
    return {name: code for code in SUPPORTED for name in language_tables()[code]["names"].split()}


def code_of(language: str) -> str:
    """The language code of a name or tag such as ``de``, ``de-AT`` or ``German``; otherwise the first part of the tag."""
    name = language.strip().lower()
    return _codes().get(name) or name.replace("_", "-").split("-")[0]


def fallback(request: JobRequest, kind: str) -> str:
    """The text for ``no_evidence``, ``abstained``, ``rejected``, ``failed`` or ``refused``: the caller's own, or the default.

    A caller's text for a failure serves for a refusal too if there is none for refusals. The default is in the language
    of the config, else in that of the query, else in English. A job that asks for JSON gets it in JSON.
    """
    config = request.config
    own = {} if config.fallback_messages is None else config.fallback_messages.model_dump()
    text = own.get(kind) or (own.get("failed") if kind == "refused" else None) or _message(request, kind)
    return in_format(text, kind, config.output_format)


def without_answer(request: JobRequest, state: JobState) -> str:
    """The text of a job that ended in this state with an empty answer: the caller's own for a failure, or the default."""
    own = request.config.fallback_messages
    output_format = request.config.output_format
    if own is not None and own.failed:
        return in_format(own.failed, state.value, output_format)
    if state in {JobState.EXPIRED, JobState.CANCELLED, JobState.COMPLETED}:
        return in_format(_message(request, state.value), state.value, output_format)
    return fallback(request, "failed")


def in_format(text: str, status: str, output_format: OutputFormat) -> str:
    """A text in place of an answer in the format of the answer: for JSON an object without statements.

    Args:
        text: the message, or such an object already.
        status: the reason that there is no answer, such as ``abstained``.
        output_format: of the output.
    """
    message = _message_of(text)
    if output_format is not OutputFormat.JSON:
        return text if message is None else message
    if message is not None:
        return text
    return json.dumps({"answer": [], "sources": [], "status": status, "message": text}, ensure_ascii=False)


def _message_of(text: str) -> str | None:
    """The message of an object in place of an answer; None for any other text."""
    if not text.startswith('{"answer": []'):
        return None
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return value.get("message") if isinstance(value, dict) and isinstance(value.get("message"), str) else None


def not_verified(request: JobRequest) -> str:
    """The line above the list of unsupported claims, in the language of ``fallback``."""
    return _message(request, "not_verified")


def _message(request: JobRequest, kind: str) -> str:
    configured = request.config.language
    language = code_of(configured) if configured else language_of(request.query)
    return str(language_tables()[language if language in SUPPORTED else "en"]["messages"][kind])
