"""Texts for a person in place of an answer: the reason and a next step, in the language of the question."""

from collections.abc import Mapping
from functools import cache

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
    of the config, else in that of the query, else in English.
    """
    config = request.config
    if (own := config.fallback_messages) is not None:
        text = getattr(own, kind) or (own.failed if kind == "refused" else None)
        if text:
            return str(text)
    return _message(request, kind)


def without_answer(request: JobRequest, state: JobState) -> str:
    """The text of a job that ended in this state with an empty answer: the caller's own for a failure, or the default."""
    own = request.config.fallback_messages
    if own is not None and own.failed:
        return own.failed
    if state in {JobState.EXPIRED, JobState.CANCELLED, JobState.COMPLETED}:
        return _message(request, state.value)
    return fallback(request, "failed")


def not_verified(request: JobRequest) -> str:
    """The line above the list of unsupported claims, in the language of ``fallback``."""
    return _message(request, "not_verified")


def _message(request: JobRequest, kind: str) -> str:
    configured = request.config.language
    language = code_of(configured) if configured else language_of(request.query)
    return str(language_tables()[language if language in SUPPORTED else "en"]["messages"][kind])
