"""The stock OpenAI client, unchanged, over the HTTP service: files, batches, output and errors."""

import asyncio
import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import openai
import psycopg
import pytest

from schemas.access import Role
from schemas.states import JobState, Outcome, Step
from tests.builders import make_final
from tests.deadlines import until
from tests.http_service import Door
from tests.integration.test_http_tenants import make_key
from tests.lent_ledger import KeptLedger
from tests.servers import advance_clock
from worker.http import openai_batch_routes

LEASE = timedelta(minutes=10)


def line(name: str, **body: Any) -> dict[str, Any]:
    job = {"query": "How long is it?", "context": ["It is two years."], **body}
    return {"custom_id": name, "method": "POST", "url": "/v1/answers", "body": job}


def upload(client: openai.OpenAI, *lines: Any, pack: Callable[[bytes], bytes] = bytes) -> Any:
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return client.files.create(file=("night.jsonl", pack(content.encode())), purpose="batch")


def create(client: openai.OpenAI, file: Any, **options: Any) -> Any:
    order: dict[str, Any] = {"endpoint": "/v1/answers", "completion_window": "24h", **options}
    return client.batches.create(input_file_id=file.id, **order)


def finish(door: Door, tenant: str, states: dict[str, JobState]) -> None:
    """End jobs as a worker does, by their custom ids."""

    async def work() -> None:
        async with KeptLedger(door.database_url) as ledger:
            for job in await ledger.queue.lease(Step.GENERATE, "w", LEASE, 100):
                if job.tenant == tenant and job.custom_id in states:
                    state = states[job.custom_id]
                    outcome = Outcome.ANSWERED if state is JobState.COMPLETED else None
                    await ledger.queue.finish([make_final(job, state=state, outcome=outcome)])

    asyncio.run(work())


def test_a_program_uploads_creates_polls_and_downloads(door: Door, client: openai.OpenAI) -> None:
    file = upload(client, line("a"), line("b"), line("c", config={"mode": "wild"}), line("d"))
    assert (file.purpose, file.status, file.filename) == ("batch", "processed", "night.jsonl")
    assert client.files.retrieve(file.id).bytes == file.bytes
    assert client.files.content(file.id).text.count("custom_id") == 4

    batch = create(client, file, metadata={"night": "1"})
    assert (batch.status, batch.request_counts.total, batch.request_counts.failed) == ("in_progress", 4, 1)
    assert (batch.metadata, batch.input_file_id, batch.output_file_id) == ({"night": "1"}, file.id, None)
    assert create(client, file).id == batch.id, "the same file again is the same batch"
    assert client.batches.list(limit=1).data[0].id == batch.id

    finish(door, "acme", {"a": JobState.COMPLETED, "b": JobState.FAILED, "d": JobState.COMPLETED})
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 2, 2)
    assert done.completed_at >= done.created_at
    output = [json.loads(row) for row in client.files.content(done.output_file_id).text.splitlines()]
    assert [(row["custom_id"], row["response"]["status_code"], row["error"]) for row in output] == [
        ("a", 200, None),
        ("d", 200, None),
    ]
    assert output[0]["response"]["body"]["state"] == "completed"
    errors = [json.loads(row) for row in client.files.content(done.error_file_id).text.splitlines()]
    assert [(row["custom_id"], row["response"]["status_code"]) for row in errors] == [("b", 500), ("c", 400)]
    assert "config.mode" in errors[1]["response"]["body"]["error"]["message"]
    for name, kind in ((done.output_file_id, "output"), (done.error_file_id, "error")):
        result = client.files.retrieve(name)
        assert result.bytes == len(client.files.content(name).content) > 100
        assert (result.filename, result.purpose) == (f"{batch.id}_{kind}.jsonl", "batch_output")
        assert result.created_at == done.completed_at
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)


