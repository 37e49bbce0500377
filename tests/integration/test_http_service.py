"""The HTTP service over a real PostgreSQL and Redis: stories that a producer, an operator and an attacker live through."""

import contextlib
import csv
import gzip
import http.client
import multiprocessing
import re
import resource
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import orjson
import psycopg
import pytest

from tests.deadlines import scale_to_load, until
from tests.faults.proxy import running_proxy
from tests.http_service import LINES, Door, body_of, running_service
from tests.servers import Servers
from worker.http import server, service

TEMPLATES = Path(__file__).parents[2] / "examples" / "extensions" / "templates"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with (
        servers.database() as database_url,
        running_service(
            database_url, servers.redis_url, tmp_path_factory.mktemp("home"), templates_dir=TEMPLATES
        ) as door,
    ):
        yield door


def question(number: int, **fields: Any) -> dict[str, Any]:
    return {"query": f"How long is warranty {number}?", "context": [f"Warranty {number} lasts two years."], **fields}


def test_a_job_is_submitted_polled_and_cancelled(door: Door) -> None:
    source = {"content": "At nine.", "relevance_score": 7}
    answer = door.http.post("/v1/jobs", json=question(1, custom_id="a", colour="red", context=[source]))

    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted["created"] is True
    about_scores, unknown = accepted["warnings"]
    assert about_scores.startswith("relevance_score holds numbers above 1")
    assert unknown == "unknown keys were put into metadata: 'colour'"
    assert answer.headers["location"] == f"/v1/jobs/{accepted['job_id']}"
    polled = door.http.get(answer.headers["location"])
    assert (polled.status_code, polled.json()["state"], polled.json()["custom_id"]) == (200, "available", "a")
    assert polled.json()["metadata"] == {"colour": "red"}
    tag = polled.headers["etag"]
    again = door.http.get(answer.headers["location"], headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for same in ("*", tag.removeprefix("W/"), f'"other", {tag.removeprefix("W/")}'):
        assert door.http.get(answer.headers["location"], headers={"If-None-Match": same}).status_code == 304, same
    assert door.http.get(answer.headers["location"], headers={"If-None-Match": 'W/"other"'}).status_code == 200

    cancelled = door.http.post(f"/v1/jobs/{accepted['job_id']}/cancel")
    assert cancelled.json() == {"cancelled": 1}
    assert door.http.post(f"/v1/jobs/{accepted['job_id']}/cancel").json() == {"cancelled": 0}
    final = door.http.get(answer.headers["location"], headers={"If-None-Match": tag})
    assert (final.status_code, final.json()["state"]) == (200, "cancelled")
    record = door.http.get(f"/v1/jobs/{accepted['job_id']}/record").json()
    assert [(event["kind"], event["actor"]) for event in record["events"]] == [("cancel", "http:local")]
    assert record["request"]["query"] == "How long is warranty 1?"


def test_a_poll_waits_for_the_end_and_for_another_version(door: Door) -> None:
    job = door.http.post("/v1/jobs", json=question(2)).json()["job_id"]
    tag = door.http.get(f"/v1/jobs/{job}").headers["etag"]
    assert door.http.get(f"/v1/jobs/{job}?wait=0.3").json()["state"] == "available"
    assert door.http.get(f"/v1/jobs/{job}?wait=0.1", headers={"If-None-Match": tag}).status_code == 304

    answers: list[httpx2.Response] = []

    def wait(headers: dict[str, str]) -> None:
        with httpx2.Client(base_url=door.url, timeout=90) as http:
            answers.append(http.get(f"/v1/jobs/{job}?wait=60", headers=headers))

    pollers = [threading.Thread(target=wait, args=({} if each else {"If-None-Match": tag},)) for each in range(4)]
    for poller in pollers:
        poller.start()
    waiters = door.service.watch._waiters
    assert until(lambda: len(waiters.get(UUID(job), ())) == 4, scale_to_load(30)), "four wait before anything changes"
    door.http.post(f"/v1/jobs/{job}/cancel")
    for poller in pollers:
        poller.join(scale_to_load(30))

    assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(200, "cancelled")] * 4


