"""The door: what is accepted, what is refused, and how that is said."""

import asyncio
import hashlib
from typing import Any
from uuid import uuid4

import orjson
import pytest

from schemas.states import Step
from tasks.errors import InputError
from tasks.submit import Submitted, canonical, new_batch, new_job, parse_request, submit
from tests.lent_ledger import LentLedger

GOOD: dict[str, Any] = {"query": "When?", "context": ["It happens at noon."]}


def refused(raw: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        canonical(parse_request(raw)[0])
    return caught.value


def test_unknown_keys_go_to_metadata_with_one_warning() -> None:
    request, warnings = parse_request({**GOOD, "ticket": 7, "team": "a", "metadata": {"x": 1}})

    assert request.metadata == {"ticket": 7, "team": "a", "x": 1}
    assert warnings == ["unknown keys were put into metadata: 'ticket', 'team'"]


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        ([1], None, "must be a JSON object, this is a list"),
        ({"query": "  ", "context": ["x"]}, None, "'query' is missing or empty"),
        ({"text": "Why so?", "context": ["x"]}, None, "'query' is missing or empty; is it 'text'?"),
        ({"query": "q", "context": [{"title": "x"}]}, "context.0.content", "--map sources.content=title"),
        ({**GOOD, "config": {"max_token": 5}}, "config.max_token", "unknown field; check its spelling"),
        ({**GOOD, "config": {"mode": "ground"}}, "config.mode", "'simple'"),
        ({**GOOD, "deadline": "2026-11-22T08:00:00"}, "deadline", "no time zone"),
        ({**GOOD, "query": "a\x00b"}, "query", "U+0000 at position 1"),
        ({**GOOD, "metadata": {"a": {"b": ["x\x00"]}}}, "metadata.a.b.0", "U+0000"),
        ({"query": "q", "context": ["ok", "bad \udfff"]}, "context.1.content", ""),
        ({"query": "q", "context": ["x" * 1_000_001]}, "context.0.content", "at most 1,000,000 characters"),
    ],
)
def test_bad_input_names_its_field(raw: Any, field: str | None, message: str) -> None:
    error = refused(raw)

    assert error.field == field
    assert message in str(error)
    if field is not None:
        assert str(error).startswith(field)


def test_a_typo_in_the_defaults_is_an_error_of_the_batch() -> None:
    with pytest.raises(InputError, match="max_token"):
        new_batch({"defaults": {"max_token": 5}}, tenant="t")


def test_the_hash_sees_content_not_spelling() -> None:
    plain = canonical(parse_request(GOOD)[0])[1]
    spelt_out = canonical(parse_request({**GOOD, "config": {"mode": "grounded"}, "priority": 0})[0])[1]
    other = canonical(parse_request({**GOOD, "query": "Where?"})[0])[1]

    assert plain == spelt_out != other


@pytest.mark.parametrize("config", [None, {}, {"mode": "simple"}, {"max_tokens": 7, "sampling": {"stop": ["x"]}}])
def test_the_canonical_form_is_that_of_the_request_as_a_whole(config: dict[str, Any] | None) -> None:
    raw = GOOD if config is None else {**GOOD, "config": config}
    for _ in range(2):  # anew, and with the config of the job before
        request, _ = parse_request(raw)
        stored, request_hash = canonical(request)

        assert orjson.loads(stored) == request.model_dump(mode="json")
        whole = orjson.dumps(request.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS)
        assert request_hash == hashlib.sha256(whole).digest()


def test_an_escaped_backslash_is_no_null_character() -> None:
    request, _ = parse_request({**GOOD, "query": "the text \\u0000 is six characters"})

    assert b"\\\\u0000" in canonical(request)[0]