def test_a_batch_that_ended_is_finalizing_until_its_files_are_measured(
    door: Door, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = create(client, upload(client, line("large"), pack=gzip.compress))
    finish(door, "acme", {"large": JobState.COMPLETED})
    monkeypatch.setattr(openai_batch_routes, "END_S", 0)
    assert client.batches.retrieve(batch.id).status == "finalizing"
    assert until(lambda: client.batches.retrieve(batch.id).status == "completed", 30)


def test_files_are_listed_with_the_results_of_their_batches(door: Door) -> None:
    key = make_key(door.database_url, "lister", "lister", Role.SUBMIT)
    with openai.OpenAI(base_url=f"{door.url}/openai/v1", api_key=key, max_retries=0) as client:
        assert client.files.list().data == []
        first = upload(client, line("l1"), line("l2", config={"mode": "wild"}))
        batch = create(client, first)
        second = upload(client, line("l3"))
        finish(door, "lister", {"l1": JobState.COMPLETED})
        done = client.batches.retrieve(batch.id)
        newest_first = [second.id, done.output_file_id, done.error_file_id, first.id]
        assert [file.id for file in client.files.list(limit=1)] == newest_first, "page by page"
        assert [file.id for file in client.files.list(limit=3)] == newest_first
        assert [file.id for file in client.files.list(order="asc", limit=2)] == newest_first[::-1]
        assert [file.id for file in client.files.list(purpose="batch_output")] == newest_first[1:3]
        assert [file.id for file in client.files.list(purpose="batch", limit=1)] == [second.id, first.id]
        with pytest.raises(openai.NotFoundError):
            client.files.list(after=f"file-{ZEROS}")


def test_a_file_with_a_wrong_envelope_makes_a_failed_batch(client: openai.OpenAI) -> None:
    bad = [line("a"), "{", {**line("b"), "url": "/v1/responses"}, line("a"), line("e", idempotency_key="k")]
    batch = create(client, upload(client, *bad))

    assert (batch.status, batch.request_counts.total) == ("failed", 5)
    assert [(error.line, error.code) for error in batch.errors.data] == [
        (2, "invalid_json_line"),
        (3, "mismatched_url"),
        (4, "invalid_custom_id"),
        (5, "invalid_request"),
    ]
    empty = create(client, upload(client, ""))
    assert (empty.status, empty.errors.data[0].code) == ("failed", "empty_file")
    invalid = create(client, upload(client, "", line("a", query=""), "", line("b", query="")))
    assert (invalid.status, [error.line for error in invalid.errors.data]) == ("failed", [2, 4])


def test_a_batch_is_cancelled(client: openai.OpenAI) -> None:
    batch = create(client, upload(client, line("a"), line("b")))

    assert client.batches.cancel(batch.id).status in {"cancelling", "cancelled"}
    assert until(lambda: client.batches.retrieve(batch.id).status == "cancelled", 30)
    done = client.batches.retrieve(batch.id)
    assert (done.output_file_id, done.request_counts.failed) == (None, 2)
    (first, _) = client.files.content(done.error_file_id).text.splitlines()
    assert json.loads(first)["error"]["code"] == "batch_cancelled"


def test_errors_are_the_exceptions_of_the_client(door: Door, client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{door.url}/openai/v1", api_key="wrong", max_retries=0).batches.list()
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_nothing")
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.create(file=b"x", purpose="fine-tune")
    assert (refused.value.param, refused.value.type) == ("purpose", "invalid_request_error")
    file = upload(client, line("a"))
    for endpoint in ("/v1/embeddings", "/v1/completions"):
        with pytest.raises(openai.BadRequestError, match=r"endpoint: .*/v1/chat/completions; a prompt goes there as"):
            create(client, file, endpoint=endpoint)
    with pytest.raises(openai.BadRequestError, match="leave it out"):
        create(client, file, output_expires_after={"anchor": "created_at", "seconds": 3_600})
    with pytest.raises(openai.BadRequestError, match="a file is kept until its batch is made, or 7 days"):
        client.files.create(file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3_600})
    assert client.files.delete(file.id).deleted
    for nothing in ("file-1", file.id):
        with pytest.raises(openai.NotFoundError, match="there is no such file"):
            client.files.retrieve(nothing)
        with pytest.raises(openai.BadRequestError, match=f"there is no file '{nothing}'"):
            create(client, type(file).model_construct(id=nothing))
    with pytest.raises(openai.BadRequestError, match="there is no file"):
        create(client, file)


def test_the_window_counts_from_the_first_order(door: Door, client: openai.OpenAI) -> None:
    file = upload(client, line("w"))
    advance_clock(door.database_url, timedelta(hours=30))
    batch = create(client, file)
    assert (batch.status, batch.expires_at - batch.created_at) == ("in_progress", 24 * 3600)
    assert batch.created_at >= file.created_at + 30 * 3600
    with psycopg.connect(door.database_url) as connection:
        (expires_at,) = connection.execute(
            "SELECT extract(epoch FROM deadline) FROM batch WHERE key = %s", [key_of(file)]
        ).fetchone() or (0,)
        assert abs(expires_at - batch.expires_at) < 60
        # As where the service was killed between the jobs and their note.
        connection.execute(
            "UPDATE upload SET submitted_at = NULL, batch_id = NULL WHERE id = %s", [file.id.removeprefix("file-")]
        )
        content = json.dumps(line("w")).encode()
        connection.execute(
            "INSERT INTO upload_piece VALUES (%s, 0, %s)", [UUID(file.id.removeprefix("file-")), content]
        )
    advance_clock(door.database_url, timedelta(hours=2))
    again = create(client, file, completion_window="48h")
    assert (again.id, again.created_at, again.expires_at) == (batch.id, batch.created_at, batch.expires_at)


def test_results_are_not_there_before_the_end_and_refused_lines_have_ids(door: Door, client: openai.OpenAI) -> None:
    wrong = {"config": {"mode": "wild"}}
    file = upload(client, line("x1", **wrong), line("x2"), line("x3", **wrong))
    ids = [f"{file.id}{part}" for part in ("-output", "-error")]
    batch = create(client, file)
    for name in ids:
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(name)
    finish(door, "acme", {"x2": JobState.COMPLETED})
    done = client.batches.retrieve(batch.id)
    assert [client.files.retrieve(name).id for name in ids] == [done.output_file_id, done.error_file_id]
    rows = [json.loads(row) for row in client.files.content(done.error_file_id).text.splitlines()]
    assert len({row["id"] for row in rows}) == len({row["response"]["request_id"] for row in rows}) == 2
    with pytest.raises(openai.NotFoundError):
        client.batches.list(after=f"batch_{ZEROS}")


def key_of(file: Any) -> str:
    """The key of the batch of a file in the ledger."""
    return f"upload:{UUID(file.id.removeprefix('file-'))}"


ZEROS = "0" * 32


@pytest.mark.parametrize(
    "metadata",
    [
        {"night": "a\0b"},
        {"ni\0ght": "1"},
        {"k" * 65: "1"},
        {"k": "v" * 513},
        {"k": 1},
        {str(number): "1" for number in range(17)},
        ["night"],
    ],
)
def test_metadata_that_cannot_be_kept_is_refused_before_a_job_is_written(
    door: Door, client: openai.OpenAI, metadata: Any
) -> None:
    file = upload(client, line("m"))
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, file, metadata=metadata)
    assert refused.value.param == "metadata"
    with psycopg.connect(door.database_url) as connection:
        rows = connection.execute("SELECT FROM batch WHERE key = %s", [key_of(file)]).fetchall()
        assert rows == []
    assert client.files.delete(file.id).deleted, "no batch was made of it"


