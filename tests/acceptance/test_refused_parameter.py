"""The jobs of one tenant set what the model refuses, and nobody else is answered meanwhile: they fail alone."""

from tests.acceptance.conftest import System, questions
from tests.stub import faults
from tests.stub.server import running_stub

REFUSED = 6


def test_a_parameter_that_jobs_set_themselves_stops_no_other_tenant(system: System) -> None:
    with running_stub() as stub:
        refusal = faults.openai_error(400, "unsupported_value", "Unsupported parameter: 'temperature'")
        stub.then(*[refusal] * REFUSED)
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        system.submit([{**job, "config": {"temperature": 0.2}} for job in questions(REFUSED)], tenant="careless")
        system.start_worker(provider="mine", providers=providers)
        system.until_final(REFUSED)
        system.submit(questions(1), tenant="other")
        system.until_final(REFUSED + 1)

    assert system.rows("SELECT tenant, state, count(*) FROM job GROUP BY 1, 2 ORDER BY 1") == [
        ("careless", "failed", REFUSED),
        ("other", "completed", 1),
    ]
    assert system.rows("SELECT * FROM lane_pause") == []
    (message,) = system.rows("SELECT DISTINCT failure ->> 'message' FROM attempt WHERE failure IS NOT NULL")[0]
    assert "refuses 'temperature', which the job sets" in message
