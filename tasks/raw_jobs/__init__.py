"""Makes a raw job in the form of the contract of a job as anybody writes it, the same for every door.

``names`` knows how others call the fields, ``nested`` finds them further inside, ``sources`` the shapes of sources, ``conversation`` those of earlier turns, ``printed``
lists that were printed into a text, ``refusals`` the words for what is wrong.
"""

import json
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Any

from schemas.job import MAX_METADATA_CHARACTERS, JobRequest
from tasks.errors import InputError
from tasks.raw_jobs.conversation import is_chat, read_turns
from tasks.raw_jobs.left_over import text_size
from tasks.raw_jobs.names import field_of, plan_names
from tasks.raw_jobs.nested import questions_of
from tasks.raw_jobs.sources import as_id, read_sources, text_of

_CONTRACT = frozenset(JobRequest.model_fields)
_TEXTS = frozenset({"query", "response", "idempotency_key", "message_id"})
"""Fields in which an empty text is a value, or a mistake to be told; in the others it is absence, as null is."""

_ASKING = frozenset({"user", "human"})
_IDS = ("custom_id", "message_id", "retrieval_record_id", "trace_id", "request_id", "idempotency_key")


def read_job(raw: dict[str, Any], *, check_only: bool = False) -> dict[str, Any]:
    """A job under the names and in the forms of the contract; what it does not know is left for the contract to refuse or keep.

    Args:
        raw: the job as it came.
        check_only: it holds an answer to check.

    Raises: InputError naming the field.
    """
    try:
        (row,) = questions_of(raw, most=1)
        return _read_job(row, check_only=check_only)
    except RecursionError:
        raise InputError("lists and objects are nested too deeply; make the job flatter") from None


def _read_job(raw: dict[str, Any], *, check_only: bool) -> dict[str, Any]:
    job = {key: each for key, each in raw.items() if not _is_absent(field_of(key, check_only=check_only), each)}
    plan = plan_names(job, check_only=check_only)
    job = {plan.get(key, key): each for key, each in job.items()}
    for name in _IDS:
        if name in job:
            job[name] = as_id(job[name])
    if isinstance(job.get("metadata"), list | str):
        job["metadata"] = {"metadata": job["metadata"]}
    if "context" in job:
        job["context"] = read_sources(_with_lists_beside(job))
    if "conversation_history" not in job and is_chat(job.get("query")):
        job["conversation_history"] = job.pop("query")
    if "conversation_history" in job:
        job["conversation_history"] = read_turns(job["conversation_history"])
        _take_question(job, check_only=check_only)
    if "original_query" in raw:
        _take_config(job)
    if isinstance(query := job.get("query"), list | dict):
        job["query"] = _question(query)
    if isinstance(response := job.get("response"), list | dict) and (text := _answer_of(response)) is not None:
        job["response"] = text
    return job


def _answer_of(value: Any) -> str | None:
    """The text of an answer in an object, or of the last turn of a chat; None for what may be several answers."""
    if isinstance(value, list):
        return _answer_of(value[-1]) if is_chat(value) or len(value) == 1 else None
    for key, each in value.items() if isinstance(value, dict) else ():
        if field_of(key) == "response" or key in {"message", "choices"} or len(value) == 1:
            return _answer_of(each)
    return text_of(value)


def _with_lists_beside(job: dict[str, Any]) -> Any:
    """The sources of a job, with what Chroma has of each in lists beside their texts."""
    if "metadatas" not in job:
        return job["context"]
    return {"documents": job["context"], **{name: job.pop(name) for name in ("ids", "metadatas") if name in job}}


def _question(value: list[Any] | dict[str, Any]) -> Any:
    if isinstance(value, list) and len(value) > 1 and all(isinstance(each, str) for each in value):
        raise InputError(f"holds {len(value):,} texts; give each question a job of its own", field="query")
    if (text := text_of(value)) is None and isinstance(value, dict):
        text = next((each for key, each in value.items() if key == "original" or field_of(key) == "query"), None)
    return value if text is None else text


