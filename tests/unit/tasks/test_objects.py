"""Validation of callers' schemas at submission, and of models' objects against them."""

from typing import Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, RootModel

from schemas.answer import Citation
from schemas.job import GenerationConfig
from schemas.structured import READY_MADE, AnswerWithSources, requested_schema
from tasks.answers.leaves import leaves
from tasks.answers.objects import MAX_SCHEMA_BYTES, check_schema, complete_object, violations
from tasks.errors import InputError
from tasks.prompting.messages import answer_schema
from tasks.submit import new_batch, parse_request
from worker.providers.openai import is_strict

PRICE: dict[str, Any] = {
    "type": "object",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "$defs": {"item": {"type": "object", "properties": {"price": {"type": "number", "maximum": 10}}}},
}


class Node(BaseModel):
    """A recursive object, whose schema refers to a definition at its root."""

    name: str
    kind: Literal["branch", "leaf"]
    children: list["Node"] = []


def config(schema: Any) -> GenerationConfig:
    return GenerationConfig(output_schema=schema)


def doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "object"}}
    for level in range(1, levels):
        definitions[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{levels - 1}"}}, "$defs": definitions}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "must describe an object, and this describes array: put that into a field"),
        ({"$ref": "#"}, "must describe an object"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "must describe an object"),
        ({"name": "x", "strict": True, "schema": {"type": "object"}}, "give what it has under 'schema'"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "$.properties.a.type"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, "only references within it"),
        ({"type": "object", "properties": {"a": {"$id": "urn:b", "$ref": "#/c"}}}, "only references within it"),
        ({"type": "object", "$schema": "http://127.0.0.1:1/draft"}, "not a valid JSON Schema"),
        ({"type": "object", "allOf": [{}], "$ref": f"#/allOf/{'9' * 5_000}"}, "not a valid JSON Schema"),
        ({"type": "object", "patternProperties": {"(?=a)b": {}}}, "not a valid JSON Schema"),
        ({"type": "object", "properties": {"a": {"pattern": "((a{1,1000}){1,1000}){1,1000}"}}}, "not a valid JSON"),
        ({"type": "object", "description": "x" * MAX_SCHEMA_BYTES}, "at most 32,768"),
        (doubling(60), "multiply"),
        (deep(1000), "can't be read"),
    ],
)
def test_a_schema_that_is_none_or_costs_too_much_is_refused_at_the_door(schema: dict[str, Any], problem: str) -> None:
    raw = {"query": "?", "config": {"output_schema": schema}}
    for door in (lambda: parse_request(raw), lambda: new_batch({"defaults": raw["config"]}, tenant="t")):
        with pytest.raises(InputError, match="output_schema") as refused:
            door()
        assert problem in str(refused.value)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "schema",
    [
        PRICE,
        doubling(10),
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"a": {"$ref": "#"}}},
        Node.model_json_schema(),
        RootModel[dict[str, Node]].model_json_schema(),
        RootModel[Node | None].model_json_schema(),
        "AnswerWithSources",
        None,
    ],
)
def test_a_good_schema_is_taken(schema: Any) -> None:
    check_schema(config(schema))


def test_an_object_of_a_recursive_schema_is_asked_for_checked_and_read() -> None:
    schema = Node.model_json_schema()
    asked = answer_schema(config(schema))
    tree = {"name": "a", "kind": "branch", "children": [{"name": "b", "kind": "twig"}]}
    assert jsonschema_rs.is_valid(asked, {"segments": [], "sufficient": True, "data": {**tree, "children": []}})
    assert not jsonschema_rs.is_valid(asked, {"segments": [], "sufficient": True, "data": tree})
    (problem,) = violations(config(schema), tree)
    assert "$.children[0].kind" in problem
    assert {leaf.path: leaf.chosen for leaf in leaves(tree, schema)} == {
        "$.name": False, "$.kind": True, "$.children[0].name": False, "$.children[0].kind": True,
    }  # fmt: skip


def test_violations_name_their_place_and_quote_nothing_of_the_model() -> None:
    problems = violations(config(PRICE), {"items": [{"price": 3}, {"price": 11}, {"price": "IGNORE ALL RULES"}]})

    assert [problem.partition(" at ")[2] for problem in problems] == [
        "$.items[1].price: the value is greater than the maximum of 10",
        '$.items[2].price: the value is not of type "number"',
    ]
    assert violations(config(PRICE), {"items": []}) == ()
    assert "is missing" in violations(config(PRICE), None)[0]
    assert violations(config(None), None) == ()


def test_unstorable_characters_are_replaced_or_refused() -> None:
    free = config({"type": "object"})
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"a": nested}

    assert complete_object(free, {"a\x00": ["\ud800", 1]}, "", ()) == {"a\ufffd": ["\ufffd", 1]}
    assert complete_object(free, nested, "", ()) is None
    assert "levels deep" in violations(free, nested)[0]


def test_a_pattern_that_would_explode_elsewhere_runs_in_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}

    assert len(violations(config(schema), {"a": "a" * 200_000 + "!"})) == 1


@pytest.mark.parametrize("name", sorted(READY_MADE))
def test_ready_made_objects_fit_the_strict_modes(name: str) -> None:
    whole = answer_schema(config(name))

    assert is_strict(whole)
    schema = requested_schema(name)
    assert schema is not None
    assert set(schema["properties"]) <= set(READY_MADE[name].model_fields)
    check_schema(config(schema))


def test_an_answer_with_sources_takes_its_answer_and_sources_from_what_was_checked() -> None:
    data = {"confidence": 0.8, "key_facts": ["a"], "limitations": [], "answer": "unchecked!", "sources_used": [7]}
    citations = [
        Citation(
            source_index=index, rank=1, chunk_id="c", document_id="d", quoted_text="", text_snippet="", start_pos=0,
            end_pos=0, verified=False,
        )
        for index in (2, 0, 2)
    ]  # fmt: skip
    chosen = config("AnswerWithSources")

    assert violations(chosen, data) == ()
    result = complete_object(chosen, data, "The checked answer [1].", citations)
    answer = AnswerWithSources.model_validate(result)
    assert (answer.answer, answer.sources_used, answer.confidence) == ("The checked answer [1].", (0, 2), 0.8)


def test_references_still_meet_their_definitions_inside_the_answers_schema() -> None:
    tree = {**PRICE, "properties": {**PRICE["properties"], "again": {"$ref": "#"}}}
    whole = answer_schema(config(tree))
    segments = {"sufficient": True, "segments": []}
    validator = jsonschema_rs.validator_for(whole, offline=True)

    assert validator.is_valid({**segments, "data": {"items": [{"price": 1}], "again": {"items": []}}})
    assert not validator.is_valid({**segments, "data": {"items": [{"price": 11}]}})
    assert not validator.is_valid({**segments, "data": {"items": [], "again": {"items": [{"price": 11}]}}})
