"""OpenAI's Decisions API through its real SDK: what is sent, what of an answer is kept, what it costs, how it fails."""

import asyncio
import hashlib
import logging
from decimal import Decimal
from typing import Any

import openai
import orjson
import pytest

from schemas.failure import FailureKind as K
from schemas.generation import Lane
from schemas.job import JobRequest, Sampling
from schemas.model_call import FinishReason, Prompt, SourcePart, Usage
from tasks.errors import ProviderError
from tasks.grounding.checkers import CheckedClaim
from tasks.grounding.judge.plan import PROBABILITIES, Selection, ask, render_decision
from tasks.grounding.judge.reply import read_probabilities
from tasks.ports import Answered, Call, Provider
from tasks.text.sentences import Span
from tests.contract.test_provider_failures import leaks
from tests.providers import DECISIONS, KEY, OPENS, question, using
from tests.stub import faults
from tests.stub.faults import Act, openai_error, raw
from tests.stub.judge import JUDGE
from tests.stub.server import Stub

STATEMENTS = (OPENS, "The desk closes at noon.", "Mars has two moons.")


@pytest.fixture
def stub(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(JUDGE, "truth", {OPENS: OPENS})
    return stub


def posed(request: JobRequest, *statements: str) -> tuple[Selection, Prompt]:
    claims = [CheckedClaim(text, Span(0, len(text))) for text in statements]
    place = SourcePart(source_index=0, start=0, end=len(OPENS))
    selection = ask(
        claims, range(len(statements)), [[place]] * len(statements), [[place]] * len(statements), PROBABILITIES
    )
    return selection, render_decision(request, selection)


def decide(
    stub: Stub, *statements: str, request: JobRequest | None = None, **target: Any
) -> tuple[Call, Answered, list[float | None]]:
    """Plan and call once; the call, its answer, and the probability of each claim as the judge's layer reads it."""
    request = request or question()
    selection, prompt = posed(request, *(statements or STATEMENTS))

    async def work(provider: Provider) -> tuple[Call, Answered]:
        call = provider.plan(request, prompt)
        return call, await provider.call(call)

    call, answered = using(DECISIONS.at(stub, **target), work)
    scores = read_probabilities(answered.completion.text, request, selection)
    return call, answered, [score.score for score in scores]


def fails(stub: Stub, *statements: str, request: JobRequest | None = None, **target: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        decide(stub, *statements, request=request, **target)
    return raised.value


# ---- what is sent ----------------------------------------------------------------------------------------------


def test_the_body_is_the_one_that_the_sdks_own_method_sends(stub: Stub) -> None:
    call, _, _ = decide(stub)
    texts = call.prompt.snapshot.texts([source.content for source in call.request.context])

    async def send_by_sdk() -> None:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{stub.url}/v1", max_retries=0) as client:
            messages: list[Any] = [{"type": "message", "role": role.value, "content": text} for role, text in texts]
            await client.decisions.create(
                model="gpt-6-luna",
                input=messages,
                questions=[
                    {"type": "predicate", "name": str(number), "instructions": text}
                    for number, text in enumerate(call.prompt.snapshot.questions, start=1)
                ],
            )

    asyncio.run(send_by_sdk())
    first_request, other = stub.requests
    assert (first_request.path, first_request.json) == ("/v1/decisions", other.json)
    assert first_request.headers["authorization"] == f"Bearer {KEY}"
    assert call.request_hash == hashlib.sha256(first_request.body).digest()
    assert [message["role"] for message in first_request.json["input"]] == ["system", "user"]


def test_nothing_is_sent_that_it_does_not_know(stub: Stub) -> None:
    request = question(temperature=0.2, sampling=Sampling(seed=7), reasoning_effort="low")
    call, answered, _ = decide(stub, request=request, service_tier="flex")

    assert set(stub.requests[0].json) == {"model", "input", "questions"}
    assert set(call.parameters_dropped) == {"temperature", "seed", "reasoning_effort", "service_tier"}
    assert call.parameters_sent == {"model": "gpt-6-luna", "questions": "3, of the type predicate"}
    assert answered.completion.snapshot.parameters_dropped == call.parameters_dropped


def test_it_answers_no_question_of_a_job(stub: Stub) -> None:
    provider = DECISIONS.at(stub)
    with pytest.raises(ProviderError, match="writes no answers: name it as a judge") as raised:
        provider.protocol(question().config)
    assert raised.value.kind is K.CONFIGURATION
    without = posed(question(), *STATEMENTS)[1]
    without = without.model_copy(update={"snapshot": without.snapshot.model_copy(update={"questions": ()})})
    with pytest.raises(ProviderError, match="writes no answers"):
        provider.plan(question(), without)
    asyncio.run(provider.close())


def test_no_more_questions_go_into_a_call_than_it_takes(stub: Stub) -> None:
    request = question()
    _, prompt = posed(request, *STATEMENTS)
    snapshot = prompt.snapshot.model_copy(update={"questions": ("Is it?",) * 401})
    provider = DECISIONS.at(stub)
    with pytest.raises(ProviderError, match="takes 400 questions a call, not 401"):
        provider.plan(request, prompt.model_copy(update={"snapshot": snapshot}))
    with pytest.raises(ProviderError, match="'provider_batch'"):
        provider.plan(question(lane=Lane.PROVIDER_BATCH), prompt)
    asyncio.run(provider.close())
    assert len(decide(stub, *(f"The desk opens at {hour}." for hour in range(400)))[2]) == 400


# ---- what comes back -------------------------------------------------------------------------------------------


def test_a_probability_for_each_claim_and_what_it_cost(stub: Stub) -> None:
    call, answered, scores = decide(stub)

    completion = answered.completion
    assert scores == [0.9, 0.1, 0.1]
    assert completion.finish_reason is FinishReason.STOP
    assert completion.usage == Usage(
        input_tokens=1200, output_tokens=3, cached_input_tokens=200, cache_write_tokens=100
    )
    # $0.10 a million tokens sent, cached or not, and nothing for what comes back.
    assert completion.cost_usd == Decimal("0.00012")
    assert call.reserve_usd is not None
    assert call.reserve_usd >= Decimal(len(call.body)) / 2 * Decimal("1E-7")
    snapshot = completion.snapshot
    assert (snapshot.provider, snapshot.model_asked, snapshot.model_returned) == (
        "openai_decisions", "gpt-6-luna", "gpt-6-luna",
    )  # fmt: skip
    assert snapshot.endpoint == stub.requests[0].headers["host"] + "/v1/decisions"
    assert (snapshot.protocol, snapshot.request_id is None) == (None, False)
    assert answered.raw.startswith(b'{"model":"gpt-6-luna","answers":[')
    assert KEY not in completion.model_dump_json()


def test_an_unknown_model_has_no_price(stub: Stub) -> None:
    call, answered, _ = decide(stub, model="of-ones-own")
    assert (call.reserve_usd, answered.completion.cost_usd) == (None, None)


def answering(*answers: Any) -> Act:
    return faults.changed(lambda whole: whole.update(answers=list(answers)))


def predicate(name: object, probability: object) -> dict[str, object]:
    return {"type": "predicate", "name": name, "probability": probability}


@pytest.mark.parametrize(
    ("answers", "scores"),
    [
        ([predicate("3", 0.3), predicate("1", 0.1), predicate("2", 0.2)], [0.1, 0.2, 0.3]),
        ([predicate(None, 0.1), predicate(None, 0.2), predicate(None, 0.3)], [0.1, 0.2, 0.3]),
        ([predicate(None, 0.1), predicate("2", 0.2)], [None, 0.2, None]),
        ([predicate("1", 0.1), predicate("2", 0.2), {"type": "refusal", "name": "3"}], [0.1, 0.2, None]),
        ([predicate("1", 0), predicate("2", 1), predicate("2", 0.5), predicate("9", 0.5)], [0.0, None, None]),
        ([predicate("x", 0.1), predicate(4, 0.2), {"type": "score", "name": "3", "score": 1}], [None] * 3),
        ([predicate("1", 0.1), predicate("2", 0.2), predicate("3", 1.5)], [None] * 3),
        ([predicate("1", 0.1), predicate("2", None), predicate("3", 0.3)], [None] * 3),
        ([predicate("1", float("nan")), predicate("2", 0.2)], [None] * 3),
        ([], [None] * 3),
    ],
)
def test_answers_find_their_claims_by_name_or_by_place(
    answers: list[Any], scores: list[float | None], stub: Stub
) -> None:
    stub.then(answering(*answers))
    _, answered, read = decide(stub)

    assert read == scores
    # Read or not, it was paid for and is kept.
    assert answered.completion.cost_usd == Decimal("0.00012")


def test_a_call_of_which_everything_was_declined_is_a_refusal(stub: Stub) -> None:
    stub.then(answering(*({"type": "refusal", "name": str(number)} for number in (1, 2, 3))))
    _, answered, read = decide(stub)

    assert (answered.completion.finish_reason, read) == (FinishReason.REFUSAL, [None] * 3)
    assert answered.completion.refusal == "declined every question"


# ---- how it fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (faults.reset, K.UNKNOWN_OUTCOME),
        (raw(b"[]"), K.BAD_ANSWER),
        (raw(b"{}"), K.BAD_ANSWER),
        (raw(b'{"answers": {"1": 0.5}, "usage": null}'), K.BAD_ANSWER),
        (raw(b'{"answers": [0.5], "usage": null}'), K.BAD_ANSWER),
        (raw(b'{"answers": [{"type": "predicate", "name": "1", "probability": "\\ud800"}]}'), K.BAD_ANSWER),
        (raw(b'{"answers": [{"type": "predicate", "name": "' + b"9" * 5000 + b'", "probability": 1}]}'), K.BAD_ANSWER),
        (openai_error(400, "context_length_exceeded"), K.CONTEXT_EXCEEDED),
        (openai_error(401, "invalid_api_key"), K.AUTHENTICATION),
        (openai_error(429, "rate_limit_exceeded", retry_after="2"), K.RATE_LIMITED),
    ],
)
def test_every_failure_has_its_kind(act: Act, expected: K, stub: Stub) -> None:
    stub.then(act)
    error = fails(stub)
    assert (error.kind, len(stub.requests)) == (expected, 1), error
    assert error.retry_after_s == (2.0 if expected is K.RATE_LIMITED and error.status_code == 429 else None)


def test_no_key_in_any_message_or_log(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    stub.then(faults.echo_key, raw(orjson.dumps({"you sent": KEY})), openai_error(500, "server_error", KEY * 40))
    with caplog.at_level(logging.INFO):
        messages = [str(fails(stub)) for _ in range(3)]
    assert not leaks("\n".join([*messages, caplog.text]))
