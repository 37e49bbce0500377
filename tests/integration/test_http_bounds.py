"""The settings that bound submissions over HTTP: bytes and lines of a body, and the jobs that a tenant may have waiting."""

import gzip
from collections.abc import Iterator
from typing import Any

import openai
import orjson
import pytest

from tests.http_service import LINES, Door, body_of, running_service
from tests.servers import Servers

BYTES, MOST_LINES, MOST_JOBS = 20_000, 3, 4
SMALL = {"query": "When?", "context": ["At nine."]}


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    bounds = {"http_max_body_bytes": BYTES, "http_max_lines": MOST_LINES}
    tenants = {"tenant_limits": {"default": {"max_queued_jobs": MOST_JOBS}}, "max_queued_jobs": 1_000}
    with (
        servers.database() as url,
        running_service(url, servers.redis_url, tmp_path_factory.mktemp("home"), **bounds, **tenants) as door,
    ):
        yield door


def pieces(body: bytes) -> Iterator[bytes]:
    """A body whose size no header tells."""
    return (body[at : at + 5_000] for at in range(0, len(body), 5_000))


@pytest.mark.parametrize("pack", [bytes, pieces, gzip.compress])
def test_a_body_beyond_the_bytes_is_refused_however_it_comes(door: Door, pack: Any) -> None:
    large = body_of([{**SMALL, "context": ["x" * BYTES]}])
    answer = door.http.post("/v1/batches", content=pack(large), headers=LINES)
    assert (answer.status_code, f"{BYTES:,} bytes" in answer.json()["detail"]) == (413, True)


def test_a_body_of_more_lines_is_refused_whole(door: Door) -> None:
    answer = door.http.post("/v1/batches", content=body_of([SMALL] * (MOST_LINES + 1)), headers=LINES)
    assert (answer.status_code, f"{MOST_LINES} lines" in answer.json()["detail"]) == (422, True), answer.text


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_blank_lines_count_as_lines(door: Door, pack: Any) -> None:
    """Some hundred bytes of gzip may be any number of them, and each takes time to be read."""
    answer = door.http.post("/v1/batches", content=pack(b"\n" * (MOST_LINES + 1)), headers=LINES)
    assert (answer.status_code, f"{MOST_LINES} lines" in answer.json()["detail"]) == (422, True), answer.text


def test_gzip_within_gzip_is_unpacked_once(door: Door) -> None:
    """The bytes of a second time have no bound."""
    twice = gzip.compress(gzip.compress(body_of([SMALL])))
    answer = door.http.post("/v1/batches", content=twice, headers=LINES)
    assert (answer.status_code, answer.json()["errors"][0]["line"]) == (422, 1), answer.text


def test_results_are_sent_whatever_a_body_may_have(door: Door) -> None:
    """An export counts for more bytes than this service takes."""
    batch = door.http.post("/v1/batches", content=body_of([SMALL]), headers=LINES).json()["batch_id"]
    answers = [door.http.get(f"/v1/batches/{batch}/results") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    door.http.post(f"/v1/batches/{batch}/cancel")


def test_a_tenant_has_no_more_jobs_waiting_than_its_own_limit(door: Door) -> None:
    batch = door.submit(*[SMALL] * MOST_LINES)["batch_id"]
    refused = door.http.post("/v1/batches", content=body_of([SMALL] * 2), headers=LINES)
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:nightdesk:problem:queue-full")
    assert door.http.post("/v1/jobs", json=SMALL).status_code == 202, "the last one of four"
    assert door.http.post("/v1/jobs", json=SMALL).status_code == 429
    door.http.post(f"/v1/batches/{batch}/cancel")
    assert door.http.post("/v1/jobs", json=SMALL).status_code == 202


def test_an_uploaded_file_has_the_same_bounds(door: Door) -> None:
    line = {"custom_id": "q", "method": "POST", "url": "/v1/answers", "body": SMALL}
    with openai.OpenAI(base_url=f"{door.url}/openai/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            client.files.create(file=("a.jsonl", b"x" * (BYTES + 1)), purpose="batch")
        lines = [orjson.dumps({**line, "custom_id": f"q{number}"}) for number in range(MOST_LINES + 1)]

        def make_batch(content: bytes) -> Any:
            file = client.files.create(file=("a.jsonl", content), purpose="batch")
            return client.batches.create(input_file_id=file.id, endpoint="/v1/answers", completion_window="24h")

        with pytest.raises(openai.BadRequestError, match=f"more than {MOST_LINES} lines"):
            make_batch(b"\n".join(lines))
        with pytest.raises(openai.BadRequestError, match=f"more than {MOST_LINES} lines"):
            make_batch(gzip.compress(b"\n" * (MOST_LINES + 1)))
        with pytest.raises(openai.BadRequestError, match=f"{BYTES:,} bytes"):
            make_batch(gzip.compress(b" " * (BYTES + 1)))
        with pytest.raises(openai.BadRequestError, match="damaged"):
            make_batch(gzip.compress(lines[0])[:-9] + b"damaged!!")
        assert make_batch(gzip.compress(gzip.compress(lines[0]))).status == "failed"

    assert caught.value.status_code == 413
