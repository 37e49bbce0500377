"""Values of a caller's own object: each is located in the quoted evidence, or flagged by its path."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from schemas.grounding import Grounding, Value, Verdict
from schemas.job import JobRequest
from schemas.states import Outcome
from tasks.answers.leaves import leaves
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.policy.outcome import CheckedAnswer, decide_outcome
from tasks.prompting.messages import render
from tests.stub import hostile
from tests.unit.tasks.value_facts import BOOLEANS, CHOICES, DATES, LANGUAGES, NUMBERS, TEXTS, Fact

OPEN: dict[str, Any] = {"type": "object"}


def values_of(
    data: dict[str, Any], quoted: Sequence[str], source: str, schema: dict[str, Any] | None = None, **config: Any
) -> tuple[Grounding, tuple[Value, ...]]:
    """The check of an answer that states and quotes some sentences of its source."""
    request = JobRequest(query="?", context=({"content": source},), config={"output_schema": schema or OPEN, **config})
    parts = [{"text": text, "citations": [{"source": 1, "quote": text}]} for text in quoted]
    text = json.dumps({"sufficient": True, "segments": parts, "data": data}, ensure_ascii=False)
    completion = hostile.completion(hostile.Reply(text))
    processed = postprocess(request, render(request, completion.protocol), completion)
    grounding = ground(request, processed)
    return grounding, grounding.values


def source_of(language: str) -> str:
    """All facts of a language in one source."""
    kinds = (NUMBERS, DATES, TEXTS, CHOICES, BOOLEANS)
    return "\n\n".join(fact.sentence for kind in kinds for fact in kind[language])


def listed(kind: dict[str, list[Fact]]) -> Iterator[Any]:
    """The facts of a kind in all languages."""
    for language in LANGUAGES:
        for fact in kind[language]:
            yield pytest.param(language, fact, id=f"{language}-{fact.name}")


def verdict(language: str, fact: Fact, value: object, schema: dict[str, Any] | None = None) -> Value:
    _, values = values_of({fact.name: value}, [fact.sentence], source_of(language), schema)
    assert [checked.path for checked in values] == [f"$.{fact.name}"]
    return values[0]


# ---- one value -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "fact"), [*listed(NUMBERS), *listed(DATES), *listed(TEXTS), *listed(BOOLEANS)])
def test_a_right_value_is_located_and_a_wrong_one_flagged(language: str, fact: Fact) -> None:
    right, wrong = verdict(language, fact, fact.right), verdict(language, fact, fact.wrong)
    assert right.verdict is Verdict.SUPPORTED, right.reason
    assert right.evidence
    source = source_of(language)
    assert all(source[e.start : e.end] in fact.sentence for e in right.evidence)
    assert wrong.verdict in {Verdict.UNSUPPORTED, Verdict.CONTRADICTED}
    assert wrong.reason


@pytest.mark.parametrize(("language", "fact"), list(listed(CHOICES)))
def test_a_right_choice_is_located_and_a_wrong_one_flagged(language: str, fact: Fact) -> None:
    schema = {"type": "object", "properties": {fact.name: {"enum": [fact.right, fact.wrong]}}}
    assert verdict(language, fact, fact.right, schema).verdict is Verdict.SUPPORTED
    assert verdict(language, fact, fact.wrong, schema).verdict is not Verdict.SUPPORTED


# ---- swapped values -----------------------------------------------------------------------------------------------------

TENANT = "The tenant has three months, and the landlord has six."
APART = "The notice period of the tenant is three months.\n\nThe landlord has six months."


@pytest.mark.parametrize("source", [TENANT, APART, "Three months for the tenant and six for the landlord."])
def test_values_swapped_between_two_names_are_flagged(source: str) -> None:
    quoted = [part for part in source.split("\n\n") if part]
    _, right = values_of({"tenant_months": 3, "landlord_months": 6}, quoted, source)
    assert [value.verdict for value in right] == [Verdict.SUPPORTED] * 2, [value.reason for value in right]
    _, swapped = values_of({"tenant_months": 6, "landlord_months": 3}, quoted, source)
    assert [value.verdict for value in swapped] == [Verdict.CONTRADICTED] * 2


def test_a_value_of_another_unit_is_flagged() -> None:
    _, values = values_of({"tenant_days": 3, "tenant_years": 0.25}, [APART.partition("\n")[0]], APART)
    assert [value.verdict is Verdict.SUPPORTED for value in values] == [False, True]


def test_a_value_that_stands_only_outside_the_quotes_is_flagged() -> None:
    source = "The fee is 12 euros.\n\nThe lamp burns.\n\nThe tower is 40 metres high.\n\nIt was built of stone."
    _, values = values_of({"height": 40}, ["The fee is 12 euros."], source)
    assert values[0].verdict is Verdict.UNSUPPORTED
    assert values[0].reason == "it stands in no quoted passage"


def test_without_quotes_every_value_is_flagged() -> None:
    _, values = values_of({"fee": 12}, [], "The fee is 12 euros.")
    assert [(value.verdict, value.reason) for value in values] == [
        (Verdict.UNSUPPORTED, "the answer quotes no passage to look in")
    ]


def test_a_long_text_is_checked_like_a_claim() -> None:
    source = "The deposit is paid back within thirty days after the keys were returned to the office."
    right = "The deposit is paid back within thirty days after the keys were returned."
    wrong = "Elephants in the garden drink purple lemonade every Sunday before breakfast."
    _, values = values_of({"summary": right, "note": wrong}, [source], source)
    assert [value.verdict is Verdict.SUPPORTED for value in values] == [True, False]


# ---- leaves -----------------------------------------------------------------------------------------------------------


def test_a_null_an_empty_text_and_a_constant_say_nothing() -> None:
    schema = {"properties": {"kind": {"const": "lease"}, "one": {"enum": ["a"]}, "two": {"enum": ["a", "b"]}}}
    data = {"kind": "lease", "one": "a", "two": "b", "gone": None, "empty": "", "list": [], "zero": 0, "no": False}
    assert [leaf.path for leaf in leaves(data, schema)] == ["$.two", "$.zero", "$.no"]


def test_free_paths_are_left_out_with_all_below_them() -> None:
    data = {"rank": 1, "items": [{"rank": 1, "price": 2}, {"rank": 2, "price": 3}], "meta": {"score": 1}}
    paths = [leaf.path for leaf in leaves(data, {}, ("$.rank", "$.items[*].rank", "meta"))]
    assert paths == ["$.items[0].price", "$.items[1].price"]


def test_a_leaf_has_the_words_of_its_path_and_of_its_schema() -> None:
    schema = {
        "properties": {"noticePeriod": {"$ref": "#/$defs/period"}},
        "$defs": {"period": {"allOf": [{"properties": {"HTTPCode": {"description": "months of notice"}}}]}},
    }
    (leaf,) = leaves({"noticePeriod": {"HTTPCode": 3}}, schema)
    assert (leaf.names, leaf.described) == (("notice", "period", "http", "code"), "months of notice")


# ---- the outcome ------------------------------------------------------------------------------------------------------


def outcome_of(data: dict[str, Any], **config: Any) -> tuple[Outcome, tuple[str, ...]]:
    request = hostile.request(output_schema=OPEN, **config)
    text = hostile.segments((hostile.TENANT, 1), data=data)
    completion = hostile.completion(hostile.Reply(text))
    processed = postprocess(request, render(request, completion.protocol), completion)
    job: Any = type("Job", (), {"request": request, "round": 0, "correction": None})
    decision = decide_outcome(CheckedAnswer(job, completion, processed, ground(request, processed)), processed)
    return decision.outcome, decision.reasons


def test_a_value_from_nowhere_makes_the_answer_partial_and_names_its_path() -> None:
    assert outcome_of({"tenant_months": 3}) == (Outcome.ANSWERED, ())
    outcome, reasons = outcome_of({"tenant_months": 99})
    assert outcome is Outcome.PARTIAL
    assert reasons == ("1 of 1 values of the object are not in the quoted evidence: $.tenant_months",)
    assert outcome_of({"tenant_months": 99}, on_ungrounded="reject")[0] is Outcome.REJECTED
    assert outcome_of({"tenant_months": 99}, require_grounding=False)[0] is Outcome.ANSWERED
    assert outcome_of({"tenant_months": 99}, free_values=("$.tenant_months",))[0] is Outcome.ANSWERED


# ---- ready-made objects -----------------------------------------------------------------------------------------------

LEASE = (
    "The notice period for the tenant is three months. The landlord has a notice period of six months. Pets are not"
    " allowed. The rent may rise once a year, by 4% at most."
)


def ready_made(name: str, data: dict[str, Any], **config: Any) -> dict[str, Verdict]:
    """The verdicts on a ready-made object, by path."""
    request = JobRequest(query="?", context=({"content": LEASE},), config={"output_schema": name, **config})
    completion = hostile.completion(hostile.Reply(hostile.segments((hostile.TENANT, 1), data=data)))
    processed = postprocess(request, render(request, completion.protocol), completion)
    return {value.path: value.verdict for value in ground(request, processed).values}


def test_each_sentence_of_a_comparison_is_a_claim() -> None:
    data = {
        "similarities": ["The landlord has a notice period of six months.", "Mars has two moons."],
        "differences": ["The notice period for the tenant is nine months."],
        "contradictions": ["Pets are allowed."],
        "conclusion": "The rent may rise once a year.",
    }
    assert ready_made("ComparisonResult", data) == {
        "$.similarities[0]": Verdict.SUPPORTED,
        "$.similarities[1]": Verdict.UNDECIDED,
        "$.differences[0]": Verdict.CONTRADICTED,
        "$.contradictions[0]": Verdict.CONTRADICTED,
        "$.conclusion": Verdict.SUPPORTED,
    }
    assert "$.conclusion" not in ready_made("ComparisonResult", data, free_values=("$.conclusion",))


def test_facts_are_claims_and_open_points_are_flagged_only_where_a_source_says_them() -> None:
    data = {
        "confidence": 0.99,
        "key_facts": [hostile.TENANT, "The deposit is ten monthly rents."],
        "limitations": [
            "The sources do not say whether parking is included.",
            "Parking is not covered.",
            "The sources do not say that the landlord has a notice period of six months.",
        ],
    }
    assert ready_made("AnswerWithSources", data) == {
        "$.key_facts[0]": Verdict.SUPPORTED,
        "$.key_facts[1]": Verdict.UNDECIDED,
        "$.limitations[2]": Verdict.CONTRADICTED,
    }