def test_a_batch_expires_at_the_end_of_its_window(door: Door, client: openai.OpenAI) -> None:
    batch = create(client, upload(client, line("late")), completion_window="1h")
    advance_clock(door.database_url, timedelta(hours=2))

    async def expire() -> None:
        async with KeptLedger(door.database_url) as ledger:
            await ledger.duties.expire(100)

    asyncio.run(expire())
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.failed) == ("expired", 1)
    (row,) = client.files.content(done.error_file_id).text.splitlines()
    assert json.loads(row)["error"]["code"] == "batch_expired"


SOURCES = [{"content": "It is two years.", "title": "Terms"}]


@pytest.mark.parametrize(
    ("endpoint", "body", "text"),
    [
        (
            "/v1/responses",
            {"model": "nightdesk", "input": "How long is it?", "sources": SOURCES},
            lambda body: openai.types.responses.Response.model_validate(body).output_text,
        ),
        (
            "/v1/chat/completions",
            {
                "model": "nightdesk",
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "It is two years.", "title": "Terms"},
                            {"type": "text", "text": "How long is it?"},
                        ],
                    }
                ],
            },
            lambda body: openai.types.chat.ChatCompletion.model_validate(body).choices[0].message.content,
        ),
    ],
)
def test_lines_may_be_the_orders_of_other_clients(
    door: Door, client: openai.OpenAI, endpoint: str, body: Any, text: Callable[[Any], str]
) -> None:
    names = [f"{endpoint}-{number}" for number in range(2)]
    lines = [{"custom_id": name, "method": "POST", "url": endpoint, "body": body} for name in names]
    batch = create(client, upload(client, *lines), endpoint=endpoint, metadata={"night": "2"})
    assert (batch.endpoint, batch.status, batch.metadata) == (endpoint, "in_progress", {"night": "2"})
    finish(door, "acme", {names[0]: JobState.COMPLETED, names[1]: JobState.FAILED})
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 1)
    (row,) = [json.loads(row) for row in client.files.content(done.output_file_id).text.splitlines()]
    assert (row["custom_id"], row["response"]["status_code"]) == (names[0], 200)
    result = row["response"]["body"]["nightdesk"]
    assert text(row["response"]["body"]) == result["response"]
    assert (result["query"], result["sources_provided"]) == ("How long is it?", 1)
    assert client.files.retrieve(done.output_file_id).bytes == len(client.files.content(done.output_file_id).content)
    wrong = create(client, upload(client, {**lines[0], "body": {**body, "top_logprobs": 9}}), endpoint=endpoint)
    assert (wrong.status, wrong.output_file_id) == ("failed", None)
    assert wrong.errors.data[0].message.startswith("top_logprobs: not taken, as")
    other = create(client, upload(client, {**lines[0], "url": "/v1/completions"}), endpoint=endpoint)
    assert other.errors.data[0].message == f"url: must be {endpoint}, as the endpoint of the batch"


