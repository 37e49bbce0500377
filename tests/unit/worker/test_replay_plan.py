"""The new jobs of a replay, read back from the file of its plan as they were added."""

from dataclasses import replace
from io import BytesIO
from uuid import uuid4

from tasks.ports import Replay
from tests.builders import make_batch, make_jobs, make_request
from worker.operations.replay import ReplayPlan


def test_a_plan_keeps_that_the_price_of_a_job_is_not_known() -> None:
    batch = make_batch()
    jobs = [
        replace(job, tenant=batch.tenant, replay=Replay(uuid4(), None), unpriced=unpriced)
        for job, unpriced in zip(
            make_jobs(make_request("A?"), make_request("B?")),
            (("config.model", "its price is not known"), None),
            strict=True,
        )
    ]
    plan = ReplayPlan(batch, BytesIO())
    for job in jobs:
        plan.add(job)
    assert list(plan.jobs()) == jobs, "a tenant with a budget is refused the first one"
