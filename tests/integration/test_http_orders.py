"""Orders over HTTP to what was accepted: a batch pauses and goes on, jobs run again, people judge answers and export it."""

import asyncio
from typing import Any

import httpx2
import orjson
import pytest

from schemas.access import Role
from tests.http_service import Door, running_service
from tests.integration.test_http_pages import ABSENT, ANSWER, CLAIM, SOURCE, field, new_night
from tests.integration.test_http_tenants import make_key
from tests.servers import Servers
from worker.operations import label_changes

LINES = [{"query": f"Question {n}?", "context": ["It opens at nine."], "custom_id": f"q{n}"} for n in range(3)]


def status(door: Door, batch: Any) -> dict[str, Any]:
    return dict(door.http.get(f"/v1/batches/{batch}").json())


def test_a_batch_pauses_and_goes_on(door: Door) -> None:
    batch = door.submit(*LINES)["batch_id"]

    assert door.http.post(f"/v1/batches/{batch}/pause").json() == {"paused": 3}
    paused = status(door, batch)
    assert (paused["paused"], paused["held"], paused["states"]) == (True, {"batch_paused": 3}, {"scheduled": 3})
    assert door.http.post(f"/v1/batches/{batch}/pause").json() == {"paused": 0}
    assert door.http.post(f"/v1/batches/{batch}/resume").json() == {"resumed": 3}
    going = status(door, batch)
    assert (going["paused"], going["held"], sum(going["states"].values())) == (False, {}, 3)
    assert door.http.post(f"/v1/batches/{batch}/resume").json() == {"resumed": 0}
    job = door.http.get(f"/v1/batches/{batch}/jobs/q0").json()["job_id"]
    events = door.http.get(f"/v1/jobs/{job}/record").json()["events"]
    assert {event["actor"] for event in events} == {"http:local"}


def test_a_batch_pauses_and_goes_on_from_its_page(door: Door) -> None:
    batch = door.submit(*LINES)["batch_id"]
    page = f"/view/batches/{batch}"
    form = {"token": field(door.http.get(page), "token")}

    assert "Resume this batch" not in door.http.get(page).text
    assert door.http.post(f"{page}/pause", data=form).headers["location"] == page
    assert status(door, batch)["held"] == {"batch_paused": 3}
    paused = door.http.get(page).text
    assert ("Resume this batch" in paused, "Pause this batch" in paused) == (True, False)
    assert door.http.post(f"{page}/resume", data=form).headers["location"] == page
    assert status(door, batch)["held"] == {}
    assert door.http.post(f"{page}/pause", data={"token": "0" * 64}).status_code == 403
    door.http.post(f"/v1/batches/{batch}/cancel")
    assert "Pause this batch" not in door.http.get(page).text


def test_jobs_run_again_by_cause_all_or_one(door: Door) -> None:
    night = asyncio.run(new_night(door, door.service.settings.tenant))
    waiting = door.http.post(f"/v1/jobs/{night.jobs[4]}/retry")
    assert (waiting.status_code, waiting.json()["type"]) == (409, "urn:nightdesk:problem:not-retryable")
    retry = f"/v1/batches/{night.batch}/retry"

    assert door.http.post(f"{retry}?cause=authentication").json() == {"retried": 0}
    unknown = door.http.post(f"{retry}?cause=boredom")
    assert (unknown.status_code, unknown.json()["field"]) == (422, "cause.0")
    assert door.http.post(f"{retry}?cause=bad_answer&cause=authentication").json() == {"retried": 1}
    door.http.post(f"/v1/batches/{night.batch}/cancel")
    assert door.http.post(retry).json() == {"retried": 2}
    assert door.http.post(f"/v1/jobs/{night.jobs[0]}/retry").json() == {"retried": 1}
    assert door.http.get(f"/v1/jobs/{night.jobs[0]}").json()["state"] == "scheduled"