def test_a_job_with_an_answer_begins_at_its_check() -> None:
    request, _ = parse_request({"response": "It happens at noon.", "context": ["It happens at noon."]})

    assert new_job(request, position=0, tenant="t").step is Step.CHECK
    read, _ = parse_request({**request.model_dump(), "config": {"checkers": ["local"]}})
    assert new_job(read, position=0, tenant="t").step is Step.LOCAL
    question, _ = parse_request({**GOOD, "config": {"checkers": ["local"]}})
    assert new_job(question, position=0, tenant="t").step is Step.GENERATE


def test_good_jobs_are_accepted_and_bad_ones_named() -> None:
    submitted = asyncio.run(
        submit(LentLedger().submission, [GOOD, {"query": ""}, {**GOOD, "custom_id": "a"}, {**GOOD, "custom_id": "a"}, 7],
               batch=new_batch(None, tenant="t"))
    )  # fmt: skip

    assert [job_id is not None for job_id in submitted.job_ids] == [True, False, True, False, False]
    assert [(bad.position, bad.field) for bad in submitted.refused] == [(1, None), (3, "custom_id"), (4, None)]
    assert submitted.receipt is not None
    assert len(submitted.receipt.hints) == 1


@pytest.mark.parametrize("refused_field", ["message_id", "job_id"])
def test_a_message_id_that_another_job_of_the_message_has_is_named(refused_field: str) -> None:
    own = str(uuid4())
    jobs = [{**GOOD, "job_id": own}, {**GOOD, "message_id": own}, {**GOOD, "message_id": "m"}]

    submitted = asyncio.run(
        submit(
            LentLedger().submission,
            [*(jobs[1::-1] if refused_field == "job_id" else jobs[:2]), jobs[2], jobs[2]],
            batch=new_batch({}, tenant="t"),
        )
    )

    assert [(bad.position, bad.field) for bad in submitted.refused] == [
        (1, refused_field),
        (3, "message_id"),
    ]
    assert [job_id is None for job_id in submitted.job_ids] == [False, True, False, True]


def test_an_own_id_can_be_submitted_again_but_not_for_something_else() -> None:
    ledger, job_id = LentLedger(), str(uuid4())

    async def twice(second: dict[str, Any]) -> Any:
        await submit(ledger.submission, [{**GOOD, "job_id": job_id}], batch=new_batch(None, tenant="t"))
        return await submit(ledger.submission, [{**second, "job_id": job_id}], batch=new_batch(None, tenant="t"))

    assert [str(job_key) for job_key in asyncio.run(twice(GOOD)).job_ids] == [job_id]
    other = asyncio.run(twice({**GOOD, "query": "Where?"}))
    (refused,) = other.refused
    assert (refused.position, refused.field) == (0, "job_id"), "the field that was sent"
    assert "with a different request" in refused.message


def test_one_job_in_conflict_refuses_no_other() -> None:
    ledger, job_id = LentLedger(), str(uuid4())

    async def scenario() -> tuple[Submitted, Submitted]:
        await submit(ledger.submission, [{**GOOD, "job_id": job_id}], batch=new_batch(None, tenant="t"))
        many = [{**GOOD, "query": f"When is {n}?"} for n in range(100)]
        many[40]["job_id"] = job_id
        mixed = await submit(ledger.submission, many, batch=new_batch(None, tenant="t"))
        return mixed, await submit(ledger.submission, [{**GOOD, "job_id": job_id}], batch=new_batch(None, tenant="t"))

    mixed, again = asyncio.run(scenario())
    assert [(problem.position, problem.field) for problem in mixed.refused] == [(40, "job_id")]
    assert [position for position, job_key in enumerate(mixed.job_ids) if job_key is None] == [40]
    assert [str(job_key) for job_key in again.job_ids] == [job_id]
    assert not again.to_json()["created"]
    assert "nothing is new" in again.warnings[0]


def test_an_id_that_is_no_uuid_is_refused() -> None:
    submitted = asyncio.run(
        submit(LentLedger().submission, [{**GOOD, "job_id": "7"}], batch=new_batch(None, tenant="t"))
    )

    assert submitted.refused[0].field == "job_id"
    assert submitted.receipt is None