def test_the_same_idempotency_key_names_the_same_job_or_is_a_conflict(door: Door) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = door.http.post("/v1/jobs", json=question(3), headers=key)
    again = door.http.post("/v1/jobs", json=question(3), headers=key)
    other = door.http.post("/v1/jobs", json=question(4), headers=key)
    both = door.http.post("/v1/jobs", json=question(3, idempotency_key="order-8"), headers=key)

    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == {**first.json(), "created": False}
    assert (other.status_code, other.headers["content-type"]) == (409, PROBLEM)
    assert other.json()["field"] == "idempotency_key"
    assert first.json()["job_id"] in other.json()["detail"]
    assert (both.status_code, both.json()["field"]) == (422, "idempotency_key")
    odd = door.http.post("/v1/jobs", json=question(3, idempotency_key={"a": [1]}), headers=key)
    assert (odd.status_code, odd.json()["field"]) == (422, "idempotency_key")


@pytest.mark.parametrize(
    ("body", "headers", "status", "field"),
    [
        (b'{"query": ""}', {}, 422, None),
        (b'{"query": "q", "context": [{"chunk_id": "c"}]}', {}, 422, "context.0.content"),
        (b'{"query": "q", "belege": ["It is so."]}', {}, 422, "context"),
        (b'{"query": "q", "config": {"provider": "nobody"}}', {}, 422, "config.provider"),
        (b"[]", {}, 422, None),
        (b"{", {}, 400, None),
        (b'{"query": "q"}', {"Content-Type": "text/plain"}, 415, None),
        (b'{"query": "q"}', {"Idempotency-Key": "k" * 300}, 422, "Idempotency-Key"),
    ],
)
def test_a_bad_job_is_answered_with_its_field(
    door: Door, body: bytes, headers: dict[str, str], status: int, field: str | None
) -> None:
    answer = door.http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json", **headers})

    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    problem = answer.json()
    assert problem["status"] == status
    assert problem.get("field") == field
    assert problem["detail"]
    assert problem["type"].startswith("urn:nightdesk:problem:")