def test_a_program_judges_answers_and_reads_the_labels_to_learn_from(door: Door) -> None:
    night = asyncio.run(new_night(door, door.service.settings.tenant))
    worst = f"/v1/jobs/{night.jobs[1]}/labels"

    def post(**label: Any) -> httpx2.Response:
        return door.http.post(worst, json=label)

    first = post(verdict="unsupported", claim=1, note="the source says nine")
    assert (first.status_code, first.json()) == (
        200,
        {
            "job_id": str(night.jobs[1]),
            "run": 1,
            "claim": 1,
            "verdict": "unsupported",
            "by": "local",
            "note": "the source says nine",
        },
    )
    assert post(verdict="contradicted", claim=1).json()["note"] is None, "the newer one of a person replaces the older"
    assert post(verdict=0, by="ada").json()["by"] == "local/ada"
    assert post(verdict="not_checkable", by="eve").status_code == 200

    exported = door.http.get(f"/v1/batches/{night.batch}/labels")
    assert exported.headers["content-type"] == "application/x-ndjson"
    lines = [orjson.loads(line) for line in exported.text.splitlines()]
    assert [(line["by"], line["label"], line.get("claim"), line.get("response")) for line in lines] == [
        ("local", 0, CLAIM.text, None),
        ("local/ada", 0, None, ANSWER),
    ]
    assert lines[0]["sources"] == [SOURCE]


@pytest.mark.parametrize(
    ("label", "status", "field"),
    [
        ({}, 422, "verdict"),
        ({"verdict": "maybe"}, 422, "verdict"),
        ({"verdict": "supported", "claim": 9}, 422, "claim"),
        ({"verdict": "supported", "claim": 0}, 422, "claim"),
        ({"verdict": "supported", "run": 7}, 422, "run"),
        ({"verdict": "supported", "by": "x" * 101}, 422, "by"),
        ({"verdict": "supported", "by": 7}, 422, "by"),
        ({"verdict": "supported", "note": "\x00"}, 422, "note"),
        ({"verdict": "supported", "note": "x" * 2_001}, 422, "note"),
        ([], 422, None),
        ({"verdict": "supported", "note": "x" * 200_000}, 413, None),
        ({"verdict": "supported", "job_id": ABSENT}, 200, None),
    ],
)
def test_a_label_is_refused_by_its_field(door: Door, label: Any, status: int, field: str | None) -> None:
    night = asyncio.run(new_night(door, door.service.settings.tenant))
    answer = door.http.post(f"/v1/jobs/{night.jobs[1]}/labels", json=label)
    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
    labels = door.http.get(f"/v1/jobs/{night.jobs[1]}/record").json()["labels"]
    assert len(labels) == (status == 200), "of the job of the address alone"


def test_the_labels_of_a_job_have_a_bound(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_changes, "MOST_LABELS", 2)
    night = asyncio.run(new_night(door, door.service.settings.tenant))

    def post(person: str) -> int:
        label = {"verdict": "supported", "by": person}
        return door.http.post(f"/v1/jobs/{night.jobs[1]}/labels", json=label).status_code

    assert [post(person) for person in ("ada", "bob", "eve", "ada")] == [200, 200, 422, 200]


def test_a_job_that_is_not_final_takes_no_label(door: Door) -> None:
    night = asyncio.run(new_night(door, door.service.settings.tenant))
    answer = door.http.post(f"/v1/jobs/{night.jobs[4]}/labels", json={"verdict": "supported"})
    assert (answer.status_code, answer.json()["field"]) == (422, "job_id")


def test_no_key_labels_in_the_name_of_another(servers: Servers, door: Door) -> None:
    with (
        servers.database() as url,
        running_service(url, servers.redis_url, door.service.settings.home, loopback=False) as closed,
    ):
        key = make_key(url, "eve", "acme", Role.REVIEW)
        night = asyncio.run(new_night(closed, "acme"))
        answer = closed.http.post(
            f"/v1/jobs/{night.jobs[1]}/labels",
            json={"verdict": "supported", "by": "ada"},
            headers={"Authorization": f"Bearer {key}"},
        )
    assert answer.json()["by"] == "eve/ada"
