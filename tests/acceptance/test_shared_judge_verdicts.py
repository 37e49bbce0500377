"""Two workers, one after the other, and a judge over HTTP that counts: equal claims of a batch are one call."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.acceptance.conftest import System
from tests.deadlines import scale_to_load
from tests.providers import KEY
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub

QUOTES = (
    "lorries carry the paper of the desk to the villages of the valley before dawn",
    "the editor in chief reads every page of the morning edition aloud twice",
)
CLAIMS = (
    "The villages in the valley get the paper of the desk by lorry while it is still dark.",
    "Each page of the morning paper is read out two times by the chief editor.",
)
SOURCE = f"The desk is large. Each night {QUOTES[0]}. After supper {QUOTES[1]}. Nobody pays for that."


def answer(*claims: str, due: bool) -> dict[str, Any]:
    later = {} if due else {"scheduled_at": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    config = {"checkers": ["structure", "lexical", "judge"]}
    return {"response": " ".join(claims), "context": [SOURCE], "config": config, **later}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(JUDGE, "truth", dict(zip(CLAIMS, QUOTES, strict=True)))
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        yield stub


def now_due(system: System, batch: UUID, first: int, last: int) -> None:
    system.rows(
        """UPDATE job SET scheduled_at = nightdesk_now() WHERE batch_id = %s AND position BETWEEN %s AND %s
           RETURNING id""",
        batch, first, last,
    )  # fmt: skip


def test_equal_claims_of_a_batch_are_judged_once_across_workers(system: System, stub: Stub) -> None:
    same = [answer(CLAIMS[0], due=position == 0) for position in range(20)]
    more = [answer(*reversed(CLAIMS), due=False) for _ in range(10)]
    batch, ids = system.submit([*same, *more])
    first = system.start_worker(judge="openai", provider="extractive")
    system.until_final(1)
    first.send_signal(signal.SIGTERM)
    first.wait(scale_to_load(30))
    assert len(stub.requests) == 1

    # A process that never asked: it has it from the ledger.
    system.start_worker(judge="openai", provider="extractive")
    now_due(system, batch, 1, 19)
    system.until_final(20)
    assert len(stub.requests) == 1

    # One claim more: its jobs ask about that alone, once.
    now_due(system, batch, 20, 29)
    system.until_final(30)
    assert len(stub.requests) == 2
    second_request = str(stub.requests[1].json)
    assert CLAIMS[1] in second_request
    assert CLAIMS[0] not in second_request

    # Another batch hears nothing of it.
    system.submit([answer(CLAIMS[0], due=True)])
    system.until_final(31)
    assert len(stub.requests) == 3

    claims = system.rows(
        """SELECT j.position, j.outcome, j.cost_usd, c ->> 'text', c ->> 'verdict', c ->> 'checker',
                  (c #>> '{evidence,0,start}')::int, (c #>> '{evidence,0,end}')::int, c #>> '{reused_from,job_id}'
           FROM job j JOIN generation_record g ON g.job_id = j.id, jsonb_array_elements(g.grounding -> 'claims') c
           WHERE j.batch_id = %s ORDER BY 1""",
        batch,
    )
    assert len(claims) == 40
    for position, outcome, _, text, *judged, start, end, reused_from in claims:
        assert (outcome, *judged) == ("answered", "supported", "judge")
        assert SOURCE[start:end] == QUOTES[CLAIMS.index(text)]
        assert (reused_from == str(ids[0])) is (text == CLAIMS[0] and position > 0)
    paid = {position for position, _, cost, *_ in claims if cost}
    assert len(paid) == 2
    assert system.scalar("SELECT count(*) FROM attempt") == 3
