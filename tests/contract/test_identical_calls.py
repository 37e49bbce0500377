"""Which calls of a provider are identical: those that say the same, whoever asks; over every provider there is."""

from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.job import JobRequest
from tasks.calls.response_cache import share_key
from tasks.ports import Provider
from tests.providers import EVERY, OVER_HTTP, Kind, plan, question, using
from tests.stub.server import Stub

NOWHERE = Stub(url="http://127.0.0.1:1")
"""Nothing is sent."""

every = pytest.mark.parametrize("kind", EVERY, ids=str)


def keys(provider: Provider, *requests: JobRequest) -> list[bytes]:
    async def planned(provider: Provider) -> list[bytes]:
        return [share_key("desk", plan(provider, request)) for request in requests]

    return using(provider, planned)


@every
def test_ids_and_times_make_no_difference(kind: Kind) -> None:
    producers_own: dict[str, Any] = {
        "custom_id": "c",
        "message_id": "m",
        "idempotency_key": "k",
        "retrieval_record_id": "r",
        "trace_id": "t",
        "request_id": "q",
        "metadata": {"from": "elsewhere"},
        "priority": 9,
        "deadline": datetime(2030, 1, 1, tzinfo=UTC),
    }
    once = question()

    first, second = keys(kind.at(NOWHERE), once, once.model_copy(update=producers_own))

    assert first == second


@every
def test_options_of_check_and_rendering_make_no_difference(kind: Kind) -> None:
    elsewise = question(citation_style="footnote", checkers=("structure",), on_ungrounded="reject", timeout_s=9.0)

    first, second = keys(kind.at(NOWHERE), question(), elsewise)

    assert first == second


@every
@pytest.mark.parametrize(
    "changed",
    [
        {"query": "When does the archive close?"},
        {"context": question().context[:1]},
        {"system_instructions": "Be brief."},
        {"conversation_history": (("user", "Hello."),)},
        {"config": question(output_format="bullets").config},
        {"config": question(prompt_version="1").config},
    ],
    ids=["query", "sources", "instructions", "conversation", "format", "version of the prompt"],
)
def test_content_for_the_model_makes_a_difference(kind: Kind, changed: dict[str, Any]) -> None:
    first, second = keys(kind.at(NOWHERE), question(), question().model_copy(update=changed))

    assert first != second


@pytest.mark.parametrize("kind", OVER_HTTP, ids=str)
def test_so_do_parameters_the_model_and_where_it_is(kind: Kind) -> None:
    here = keys(kind.at(NOWHERE), question(), question(max_tokens=77), question(model="another"))
    (elsewhere,) = keys(kind.at(NOWHERE, base_url="http://127.0.0.1:2/v1"), question())

    assert len({*here, elsewhere}) == 4