def test_a_batch_is_submitted_listed_and_read_with_its_bad_lines(door: Door) -> None:
    lines = [question(1, custom_id="one"), '{"query": 7}', "", question(2, custom_id="two/b"), "{"]
    accepted = door.submit(*lines, name="night", defaults='{"mode": "simple"}')

    assert (accepted["jobs"], accepted["refused"], accepted["created"]) == (2, 2, True)
    assert [(error["line"], error["field"]) for error in accepted["errors"]] == [
        (2, "query"),
        (5, None),
    ]
    batch = accepted["batch_id"]
    status = door.http.get(f"/v1/batches/{batch}").json()
    assert (status["name"], status["states"]) == ("night", {"available": 2})
    results = door.http.get(f"/v1/batches/{batch}/results")
    assert results.headers["content-type"].startswith("application/x-ndjson")
    rows = [orjson.loads(line) for line in results.content.splitlines()]
    assert [(row["position"], row["state"], row["custom_id"]) for row in rows] == [
        (0, "available", "one"),
        (1, "failed", None),
        (3, "available", "two/b"),
        (4, "failed", None),
    ]
    table = door.http.get(f"/v1/batches/{batch}/results?format=csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert f'filename="{batch}.csv"' in table.headers["content-disposition"]
    cells = csv.DictReader(table.content.decode("utf-8-sig").splitlines())
    assert [(row["position"], row["state"], row["failure_kind"]) for row in cells] == [
        ("0", "available", ""),
        ("1", "failed", "invalid_request"),
        ("3", "available", ""),
        ("4", "failed", "invalid_request"),
    ]
    parquet = door.http.get(f"/v1/batches/{batch}/results?format=parquet")
    assert (parquet.status_code, parquet.content[:4], parquet.content[-4:]) == (200, b"PAR1", b"PAR1")
    assert door.http.get(f"/v1/batches/{batch}/jobs/two/b").json()["position"] == 3
    assert door.http.get(f"/v1/batches/{batch}/jobs/0").json()["custom_id"] == "one"
    assert door.http.post(f"/v1/batches/{batch}/cancel").json() == {"cancelled": 2}
    assert door.http.get(f"/v1/batches/{batch}").json()["states"] == {"cancelled": 2}
    report = door.http.get(f"/v1/batches/{batch}/report").json()
    assert report["status"]["states"] == {"cancelled": 2}
    page = door.http.get(f"/v1/batches/{batch}/report", headers={"Accept": "text/html"})
    assert page.text.lower().startswith("<!doctype html>")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_batch_comes_in_pieces_and_packed(door: Door) -> None:
    lines = body_of(question(number) for number in range(1_200))
    packed = gzip.compress(lines[: len(lines) // 2]) + gzip.compress(lines[len(lines) // 2 :])
    pieces = (packed[at : at + 1_000] for at in range(0, len(packed), 1_000))

    answer = door.http.post("/v1/batches", content=pieces, headers=LINES, params={"key": "packed"})
    again = door.http.post("/v1/batches", content=lines, headers={**LINES, "Idempotency-Key": "packed"})
    other = door.http.post("/v1/batches", content=lines[:5_000], headers={**LINES, "Idempotency-Key": "packed"})

    assert (answer.status_code, answer.json()["jobs"]) == (202, 1_200)
    assert (again.status_code, again.json()["batch_id"]) == (200, answer.json()["batch_id"])
    assert other.status_code == 409
    broken = door.http.post("/v1/batches", content=packed[:-9], headers=LINES)
    assert (broken.status_code, broken.json()["title"]) == (400, "Invalid gzip")


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small body have a process of its own."""
    monkeypatch.setattr(service, "LARGE_BYTES", 1_000)


def large_body(count: int = 11) -> bytes:
    """Lines that count as large, with a template of the installation's own; the last one is bad."""
    config = {"prompt_name": "terse"}
    lines = [question(number, custom_id=f"large {number}", config=config) for number in range(count)]
    return body_of([*lines, {"query": 7, "custom_id": "bad"}])


@pytest.mark.usefixtures("small_is_large")
def test_a_large_batch_is_taken_in_by_another_process_with_the_same_answers(door: Door) -> None:
    body, key = large_body(), {**LINES, "Idempotency-Key": "large"}
    answer = door.http.post("/v1/batches", content=body, headers=key)
    again = door.http.post("/v1/batches", content=gzip.compress(body), headers=key)
    other = door.http.post("/v1/batches", content=large_body(12), headers=key)
    strict = door.http.post("/v1/batches", content=body, headers=LINES, params={"strict": "true"})

    accepted = answer.json()
    assert (answer.status_code, accepted["jobs"], accepted["refused"]) == (202, 11, 1)
    assert [(error["line"], error["custom_id"], error["field"]) for error in accepted["errors"]] == [
        (12, "bad", "query")
    ]
    assert (again.status_code, again.json()["batch_id"]) == (200, accepted["batch_id"])
    assert (other.status_code, other.json()["field"]) == (409, "key")
    assert (strict.status_code, strict.json()["errors"][0]["line"]) == (422, 12)
    results = door.http.get(f"/v1/batches/{accepted['batch_id']}/results").text.splitlines()
    assert [orjson.loads(line)["custom_id"] for line in results] == [
        *(f"large {number}" for number in range(11)),
        "bad",
    ]
    assert not list(door.service.uploads.iterdir())


@pytest.mark.usefixtures("small_is_large")
def test_where_no_process_for_a_large_batch_can_start_a_thread_takes_it_in(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(multiprocessing.context.ForkServerProcess, "start", fail)
    assert door.submit(*(question(number) for number in range(11)))["jobs"] == 11


def send_lines(door: Door) -> Callable[[], httpx2.Response]:
    key = {**LINES, "Idempotency-Key": "cut off"}
    return lambda: door.http.post("/v1/batches", content=large_body(), headers=key)


def send_file(door: Door) -> Callable[[], httpx2.Response]:
    """Upload a file as OpenAI's client does; make its batch."""
    lines = [
        {"custom_id": f"f{number}", "method": "POST", "url": "/v1/answers", "body": question(number)}
        for number in range(11)
    ]
    file = door.http.post(
        "/openai/v1/files", files={"file": ("night.jsonl", body_of(lines))}, data={"purpose": "batch"}
    )
    order = {"input_file_id": file.json()["id"], "endpoint": "/v1/answers", "completion_window": "24h"}
    return lambda: door.http.post("/openai/v1/batches", json=order)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize(
    ("make_sender", "remedy"),
    [(send_lines, "same Idempotency-Key"), (send_file, "Create the batch of the same file again")],
)
def test_a_large_batch_cut_off_by_the_end_of_its_process_is_not_there_and_can_be_sent_again(
    door: Door, make_sender: Callable[[Door], Callable[[], httpx2.Response]], remedy: str
) -> None:
    send = make_sender(door)
    answers: list[httpx2.Response] = []
    with psycopg.connect(door.database_url) as holder:
        holder.execute("LOCK TABLE batch IN SHARE MODE")
        sender = threading.Thread(target=lambda: answers.append(send()))
        sender.start()
        waits = "SELECT count(*) FROM pg_locks WHERE relation = 'batch'::regclass AND NOT granted"
        assert until(lambda: holder.execute(waits).fetchone() == (1,), 30)
        (process,) = multiprocessing.active_children()
        process.kill()
        sender.join(30)
    assert not list(door.service.uploads.iterdir())
    again = send()

    assert [answer.status_code for answer in answers] == [503]
    assert remedy in answers[0].text
    if make_sender is send_lines:
        assert (again.status_code, again.json()["created"]) == (202, True)
    else:
        assert (again.status_code, again.json()["request_counts"]["total"]) == (200, 11)


def test_a_batch_without_a_good_line_or_with_strict_is_refused_whole(door: Door) -> None:
    before = len(door.http.get("/v1/batches?limit=100").json()["data"])
    none = door.http.post("/v1/batches", content=b'{"query": ""}\n{', headers=LINES)
    strict = door.http.post(
        "/v1/batches", content=body_of([question(1), "{"]), headers=LINES, params={"strict": "true"}
    )
    empty = door.http.post("/v1/batches", content=b"\n\n", headers=LINES)
    options = door.http.post("/v1/batches?max_cost_usd=much", content=body_of([question(1)]), headers=LINES)

    belege = door.http.post(
        "/v1/batches", content=body_of([{"query": "Why?", "belege": ["It is so."]}] * 120), headers=LINES
    )

    assert [answer.status_code for answer in (none, strict, empty, options, belege)] == [422] * 5
    assert "none of the jobs has sources" in belege.json()["detail"]
    assert "Left over is 'belege'" in belege.json()["detail"]
    assert [error["line"] for error in none.json()["errors"]] == [1, 2]
    assert [error["line"] for error in strict.json()["errors"]] == [2]
    assert options.json()["field"] == "max_cost_usd"
    assert "upload" not in empty.text
    assert len(door.http.get("/v1/batches?limit=100").json()["data"]) == before


def test_batches_are_listed_newest_first_in_pages(door: Door) -> None:
    ids = [door.submit(question(each))["batch_id"] for each in range(3)]
    first = door.http.get("/v1/batches?limit=2").json()
    second = door.http.get("/v1/batches", params={"limit": 1, "cursor": first["next_cursor"]}).json()

    assert [batch["batch_id"] for batch in (*first["data"], *second["data"])] == ids[::-1]
    assert door.http.get("/v1/batches?cursor=xyz").status_code == 422


@pytest.mark.parametrize("unknown_id", ["019d0000-0000-7000-8000-000000000000", "no-id"])
def test_every_address_of_an_unknown_id_answers_the_same(door: Door, unknown_id: str) -> None:
    answers = [
        door.http.request(method, path.format(unknown_id))
        for method, path in (
            ("GET", "/v1/jobs/{}"),
            ("GET", "/v1/jobs/{}/record"),
            ("POST", "/v1/jobs/{}/cancel"),
            ("GET", "/v1/batches/{}"),
            ("GET", "/v1/batches/{}/results"),
            ("GET", "/v1/batches/{}/report"),
            ("POST", "/v1/batches/{}/cancel"),
        )
    ]

    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert {answer.json()["detail"] for answer in answers} == {
        "there is no such job, or this key may not see it; check the id",
        "there is no such batch, or this key may not see it; check the id",
    }


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("GET", "/v1/job", "/v1/jobs"),
        ("POST", "/v1/responses", "/openai/v1/responses"),
        ("POST", "/chat/completions", "/openai/v1/chat/completions"),
        ("GET", "/openai/v1/model", "/openai/v1/models"),
    ],
)
def test_an_unknown_address_is_told_from_an_unknown_id(door: Door, method: str, path: str, named: str) -> None:
    answer = door.http.request(method, path)
    body = answer.json()

    assert answer.status_code == 404
    # A client of OpenAI's shows the reason of an error in OpenAI's form alone.
    message = body["error"]["message"] if named.startswith("/openai/") else body["detail"]
    assert message == f"{method} {path} is an address that nobody serves; is it {named}? All are in /openapi.json"


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("req-17_a.b", True),
        ("a b", False),
        ("", False),
        ('"<', False),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/jobs/none", "/v1/nowhere", "/openai/v1/files", "/view/"])
def test_every_answer_has_the_id_of_its_request(door: Door, path: str, value: str, *, is_kept: bool) -> None:
    answers = [door.http.get(path, headers={"X-Request-Id": value}) for _ in range(2)]
    ids = [answer.headers.get_list("x-request-id") for answer in answers]

    if is_kept:
        assert ids == [[value]] * 2
    else:
        assert [len(each) for each in ids] == [1, 1]
        assert ids[0] != ids[1]
        assert all(each[0].startswith("req_") for each in ids)


def test_unknown_parameters_are_refused_at_every_door(door: Door) -> None:
    document = door.http.get("/openapi.json").json()["paths"]
    doors = [
        (method, path.format_map(defaultdict(lambda: "x")))
        for path, methods in document.items()
        for method in methods
        if path.startswith(("/v1/", "/openai/"))
    ]
    answers = {(method, path): door.http.request(method, path, params={"limmit": 1}) for method, path in doors}

    assert len(doors) > 20
    for place, answer in answers.items():
        assert answer.status_code == (400 if place[1].startswith("/openai/") else 422), (place, answer.text)
        assert "limmit: this address has no such parameter" in answer.text


def test_results_are_filtered_and_come_in_pages(door: Door) -> None:
    question = {"query": "When?", "context": ["At nine."]}
    batch = door.submit(question, {"query": 7}, question, {"query": 8}, question)["batch_id"]

    def positions(**wishes: Any) -> list[int]:
        answer = door.http.get(f"/v1/batches/{batch}/results", params=wishes)
        assert answer.status_code == 200, answer.text
        return [orjson.loads(line)["position"] for line in answer.content.splitlines()]

    assert positions() == [0, 1, 2, 3, 4]
    assert positions(state="failed") == [1, 3]
    assert positions(state="failed", limit=1) == [1]
    assert positions(state="failed", limit=1, after=1) == [3]
    assert positions(limit=2) == [0, 1]
    assert positions(limit=2, after=1) == [2, 3]
    assert positions(after=4) == positions(state="completed") == positions(outcome="answered") == []
    assert door.http.get(f"/v1/batches/{batch}/results", params={"format": "csv", "limit": 1}).text.count("\n") == 2
    for wish in ({"state": "lost"}, {"limit": 0}, {"outcome": "good"}, {"after": "x"}):
        assert door.http.get(f"/v1/batches/{batch}/results", params=wish).status_code == 422


def test_a_page_in_a_browser_can_not_reach_a_service_without_keys(door: Door) -> None:
    assert door.http.get("/v1/batches", headers={"Host": "evil.example"}).status_code == 421
    assert door.http.get("/v1/batches", headers={"Origin": "https://evil.example"}).status_code == 403
    assert door.http.get("/v1/batches", headers={"Origin": door.url}).status_code == 200


def test_the_description_names_every_route(door: Door) -> None:
    document = door.http.get("/openapi.json").json()

    assert {"/v1/jobs", "/v1/jobs/{job_id}", "/v1/batches/{batch_id}/results", "/readyz"} <= document["paths"].keys()
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/JobRequest"}
    assert "query" in document["components"]["schemas"]["JobRequest"]["properties"]
    references = re.findall(rb'"\\$ref":"([^"]+)"', orjson.dumps(document))
    names = {each.rpartition(b"/")[2].decode() for each in references}
    assert names <= document["components"]["schemas"].keys()


def send_raw(door: Door, request: bytes) -> tuple[str, dict[str, Any]]:
    """Send bytes that are no request; returns the status line and the body of the answer."""
    host, port = door.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    is_openai = b"/openai/" in request
    assert f"content-type: {'application/json' if is_openai else PROBLEM}".encode() in head
    return head.split(b"\r\n")[0].decode(), orjson.loads(body)


def test_what_is_no_request_is_answered_with_a_problem_too(door: Door) -> None:
    filler = b"X-Filler: " + b"x" * 40_000
    status, problem = send_raw(door, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + filler + b"\r\n\r\n")
    assert (status, problem["status"]) == ("HTTP/1.1 431 Request Header Fields Too Large", 431)
    assert "32,768" in problem["detail"]
    for request in (
        b"garbage\r\n\r\n",
        b"FOO /v1/jobs HTTP/1.1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: a\r\n\r\n",
    ):
        status, problem = send_raw(door, request)
        assert (status, problem["type"]) == ("HTTP/1.1 400 Bad Request", "urn:nightdesk:problem:invalid-http")
    status, problem = send_raw(door, b"GET /openai/v1/files HTTP/1.1\r\nContent-Length: a\r\n\r\n")
    assert (status, problem["error"]["type"]) == ("HTTP/1.1 400 Bad Request", "invalid_request_error")
    length = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
    status, problem = send_raw(door, b"POST /v1/jobs HTTP/1.1\r\n" + length)
    assert problem["status"] == 413


def test_a_wrong_method_is_answered_with_those_of_all_routes(door: Door) -> None:
    answer = door.http.delete("/v1/batches")
    assert (answer.status_code, answer.headers["allow"], answer.headers["content-type"]) == (405, "GET, POST", PROBLEM)
    assert "GET and POST, not DELETE" in answer.json()["detail"]
    assert door.http.put("/openai/v1/files").json()["error"]["type"] == "invalid_request_error"


def test_without_redis_jobs_are_accepted_and_polls_answered(
    servers: Servers, tmp_path: Path, database_url: str
) -> None:
    with running_service(database_url, "redis://127.0.0.1:1/0", tmp_path) as door:
        job = door.http.post("/v1/jobs", json=question(1)).json()["job_id"]
        readiness = door.http.get("/readyz")

        assert door.http.get(f"/v1/jobs/{job}?wait=0.1").json()["state"] == "available"
        assert door.submit(question(2))["jobs"] == 1
        assert (readiness.status_code, readiness.json()["ready"], readiness.json()["postgres"]) == (200, True, "ok")
        assert readiness.json()["redis"].startswith("unreachable")


def test_a_postgres_that_hangs_is_told_of_at_once(servers: Servers, tmp_path: Path, database_url: str) -> None:
    with running_proxy(database_url) as proxy, running_service(proxy.url, servers.redis_url, tmp_path) as door:
        job = f"/v1/jobs/{door.http.post('/v1/jobs', json=question(1)).json()['job_id']}"
        key = {"Idempotency-Key": "during"}
        requests: list[tuple[str, str, dict[str, Any]]] = [
            ("GET", job, {}),
            ("GET", f"{job}/record", {}),
            ("POST", "/v1/jobs", {"json": question(2), "headers": key}),
            ("POST", "/v1/batches", {"content": body_of([question(3)]), "headers": {**LINES, **key}}),
        ]
        answers: dict[str, tuple[int, str | None]] = {}

        def send(method: str, path: str, options: dict[str, Any]) -> None:
            answer = httpx2.request(method, f"{door.url}{path}", timeout=scale_to_load(15), **options)
            answers[f"{method} {path}"] = answer.status_code, answer.headers.get("retry-after")

        proxy.stall()
        senders = [threading.Thread(target=send, args=request) for request in requests]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(scale_to_load(60))
        send(*requests[0])
        assert answers == {f"{method} {path}": (503, "5") for method, path, _ in requests}
        assert until(lambda: door.http.get("/readyz").status_code == 503, scale_to_load(15))
        proxy.heal()
        assert until(lambda: door.http.get(job).status_code == 200, 30)
        again = [door.http.request(method, path, **options) for method, path, options in requests[2:4]]
        assert [answer.status_code for answer in again] == [202, 202]


def test_a_stop_answers_those_who_wait_at_once(servers: Servers, tmp_path: Path, database_url: str) -> None:
    answers: list[int] = []
    with running_service(database_url, servers.redis_url, tmp_path) as door:
        job = door.http.post("/v1/jobs", json=question(1)).json()["job_id"]

        def wait() -> None:
            answers.append(httpx2.get(f"{door.url}/v1/jobs/{job}?wait=60", timeout=90).status_code)

        poller = threading.Thread(target=wait)
        poller.start()
        assert until(lambda: door.service.watch._waiters, scale_to_load(30)), "nobody waits"
    poller.join(scale_to_load(30))

    assert answers == [200], "its connection was cut when the service waited no longer"


def test_a_poll_ends_with_its_connection(door: Door) -> None:
    job = UUID(door.http.post("/v1/jobs", json=question(1)).json()["job_id"])
    host, port = door.url.removeprefix("http://").split(":")
    order = b'{"input": "Why?", "sources": []}'
    head = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(order)
    for request in (
        f"GET /v1/jobs/{job}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        b"POST /openai/v1/responses HTTP/1.1\r\n" + head + order,
    ):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            assert until(lambda: len(door.service.watch._waiters) == 1, scale_to_load(30))
        assert until(lambda: not door.service.watch._waiters, scale_to_load(10)), "it waits for nobody"


def test_a_body_that_is_not_wanted_may_not_come_for_ever(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REST_S", 0.3)
    host, port = door.url.removeprefix("http://").split(":")
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=scale_to_load(30)) as connection:
        connection.sendall(head + b"a" * 10)
        assert _status_of_answer(connection) == 415
        connection.sendall(b"a")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(10_000) == b"", "cut off"
    with socket.create_connection((host, int(port)), timeout=scale_to_load(30)) as connection:
        connection.sendall(head + b"a" * 10)
        assert _status_of_answer(connection) == 415
        connection.sendall(b"a" * 990 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _status_of_answer(connection) == 200, "the connection goes on"


def _status_of_answer(connection: socket.socket) -> int:
    """Reads an answer with its body, which may come in a packet of its own."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_a_body_for_which_there_is_no_room_is_refused_and_the_next_one_taken(door: Door) -> None:
    body = body_of(question(number) for number in range(3_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        answers = [
            door.http.post("/v1/batches", content=content, headers=LINES) for content in (body, gzip.compress(body))
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [(answer.status_code, answer.json()["type"]) for answer in answers] == [
        (507, "urn:nightdesk:problem:no-space")
    ] * 2
    assert list(door.service.uploads.iterdir()) == []
    assert door.http.post("/v1/batches", content=body, headers=LINES).json()["jobs"] == 3_000


def test_a_monitor_may_ask_with_head(door: Door) -> None:
    for path in ("/healthz", "/readyz"):
        answer = door.http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
