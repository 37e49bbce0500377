"""The wire contract: frozen, closed, available as JSON Schema, and stable in a round trip."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from schemas.base import Contract, share_field_names
from schemas.batch import BatchRequest, BatchStatus
from schemas.job import GenerationConfig, JobRequest, Sampling, SourceContext
from schemas.model_call import Message, MessagesSnapshot, Role, SourcePart, TextPart, hash_messages
from schemas.record import GenerationRecord, JobResult

PUBLISHED = [JobRequest, JobResult, GenerationRecord, BatchRequest, BatchStatus, GenerationConfig]


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_schema_is_a_valid_one(model: type[Contract]) -> None:
    for mode in ("validation", "serialization"):
        Draft202012Validator.check_schema(model.model_json_schema(mode=mode))  # type: ignore[arg-type]


def test_contract_values_are_immutable() -> None:
    with pytest.raises(ValidationError):
        JobRequest(query="q").query = "other"  # type: ignore[misc]


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
sources = st.one_of(text, st.fixed_dictionaries({"content": text}, optional={"title": text, "page": st.integers()}))
requests = st.fixed_dictionaries(
    {"query": text.filter(str.strip), "context": st.lists(sources, max_size=3)},
    optional={
        "config": st.fixed_dictionaries(
            {}, optional={"max_tokens": st.integers(1, 9999), "temperature": st.floats(0, 2)}
        ),
        "conversation_history": st.lists(st.tuples(text, text), max_size=2),
        "metadata": st.dictionaries(text, json_values, max_size=3),
        "priority": st.integers(-100, 100),
    },
)


@given(requests)
def test_a_request_is_read_back_as_it_was_written(raw: dict[str, object]) -> None:
    request = JobRequest.model_validate(raw)

    assert JobRequest.model_validate_json(request.model_dump_json()) == request


@given(requests)
def test_a_stored_request_is_the_validated_one(raw: dict[str, object]) -> None:
    request = JobRequest.model_validate(raw)

    row = json.loads(request.model_dump_json())
    # The ledger keeps keys in an order of its own.
    row["context"] = [dict(sorted(source.items())) for source in row["context"]]
    stored = JobRequest.from_stored(row)

    assert stored == request
    assert stored.model_copy(deep=True) == request
    assert stored.context == () or stored.context[0].model_fields_set == set(SourceContext.model_fields)
    assert stored.model_dump_json() == request.model_dump_json()


def test_a_stored_score_is_a_float_also_where_the_database_cut_its_fraction() -> None:
    request = JobRequest(query="q", context=(SourceContext(content="c", relevance_score=1.0),))
    stored = json.loads(request.model_dump_json())
    stored["context"][0]["relevance_score"] = 1

    assert isinstance(JobRequest.from_stored(stored).context[0].relevance_score, float)


def test_jobs_with_the_same_stored_config_hold_one() -> None:
    first, second = (
        JobRequest.from_stored(
            {"query": query, "context": [], "config": {"max_tokens": 7, "sampling": {"seed": 2**70}}}
        )
        for query in ("one", "another")
    )
    other = JobRequest.from_stored({"query": "third", "context": [], "config": {"max_tokens": 8}})

    assert first.config is second.config
    assert first.config == GenerationConfig(max_tokens=7, sampling=Sampling(seed=2**70))
    assert other.config.max_tokens == 8
    with pytest.raises(ValidationError):
        JobRequest.from_stored({"query": "q", "context": [], "config": {"max_token": 7}})


def test_values_that_share_their_field_names_have_copies_of_their_own() -> None:
    first, second = (share_field_names(Sampling(seed=seed)) for seed in (1, 2))
    copy = first.model_copy(update={"top_k": 3})

    assert first.__pydantic_fields_set__ is second.__pydantic_fields_set__
    assert copy.model_fields_set == {"seed", "top_k"}
    assert first.model_fields_set == second.model_fields_set == {"seed"}


def test_stored_sources_of_another_form_are_validated() -> None:
    stored = JobRequest.from_stored({"query": "q", "context": ["plain", {"content": "c", "title": "t"}]})

    assert stored == JobRequest.model_validate({"query": "q", "context": ["plain", {"content": "c", "title": "t"}]})
    for context in ([{}], [3], "text"):
        with pytest.raises(ValidationError):
            JobRequest.from_stored({"query": "q", "context": context})


@given(text)
def test_the_same_content_has_the_same_ids_everywhere(content: str) -> None:
    first, second = SourceContext(content=content), SourceContext.model_validate(content)

    assert (first.chunk_id, first.document_id) == (second.chunk_id, second.document_id)


@given(st.lists(st.tuples(st.sampled_from(Role), st.text(st.characters(exclude_categories=["Cs"])))), st.data())
def test_different_message_lists_have_different_hashes(texts: list[tuple[Role, str]], data: st.DataObject) -> None:
    other = data.draw(st.permutations(texts))

    assert (hash_messages(texts) == hash_messages(other)) == (texts == other)


def test_boundaries_between_messages_are_part_of_the_hash() -> None:
    assert hash_messages([(Role.USER, "ab"), (Role.USER, "c")]) != hash_messages([(Role.USER, "a"), (Role.USER, "bc")])


def test_a_snapshot_gives_the_exact_messages_and_proves_them() -> None:
    contents = ["the first source", "the second source"]
    message = Message(
        role=Role.USER, parts=(TextPart(text="See: "), SourcePart(source_index=1, start=4, end=10), TextPart(text="?"))
    )
    snapshot = MessagesSnapshot(
        messages=(message,), shown=(1,), protocol="markers", sha256=hash_messages([(Role.USER, "See: second?")])
    )

    assert snapshot.texts(contents) == [(Role.USER, "See: second?")]
    assert snapshot.proves(contents)
    assert not snapshot.proves(["x", "the sixth. source"])


EXTREMES = ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]


@pytest.mark.parametrize("moment", EXTREMES)
@pytest.mark.parametrize(
    ("model", "field"),
    [(JobRequest, "scheduled_at"), (JobRequest, "deadline"), (BatchRequest, "not_before"), (BatchRequest, "deadline")],
)
def test_a_moment_that_no_ledger_gives_back_is_refused(
    model: type[JobRequest] | type[BatchRequest], field: str, moment: str
) -> None:
    fields = {"query": "When?", "context": ["Now."]} if model is JobRequest else {}
    with pytest.raises(ValidationError, match="between the years 2 and 9998") as refused:
        model.model_validate({**fields, field: moment})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]
    model.model_validate({**fields, field: "9998-12-30T00:00:00+14:00"})
