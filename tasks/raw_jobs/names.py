"""Reads the names that other tools give to the fields of a job: one table for every door."""

from collections.abc import Collection

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
    **dict.fromkeys(("input", "original_query", "user_query", "query_text", "query_str"), "query"),
    **dict.fromkeys(
        (
            "retrieval_context", "retrieved_context", "context_chunks", "source_nodes", "source_documents", "retrieved_documents", "retrieved_docs",
            "retrieved_chunks", "ctxs", "paragraphs", "nodes", "docs", "search_results", "hits", "reference_contexts", "passage",
            "document", "paragraph", "knowledge",
        ),
        "context",
    ),
    **dict.fromkeys(("_id", "qid", "question_id", "query_id"), "custom_id"),
    **dict.fromkeys(("history", "chat_history", "messages"), "conversation_history"),
}  # fmt: skip
"""Further names, the first of those in a row; used only where none of the above stands there, since each also names other things."""

ANSWERS = {"answer": "response"}
"""The same for a line that holds an answer to check. An answer beside a question to ask is somebody's reference."""

USUAL_ANSWERS = dict.fromkeys(("actual_output", "generated_answer", "prediction", "output"), "response")

_ALONE = frozenset({"question", "sources", "answer"})
"""Names that a line of answers may not give beside the field itself: either could be the one that is meant."""


def names_of(*, check_only: bool) -> dict[str, str]:
    """The other names that are read, with their fields."""
    return USUAL | FIELDS | (USUAL_ANSWERS | ANSWERS if check_only else {})


def field_of(name: str) -> str:
    """The field of a job that a person means by a name."""
    return names_of(check_only=True).get(name, name)


def plan_names(keys: Collection[str], *, check_only: bool, elsewhere: Collection[str] = ()) -> dict[str, str]:
    """The keys of a row that are other names of fields, with these fields.

    A key beside the field itself is left as it is, and ends up in the metadata.

    Args:
        keys: those of the row.
        check_only: the row holds an answer.
        elsewhere: fields that have a value from elsewhere.

    Raises: InputError for two keys that could be the same field.
    """
    plan: dict[str, str] = {}
    for key in keys:
        field = (FIELDS | ANSWERS if check_only else FIELDS).get(key)
        if field is None or field in elsewhere:
            continue
        if field in keys:
            if check_only and key in _ALONE:
                raise InputError(f"is another name of {field!r}, which is given too: keep one of them", field=key)
            continue
        if field in plan.values():
            other = next(earlier for earlier, target in plan.items() if target == field)
            raise InputError(
                f"is another name of {field!r}, as {other!r} is: keep one of them, or say which with --map {field}={key}",
                field=key,
            )
        plan[key] = field
    for key, field in (USUAL | USUAL_ANSWERS if check_only else USUAL).items():
        if key in keys and field not in keys and field not in elsewhere and field not in plan.values():
            plan[key] = field
    return plan


def is_field(name: str) -> bool:
    """Tells a field of the contract from other names."""
    return name in JobRequest.model_fields
