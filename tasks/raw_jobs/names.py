"""Reads the names that other tools give to the fields of a job: one table for every door."""

import re
from collections.abc import Collection
from functools import cache, lru_cache

from schemas.job import JobRequest
from tasks.errors import InputError

FIELDS = {
    "question": "query",
    "prompt": "query",
    "user_input": "query",
    "sources": "context",
    "documents": "context",
    "contexts": "context",
    "passages": "context",
    "chunks": "context",
    "retrieved_contexts": "context",
    "id": "custom_id",
}
"""Other names of a job's fields, with the field. Two of one field in a row are refused: either could be the one that is meant."""

USUAL = {
    **dict.fromkeys(("input", "original_query", "user_query", "query_text", "query_str", "question_text", "user_question", "input_text", "request", "message", "q"), "query"),
    **dict.fromkeys(
        ("ctxs", "paragraphs", "nodes", "docs", "hits", "passage", "document", "paragraph", "knowledge", "evidence", "story", "entity_pages", "organic"), "context"
    ),
    **dict.fromkeys(("_id", "qid", "question_id", "query_id"), "custom_id"),
    **dict.fromkeys(("history", "chat_history", "messages"), "conversation_history"),
}  # fmt: skip
"""Further names, the first of those in a row; used only where none of the above stands there, since each also names other things."""

_ORIGINS = re.compile(
    r"(retriev\w+|relevant|context|source|search|reference|grounding|organic)_"
    r"(context|chunk|document|doc|node|passage|result|content|text|hit|resource)s|"
    r"(retriev\w+|reference)_context|(context|passage|paragraph|document)_text"
)
"""Names of sources that say where these come from; used as those above."""

ANSWERS = {"answer": "response"}
"""The same for a line that holds an answer to check. An answer beside a question to ask is somebody's reference."""

USUAL_ANSWERS = dict.fromkeys(("prediction", "output", "generation", "completion", "claim"), "response")

_MAKERS = re.compile(
    r"(actual|generated|predicted|model|llm|rag|bot|assistant|system)_(answer|output|response|reply|text|completion|prediction)s?"
)
"""Names of answers that say who made these; used as those above."""

_ALONE = frozenset({"question", "sources", "answer"})
"""Names that a line of answers may not give beside the field itself: either could be the one that is meant."""


@cache
def names_of(*, check_only: bool) -> dict[str, str]:
    """The other names that are read, with their fields."""
    return FIELDS | USUAL | (ANSWERS | USUAL_ANSWERS if check_only else {})


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s.-]+")


@lru_cache(maxsize=4_096)
def plain(name: str) -> str:
    """A name in the spelling of the tables here.

    >>> plain("retrievedContexts"), plain("QUESTION"), plain("Custom id"), plain("_id")
    ('retrieved_contexts', 'question', 'custom_id', '_id')
    """
    return _BETWEEN.sub("_", _CAPITAL.sub("_", name.strip())).lower()


@lru_cache(maxsize=4_096)
def field_of(name: str, *, check_only: bool = True) -> str:
    """The field of a job that is meant by a name in any spelling; the name itself where it is none."""
    form = plain(name)
    if is_field(form):
        return form
    if check_only and _MAKERS.fullmatch(form):
        return "response"
    return "context" if _ORIGINS.fullmatch(form) else names_of(check_only=check_only).get(form, name)


def plan_names(keys: Collection[str], *, check_only: bool, elsewhere: Collection[str] = ()) -> dict[str, str]:
    """The keys of a row that are other names of fields, with these fields.

    A key beside the field itself is left as it is, and ends up in the metadata. A name that is spelled in another way
    (``Question``, ``retrievedContexts``) counts where none stands as it is known.

    Args:
        keys: those of the row.
        check_only: the row holds an answer.
        elsewhere: fields that have a value from elsewhere.

    Raises: InputError for two keys that could be the same field.
    """
    plan: dict[str, str] = {}
    for key in keys:
        form = plain(key)
        field = (FIELDS | ANSWERS if check_only else FIELDS).get(form)
        if field is None or field in elsewhere or (form != key and form in keys):
            continue
        if field in keys:
            if check_only and form in _ALONE:
                raise InputError(
                    f"is another name of {field!r}, which is given too: keep one of them, or say which with --map {field}={key}",
                    field=key,
                )
            continue
        if field in plan.values():
            other = next(earlier for earlier, target in plan.items() if target == field)
            raise InputError(
                f"is another name of {field!r}, as {other!r} is: keep one of them, or say which with --map {field}={key}",
                field=key,
            )
        plan[key] = field
    forms = {plain(key): key for key in keys} | {key: key for key in keys}
    names = {name: name for name in JobRequest.model_fields} | names_of(check_only=check_only)
    names |= {form: field for form in forms if is_field(field := field_of(form, check_only=check_only))}
    for form, field in names.items():
        if form not in forms or forms[form] == field:
            continue
        if field not in keys and field not in elsewhere and field not in plan.values():
            plan[forms[form]] = field
    return plan


def is_field(name: str) -> bool:
    """Tells a field of the contract from other names."""
    return name in JobRequest.model_fields