def _is_absent(field: str, value: Any) -> bool:
    if field not in _CONTRACT:
        return False
    # An empty object of PHP is written as an empty list.
    return value is None or (value == "" and field not in _TEXTS) or (value == [] and field in {"config", "metadata"})


def _take_config(job: dict[str, Any]) -> None:
    """Takes the options of a request that has them beside its question; elsewhere these names are somebody's metadata."""
    options = {
        name: job.pop(name) for name in ("citation_style", "citation_format", "max_response_length") if name in job
    }
    config = job.get("config") or {}
    if options and isinstance(config, dict):
        job["config"] = {**options, **config}


def _take_question(job: dict[str, Any], *, check_only: bool) -> None:
    """Makes the last message of a chat the question, where there is no other, and its first one the instructions.

    Of a chat to check the last message is the answer, where there is no other.
    """
    turns = job["conversation_history"]
    if not isinstance(turns, list) or not turns:
        return
    if check_only and "response" not in job and turns[-1][0].lower() not in _ASKING:
        *turns, (_, job["response"]) = turns
        job["conversation_history"] = turns
    if "query" in job or not turns or turns[-1][0].lower() not in _ASKING:
        return
    *earlier, (_, job["query"]) = turns
    if earlier and earlier[0][0] in {"system", "developer"} and "system_instructions" not in job:
        job["system_instructions"] = earlier.pop(0)[1]
    job["conversation_history"] = earlier


def has_blank_source(job: dict[str, Any]) -> bool:
    """Tells a job in the form of the contract with a source that has no text."""
    texts = [each["content"] for each in job.get("context", ())]
    return any(not text.strip() for text in texts if isinstance(text, str))


def shorten_metadata(job: dict[str, Any]) -> list[str]:
    """Takes the longest texts from the metadata of sources that have more than a source may have; returns their names.

    Retrievers from the web deliver the whole page beside its snippet.
    """
    names = []
    for source in job.get("context", ()):
        about = source.get("metadata")
        for name in longest_in(about) if isinstance(about, dict) else ():
            names.append(name)
            del about[name]
    return list(dict.fromkeys(names))


def longest_in(about: Mapping[str, Any]) -> list[str]:
    """The keys of the longest texts, and of lists and objects of texts, without which metadata has its bounds."""
    lengths = {key: length for key, each in about.items() if (length := text_size(each))}
    if sum(lengths.values()) <= MAX_METADATA_CHARACTERS // 2:
        return []
    # As JSON; what is nested too deeply for that is refused by its depth.
    sizes = Counter(
        {
            key: len(json.dumps({key: about[key]}, ensure_ascii=False)) if isinstance(about[key], str) else length
            for key, length in lengths.items()
        }
    )
    excess = sizes.total() - MAX_METADATA_CHARACTERS
    names = []
    for name, size in sizes.most_common():
        if excess > 0:
            names.append(name)
            excess -= size
    return names


def scores_of(raw: Any) -> list[float]:
    """The relevance scores of a raw job's sources; none of one that can't be read."""
    try:
        sources = read_job(raw).get("context") if isinstance(raw, dict) else None
    except InputError:
        return []
    scores = [each.get("relevance_score") for each in sources or ()]
    return [float(score) for score in scores if isinstance(score, int | float) and isfinite(score)]


def as_check_only(raw: Any) -> Any:
    """Makes a raw check-only job of a line that holds an answer and its sources.

    What is no JSON object is passed through, for ``parse_request`` to refuse.

    Raises: InputError for a line without an answer, or with two names of one field.
    """
    if not isinstance(raw, dict):
        return raw
    job = read_job(raw, check_only=True)
    require_answer(job)
    return job


def require_answer(job: dict[str, Any]) -> None:
    """Raises ``InputError`` for a job without an answer to check."""
    if job.get("response") is None:
        raise InputError("is missing: put the answer to check there, or under 'answer'", field="response")