@pytest.mark.parametrize("most_bytes", [0, 1_100_000])
def test_an_order_at_fault_is_refused_alone_by_the_names_of_its_body(
    door: Door, client: openai.OpenAI, most_bytes: int
) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "wild"}}}
    part = {"type": "text", "text": "It is two years.", "title": "Terms", "page": []}
    faults = {
        "temperature": {"temperature": 9},
        "max_completion_tokens": {"max_tokens": 0},
        "n": {"n": 2},
        "config.mode": {"config": {"mode": "wild"}},
        "response_format.json_schema.schema": {"model": "ollama:m", "response_format": schema},
        "sources[0].content": {"sources": [{"content": 7}]},
        "messages[0].content[1].file_data": {
            "messages": [{"role": "user", "content": [part, {"type": "file", "file_data": "?"}]}]
        },
        "messages": {"messages": [{"role": "user", "content": "?" * 30_000}]},
    }
    order = {"model": "nightdesk", "messages": [{"role": "user", "content": "How long is it?"}], "sources": SOURCES}
    endpoint = "/v1/chat/completions"
    # A large file is taken in by a process of its own.
    good = {**order, "sources": [{"content": "It is two years. " * (most_bytes // 34 + 1)}] * 2}
    bodies = {**{name: {**order, **part} for name, part in faults.items()}, f"good-{most_bytes}": good}
    lines = [{"custom_id": name, "method": "POST", "url": endpoint, "body": body} for name, body in bodies.items()]
    batch = create(client, upload(client, *lines), endpoint=endpoint)
    assert batch.errors is None
    assert (batch.request_counts.total, batch.request_counts.failed) == (len(lines), len(faults))
    finish(door, "acme", {f"good-{most_bytes}": JobState.COMPLETED})
    done = client.batches.retrieve(batch.id)
    rows = [json.loads(row) for row in client.files.content(done.error_file_id).text.splitlines()]
    messages = {row["custom_id"]: row["response"]["body"]["error"]["message"] for row in rows}
    assert {name: message.split(": ")[1] for name, message in messages.items()} == {name: name for name in faults}


def test_a_batch_without_a_good_line_has_its_error_file(client: openai.OpenAI) -> None:
    bad = [line(name, config={"mode": "wild"}) for name in ("x", "y")]
    failed = create(client, upload(client, *bad))
    assert (failed.status, failed.output_file_id) == ("failed", None)
    file = client.files.retrieve(failed.error_file_id)
    content = client.files.content(failed.error_file_id)
    rows = [json.loads(row) for row in content.text.splitlines()]
    assert file.bytes == len(content.content)
    assert [row["custom_id"] for row in rows] == ["x", "y"]
    assert all("config.mode" in row["error"]["message"] for row in rows)
