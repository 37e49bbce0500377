"""A job as anybody writes it becomes the same request through every door."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.batch import BatchRequest
from schemas.job import GenerationConfig, JobRequest, Sampling, SourceContext
from schemas.quality import QualityConstants
from tasks.errors import InputError
from tasks.raw_jobs import read_job
from tasks.raw_jobs.nested import questions_of
from tasks.raw_jobs.printed import structure_of
from tasks.submit import parse_request, validated
from tests.unit.tasks.test_hostile_texts import calls_of


def request_of(**fields: Any) -> JobRequest:
    return parse_request({"query": "Why?", **fields})[0]


def sources_of(value: Any) -> list[dict[str, Any]]:
    """What was written of each source: its content, its metadata, and ids and scores that do not come from elsewhere."""
    sources = []
    for source in request_of(context=value).context:
        fields = source.model_dump(exclude_defaults=True, exclude={"chunk_id", "document_id"})
        sources.append({"content": source.content, **fields})
    return sources


@pytest.mark.parametrize(
    "model", [JobRequest, SourceContext, GenerationConfig, Sampling, QualityConstants, BatchRequest]
)
def test_null_is_absence_in_every_field(model: type[Any]) -> None:
    base = {JobRequest: {"query": "Why?"}, SourceContext: {"content": "x"}}.get(model, {})
    nulls = {name: None for name in model.model_fields if name not in base}
    assert nulls
    assert validated(model, {**nulls, **base}) == validated(model, base)


def test_an_empty_text_is_absence_but_in_texts_and_keys() -> None:
    refused = {"query", "response", "idempotency_key", "message_id"}
    job = {name: "" for name in JobRequest.model_fields if name not in refused}
    source = {name: "" for name in SourceContext.model_fields if name != "content"}
    config = dict.fromkeys(GenerationConfig.model_fields, "")
    assert request_of(**job) == request_of()
    assert request_of(context=[{**source, "content": "a."}], config=config) == request_of(context=["a."])
    for name in ("idempotency_key", "message_id"):
        with pytest.raises(InputError, match=name):
            request_of(**{name: ""})


def test_null_in_a_job_takes_the_value_of_the_batch() -> None:
    request, _ = parse_request({"query": "Why?", "config": {"max_tokens": None, "mode": None}}, {"max_tokens": 7})
    assert (request.config.max_tokens, request.config.mode) == (7, "grounded")


@pytest.mark.parametrize(
    "blank",
    [
        "",
        "  ",
        None,
        {},
        "nan",
        "None",
        {"content": ""},
        {"content": None},
        {"text": " \n"},
        {"content": []},
        "https://example.org/a?b=c",
        {"content": {}},
        {"content": "NaN"},
        {"content": "null", "title": "T"},
        {"title": "T", "url": "https://example.org/", "id": 7},
    ],
)
def test_a_source_without_text_is_told_and_refuses_nothing(blank: Any) -> None:
    request, warnings = parse_request({"query": "Why?", "context": ["A.", blank, "B."]})
    assert [source.content.strip() for source in request.context] == ["A.", "", "B."]
    assert warnings == ["sources without text are left out"]


@pytest.mark.parametrize(
    ("value", "sources"),
    [
        ("one text", [{"content": "one text"}]),
        ("['a.', \"it's\"]", [{"content": "a."}, {"content": "it's"}]),
        ('["a.", "b."]', [{"content": "a."}, {"content": "b."}]),
        ("[1] is a note", [{"content": "[1] is a note"}]),
        ([["a.", "b."], ["c."]], [{"content": "a."}, {"content": "b."}, {"content": "c."}]),
        ({"title": ["T"], "sentences": [["a.", " b."]]}, [{"content": "a. b.", "metadata": {"title": "T"}}]),
        ([["T", ["a.", " b."], 17.5], ["U", []]],
         [{"content": "a. b.", "metadata": {"title": "T"}}, {"content": "", "metadata": {"title": "U"}}]),
        ({"contexts": ["a.", "b."], "labels": ["X", "Y"]},
         [{"content": "a.", "metadata": {"labels": "X"}}, {"content": "b.", "metadata": {"labels": "Y"}}]),
        ({"hits": {"hits": [{"_id": "1", "_score": 0.5, "_source": {"body": "a."}}]}},
         [{"content": "a.", "relevance_score": 0.5}]),
        ([{"id": "1", "score": 0.5, "metadata": {"text": "a.", "wing": "east"}}],
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"wing": "east"}}]),
        ([{"content": [{"type": "text", "text": "a."}, {"type": "text", "text": "b."}]}], [{"content": "a. b."}]),
        ([{"content": "a.", "embedding": [0.1, 0.2], "relevance_score": True}], [{"content": "a."}]),
        ([{"pageContent": "a.", "Id": "1", "relevanceScore": 0.5}], [{"content": "a.", "relevance_score": 0.5}]),
        ([{"text": "a.", "_additional": {"certainty": 0.5, "id": "1"}}], [{"content": "a.", "relevance_score": 0.5}]),
        ({"Lease": "a.", "Fees": "b."}, [{"content": "a."}, {"content": "b."}]),
        ([{"id": "1", "chunk": {"id": "1", "content": "a.", "documentMetadata": {"title": "T"}, "relevanceScore": 0.5}}],
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"title": "T"}}]),
        ([{"document.content": "a.", "document.score": 0.5, "document.metadata": {"title": "T"}}],
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"title": "T"}}]),
        ({"content": {"3": "a.", "7": "b."}, "score": {"3": 0.5, "7": None}},
         [{"content": "a.", "relevance_score": 0.5}, {"content": "b."}]),
        ({"data": {"Get": {"Passage": [{"text": "a.", "_additional": {"certainty": 0.5}}, {"text": "b.", "title": "U"}]}}},
         [{"content": "a.", "relevance_score": 0.5}, {"content": "b.", "metadata": {"title": "U"}}]),
        ({"title": "T", "paragraphs": [{"id": 1, "text": "a."}, {"id": 2, "text": "b."}]},
         [{"content": "a.", "metadata": {"title": "T"}}, {"content": "b.", "metadata": {"title": "T"}}]),
        ({"hits": {"hits": [{"_score": 0.5, "fields": {"text": ["a."], "title": ["T"], "page": [3]}}]}},
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"page": 3, "title": "T"}}]),
        ({"hits": [{"_score": 1, "_source": {"title": "T"}, "inner_hits": {"p": {"hits": {"hits": [
            {"_score": 0.5, "_source": {"text": "a."}}, {"_score": 0.25, "fields": {"p": [{"text": ["b."]}]}}]}}}}]},
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"title": "T"}},
          {"content": "b.", "relevance_score": 0.25, "metadata": {"title": "T"}}]),
        ({"root": {"id": "top", "relevance": 1.0, "fields": {"totalCount": 1}, "children": [
            {"id": "1", "relevance": 0.5, "fields": {"title": "T", "body": "a."}}]}},
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"title": "T"}}]),
        ({"groups": [{"id": "g", "hits": [{"id": 1, "score": 0.5, "payload": {"text": "a."}}]}]},
         [{"content": "a.", "relevance_score": 0.5}]),
        ([{"score": 0.5, "payload": {"_node_content": '{"text": "a.", "metadata": {"page_label": "3"}}'}}],
         [{"content": "a.", "relevance_score": 0.5, "metadata": {"page_label": "3", "page": "3"}}]),
        ([["T", "3", "a."], ["U", 4, "b."]],
         [{"content": "a.", "metadata": {"title": "T"}}, {"content": "b.", "metadata": {"title": "U"}}]),
        ({"columns": ["text", "title"], "index": [0, 1], "data": [["a.", "T"], ["b.", "U"]]},
         [{"content": "a.", "metadata": {"title": "T"}}, {"content": "b.", "metadata": {"title": "U"}}]),
    ],
)  # fmt: skip
def test_sources_are_read_in_the_shapes_that_others_write(value: Any, sources: list[dict[str, Any]]) -> None:
    assert sources_of(value) == sources


def test_a_whole_page_beside_its_snippet_is_left_out_and_told() -> None:
    pages = [{"page_snippet": "a.", "page_result": "x" * 90_000, "page_last_modified": '"' * 9_000, "rank": 1}] * 2
    request, warnings = parse_request({"query": "Why?", "search_results": pages})
    assert [each.metadata for each in request.context] == [{"page_last_modified": '"' * 9_000, "rank": 1}] * 2
    assert warnings == ["the metadata of some sources is too long, and of it is left out: 'page_result'"]


@pytest.mark.parametrize(
    ("metadata", "page"),
    [
        ({"page": 17.0}, 17),
        ({"page": 0, "page_label": "1"}, "1"),
        ({"page_label": "iv", "page_number": 4}, "iv"),
        ({"page": [12.0, 13]}, [12, 13]),
        ({"page": {"from": 1, "to": 3}}, "1-3"),
        ({"page": 1e20}, 10**20),
        ({"evidence_page_num": 59, "num_pages": 160}, 59),
        ({"dl_meta": {"doc_items": [{"prov": [{"page_no": 3}]}, {"prov": [{"page_no": 3}, {"page_no": 4}]}]}}, "3-4"),
    ],
)
def test_the_printed_page_is_the_page(metadata: dict[str, Any], page: Any) -> None:
    for source in (
        {"content": "a.", **metadata},
        {"text": "a.", "meta": metadata},
        {"content": "a.", "metadata": metadata},
    ):
        (read,) = request_of(context=[source]).context
        assert read.metadata.get("page") == page


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({"doc": "/srv/files/lease.pdf"}, "lease.pdf"),
        ({"filename": "lease.pdf", "title": "The lease"}, "The lease"),
        ({"source": "/srv/files/lease.pdf"}, "lease.pdf"),
        ({"file_path": "C:\\files\\lease.pdf"}, "lease.pdf"),
        ({"source": "the lease, in print"}, "the lease, in print"),
        ({"source": {"kind": "file"}}, None),
        ({"origin": {"filename": "lease.pdf", "name": "x"}}, "lease.pdf"),
        ({"sourceUri": "gs://files/1.pdf", "sourceDisplayName": "lease.pdf"}, "lease.pdf"),
    ],
)
def test_the_title_comes_from_the_place_of_the_file(metadata: dict[str, Any], title: str | None) -> None:
    (read,) = request_of(context=[{"text": "a.", "metadata": metadata}]).context
    assert read.metadata.get("title") == title


@pytest.mark.parametrize(
    ("value", "turns"),
    [
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}],
         (("user", "Hi"), ("assistant", "Yes?"))),
        ([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], (("user", "Hi"),)),
        ([{"type": "human", "data": {"content": "Hi", "type": "human"}}], (("human", "Hi"),)),
        ([{"question": "Why?", "answer": "So."}], (("Why?", "So."),)),
        (["Hi", "Yes?"], (("user", "Hi"), ("assistant", "Yes?"))),
        (None, ()),
    ],
)  # fmt: skip
def test_earlier_turns_are_read_in_the_forms_of_chat_programs(value: Any, turns: tuple[Any, ...]) -> None:
    assert request_of(conversation_history=value).conversation_history == turns


def test_a_chat_is_a_question_with_instructions_and_a_history() -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Why?"}]  # fmt: skip
    request, _ = parse_request({"messages": messages, "context": ["Because."]})
    assert (request.query, request.system_instructions) == ("Why?", "Be short.")
    assert request.conversation_history == (("user", "Hi"), ("assistant", "Yes?"))

    assert parse_request({"input": messages, "context": ["Because."]})[0] == request
    typed = [
        {"type": "human", "content": "Hi"},
        {"type": "ai", "content": "Yes?"},
        {"type": "human", "content": "Why?"},
    ]
    assert parse_request({"user_input": typed, "context": ["Because."]})[0].query == "Why?"


def test_several_questions_are_not_one() -> None:
    with pytest.raises(InputError, match="query: holds 2 texts; give each question a job"):
        parse_request({"question": ["Why?", "Who?"], "context": ["Because."]})


@pytest.mark.parametrize(
    "spelling", [str.upper, str.title, lambda name: name.title().replace("_", ""), lambda name: name.replace("_", " ")]
)
def test_a_name_is_known_in_every_spelling(spelling: Callable[[str], str]) -> None:
    raw = {"user_input": "Why?", "retrieved_contexts": ["Because."], "question_id": "7"}
    request, warnings = parse_request({spelling(name): each for name, each in raw.items()})
    assert (request, warnings) == (parse_request(raw)[0], [])


@pytest.mark.parametrize(
    "results",
    [
        "passed",
        ["passed"],
        [{"metric": "faithfulness", "reason": "It holds.", "value": 1}],
    ],
)
def test_a_list_without_texts_is_no_source(results: Any) -> None:
    assert request_of(results=results).context == ()
    assert request_of(results=[{"text": "Because."}], context=[]).context == ()
    assert request_of(children=[{"text": "Because."}]).context == ()


def test_a_key_too_long_for_metadata_is_left_out_and_told() -> None:
    about = {"candidates": [["x" * 90_000]], "trace": "y" * 20_000, "grade": 1}
    request, warnings = parse_request({"query": "Why?", "context": ["Because."], **about})
    assert request.metadata == {"trace": "y" * 20_000, "grade": 1}
    assert "keys too long for metadata are left out: 'candidates'" in warnings
    with pytest.raises(InputError, match=r"metadata: holds 110,0\d\d characters"):
        request_of(metadata=about)


@pytest.mark.parametrize("number", [17, 17.0, "17"])
def test_an_id_may_be_a_number(number: Any) -> None:
    request = request_of(
        custom_id=number, trace_id=number, context=[{"content": "a.", "chunk_id": number, "doc_id": number}]
    )
    assert (request.custom_id, request.trace_id) == ("17", "17")
    assert (request.context[0].chunk_id, request.context[0].document_id) == ("17", "17")
    assert request_of(_id={"$oid": str(number)}).custom_id == str(number)


@given(st.lists(st.text(), min_size=1))
def test_printed_lists_of_texts_are_read_as_they_were(texts: list[str]) -> None:
    assert structure_of(str(texts)) == texts
    assert structure_of(f"[{chr(10).join(map(repr, texts))}]") == texts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((empty, []) for empty in ("[]", "()", "{}", "set()", "array([], dtype=object)")),
        ("('a',)", ["a"]),
        ('["a", null, NaN, {"b": -Infinity, "c": true}]', ["a", None, None, {"b": None, "c": True}]),
        ("{'a'}", ["a"]),
        ("[np.str_('a'), np.str_(\"b's\")]", ["a", "b's"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("[{'a': np.float64(0.5), 'b': nan, 'c': -inf, 'd': Timestamp('2026-01-02'), 'e': datetime.date(2026, 1, 2)}]",
         [{"a": 0.5, "b": None, "c": None, "d": "2026-01-02", "e": "2026-01-02 00:00:00"}]),
        ("[(Document(metadata={}, page_content='a'), 0.5)]", [[{"metadata": {}, "page_content": "a"}, 0.5]]),
        ("[Scored(node=Text(text='a', links={<Link.UP: '1'>: Other(id='x')}), score=0.5)]",
         [{"node": {"text": "a", "links": {"1": {"id": "x"}}}, "score": 0.5}]),
        *((text, None) for text in ("(see above)", "[see (a)]", "Fees (2026)", "[a]", "f(x)", "(1, 2)", "date(2026, 99)", f"[date({10**30}, 1)]")),
    ],
)  # fmt: skip
def test_prints_of_python_are_read_and_other_texts_are_texts(text: str, value: Any) -> None:
    assert structure_of(text) == value


@given(st.text(alphabet="[]{}()'\" ,ab\\\n:1"))
def test_any_text_is_a_text_or_a_structure(text: str) -> None:
    assert isinstance(structure_of(text), list | dict | None)


def test_requests_of_earlier_systems_are_read_with_their_options() -> None:
    chunk = {"chunk_id": "c", "content": "Because.", "relevance_score": 0.0}
    raw = {
        "original_query": "Why?",
        "context_chunks": [chunk],
        "citation_style": "footnote",
        "max_response_length": 900,
    }
    request, warnings = parse_request(raw)
    assert (request.query, request.context[0].chunk_id, warnings) == ("Why?", "c", [])
    assert (request.config.citation_style, request.config.max_response_length) == ("footnote", 900)
    formats = {"bullet_points": "bullets", "step_by_step": "steps", "prose": "plain"}
    for name, output_format in formats.items():
        assert request_of(config={"output_format": name}).config.output_format == output_format
    assert request_of(citation_style="x").metadata == {"citation_style": "x"}


def test_many_objects_in_a_job_are_looked_at_once_each() -> None:
    def refuse(objects: int) -> None:
        with pytest.raises(InputError):
            parse_request({f"k{number}": {"a": 1} for number in range(objects)})

    assert calls_of(lambda: refuse(2_000)) < 3 * calls_of(lambda: refuse(1_000))


def test_questions_are_not_taken_apart_where_each_would_take_much_along() -> None:
    row = {"turns": [{"question": f"Why {n}?"} for n in range(400)], **{f"note {n}": n for n in range(400)}}
    assert questions_of(row) == (row,)
    few = {**row, "turns": row["turns"][:2]}  # type: ignore[index]
    assert [each["question"] for each in questions_of(few)] == ["Why 0?", "Why 1?"]
    assert "query" not in read_job(few)
