"""The pages of the viewer over PostgreSQL: what they show, who may see and judge it, and that text from outside stays text."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from uuid import UUID

import httpx2
import psycopg
import pytest

from schemas.access import Role
from schemas.answer import Citation
from schemas.failure import FailureKind
from schemas.grounding import Claim, Evidence, Grounding, Verdict
from schemas.job import SourceContext
from schemas.model_call import ProviderSnapshot
from schemas.states import Outcome, Step
from tasks.ports import JobDetail
from tasks.results import result_of
from tests.builders import (
    closed_ok,
    make_attempt,
    make_batch,
    make_failed,
    make_final,
    make_prompt,
    make_record,
    make_request,
    to_check,
)
from tests.contract.situations import submit, take
from tests.http_service import Door, running_service
from tests.integration.test_http_tenants import make_key
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.cli.job_view import show_job
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import audit_of, find_job

TURN = "\u202egnorw"
HOSTILE = f"<script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1)) {TURN} {{{{ 7 * 7 }}}}"
SOURCE = f"The desk opens at nine. {HOSTILE} The porter has the key."
ANSWER = f"It opens at ten [1]. {HOSTILE}"
ABSENT = "019d0000-0000-7000-8000-000000000000"
CLAIM = Claim(
    text=f"It opens at ten. {HOSTILE}", start_pos=0, end_pos=20, verdict=Verdict.CONTRADICTED, score=0.1, reason=HOSTILE,
    evidence=(Evidence(source_index=0, start=0, end=23),),
)  # fmt: skip
CITATION = Citation(
    source_index=0, rank=1, chunk_id="c", document_id="d", quoted_text="x", text_snippet="x", start_pos=16, end_pos=19,
    source_start=4, source_end=17, verified=True,
)  # fmt: skip


@dataclass(frozen=True)
class Night:
    """A batch with jobs that ended in different ways."""

    batch: UUID
    jobs: list[UUID]


async def night(ledger: PostgresLedger, tenant: str) -> Night:
    """An answer, one that is contradicted, one that is undecided, a failure, and a job that is not final."""
    source = SourceContext(content=SOURCE, metadata={"title": HOSTILE, "page": 7, "article": "12", "section": "b"})
    requests = [
        make_request(f"Question {n}? {HOSTILE}", context=[source], custom_id=f"{n} <b>{TURN}") for n in range(5)
    ]
    receipt = await submit(ledger, *requests, batch=make_batch(tenant, name=f"night {HOSTILE}"))
    for job in await take(ledger, receipt.job_ids[:4]):
        attempt = make_attempt(job)
        await ledger.attempts.open_attempts([attempt])
        await ledger.attempts.close_attempts([closed_ok(job, attempt, HOSTILE, then=to_check(job))])
    checked = await take(ledger, receipt.job_ids[:4], Step.CHECK)
    claims = [(), (CLAIM,), (CLAIM.model_copy(update={"verdict": Verdict.UNDECIDED}),)]
    for job, score, judged_claims in zip(checked[:3], (0.9, 0.97, 0.95), claims, strict=True):
        counts = {claim.verdict: 1 for claim in judged_claims}
        grounding = Grounding(grounding_score=score, claims=judged_claims, counts=counts)
        record = make_record(
            job,
            grounding=grounding,
            answer=ANSWER,
            citations=(CITATION,),
            messages_snapshot=make_prompt(source=SOURCE).snapshot,
            provider_snapshot=ProviderSnapshot(provider="fake", model_asked="fake-1"),
        )
        await ledger.queue.finish(
            [make_final(job, record=record, outcome=Outcome.PARTIAL if judged_claims else Outcome.ANSWERED)]
        )
    await ledger.queue.finish([make_failed(checked[3], FailureKind.BAD_ANSWER)])
    return Night(receipt.batch_id, list(receipt.job_ids))


@pytest.fixture(scope="module")
def own(door: Door) -> Night:
    return asyncio.run(new_night(door, door.service.settings.tenant))


async def new_night(door: Door, tenant: str) -> Night:
    async with KeptLedger(door.database_url) as ledger:
        return await night(ledger, tenant)


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, answer: httpx2.Response) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(answer.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def values(self, tag: str, attribute: str) -> list[str]:
        return [
            str(attributes[attribute]) for name, attributes in self.elements if name == tag and attribute in attributes
        ]


def field(answer: httpx2.Response, name: str) -> str:
    """The value of a hidden field."""
    return next(
        str(each["value"]) for tag, each in Page(answer).elements if tag == "input" and each.get("name") == name
    )


def addresses(night: Night) -> list[str]:
    batch, job = f"/view/batches/{night.batch}", f"/view/jobs/{night.jobs[1]}"
    return [
        "/view/", "/view/?q=night", "/view/?show=failed", batch, f"{batch}?verdict=contradicted",
        f"{batch}?ending=failed", f"{batch}/progress", job, f"{job}?doubtful=1&queue=all", f"{job}/sources/1",
        *(f"/view/jobs/{other}" for other in night.jobs[2:]),
        "/view/review", f"/view/review?batch={night.batch}", "/view/compare",
        f"/view/compare?a={night.jobs[1]}&b={night.jobs[2]}",
    ]  # fmt: skip


def test_no_page_runs_or_hides_text_from_outside_and_each_forbids_it(door: Door, own: Night) -> None:
    for address in addresses(own):
        answer = door.http.get(address)
        assert answer.status_code == 200, (address, answer.text[:500])
        page = Page(answer)
        assert "\u202e" not in answer.text, address
        assert not {tag for tag, _ in page.elements} & {"img", "iframe", "object", "style", "b"}, address
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith(("on", "style"))]
        assert all(value.startswith("/view/assets/") for value in page.values("script", "src")), address
        assert len(page.values("script", "src")) == sum(tag == "script" for tag, _ in page.elements)
        assert not [value for value in page.values("a", "href") if not value.startswith(("/", "#", "?"))], address
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "private, no-store"
    assert "&lt;script&gt;" in answer.text
    assert "[U+202E]" in answer.text


def test_a_job_shows_its_claims_by_sign_and_word_and_leads_to_the_words_of_its_source(door: Door, own: Night) -> None:
    answer = door.http.get(f"/view/jobs/{own.jobs[1]}")
    page = Page(answer)
    ids = page.values("span", "id") + page.values("li", "id") + page.values("details", "id")

    assert {"source-1-0-23", "source-1-4-17", "claim-1", "source-1"} <= set(ids)
    links = page.values("a", "href")
    assert {"#source-1-0-23", "#source-1-4-17", "#claim-1"} <= set(links)
    assert 'class="verdict contradicted"><span aria-hidden="true">✗</span> contradicted' in answer.text
    assert "<mark>desk opens at</mark>" in answer.text
    assert all(part in answer.text for part in ("article 12", "section b", "page 7", "proven by hash"))
    assert "<caption>Attempts</caption>" in answer.text


def test_the_worst_answer_comes_first_is_judged_and_leaves_the_queue(door: Door, own: Night) -> None:
    queue = f"/view/review?batch={own.batch}"
    links = [link for link in Page(door.http.get(queue)).values("a", "href") if link.startswith("/view/jobs/")]
    assert [link.split("/")[3][:36] for link in links[:3]] == [str(own.jobs[n]) for n in (1, 2, 0)]
    first = door.http.get(f"/view/review/next?batch={own.batch}").headers["location"]
    page = door.http.get(first)
    form = {
        "token": field(page, "token"),
        "run": "1",
        "judge": "1:contradicted",
        "note": HOSTILE,
        "back": field(page, "back"),
    }

    answer = door.http.post(f"/view/jobs/{own.jobs[1]}/labels", data=form)

    assert (answer.status_code, answer.headers["location"].endswith("#claim-1")) == (303, True)
    judged = door.http.get(answer.headers["location"])
    assert 'value="1:contradicted" aria-pressed="true"' in judged.text
    assert (
        door.http.get(f"/view/review/next?batch={own.batch}")
        .headers["location"]
        .startswith(f"/view/jobs/{own.jobs[2]}")
    )
    sampled = door.http.get(f"/view/jobs/{own.jobs[0]}?doubtful=1&queue={own.batch}~3")
    following = next(link for link in Page(sampled).values("a", "href") if "/review/next?" in link)
    assert following == f"/view/review/next?batch={own.batch}&seed=3&position=0"
    assert door.http.get(following).headers["location"] == f"/view/review?batch={own.batch}"
    labels = door.http.get(f"/v1/jobs/{own.jobs[1]}/record").json()["labels"]
    assert [(label["claim"], label["verdict"], label["actor"], label["note"]) for label in labels] == [
        (1, "contradicted", "local", HOSTILE)
    ]
    refused = door.http.post(f"/view/jobs/{own.jobs[1]}/labels", data={**form, "judge": "9:supported"})
    assert (refused.status_code, "has no claim 9" in refused.text) == (422, True)


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"token": "0" * 64}, {}),
        ({"token": ""}, {}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Origin": "null"}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Cookie": "nightdesk_viewer=another"}),
    ],
)
def test_a_form_of_another_page_is_refused(
    door: Door, own: Night, change: dict[str, str], headers: dict[str, str]
) -> None:
    job = f"/view/jobs/{own.jobs[2]}"
    form = {"token": field(door.http.get(job), "token"), "run": "1", "judge": "1:supported", **change}
    assert door.http.post(f"{job}/labels", data=form, headers=headers).status_code == 403
    assert door.http.get(f"/v1/jobs/{own.jobs[2]}/record").json()["labels"] == []


def test_a_replay_and_a_recheck_begin_from_the_page(door: Door) -> None:
    own = asyncio.run(new_night(door, door.service.settings.tenant))
    job = f"/view/jobs/{own.jobs[0]}"
    form = {"token": field(door.http.get(job), "token")}

    replayed = door.http.post(f"{job}/replay", data=form)
    assert replayed.status_code == 409, "made by a provider that is not there"
    assert "fake" in replayed.text
    replayed = door.http.post(f"{job}/replay", data={**form, "model": "extractive", "max_cost_usd": "a lot"})
    assert (replayed.status_code, "max_cost_usd" in replayed.text) == (422, True)
    replayed = door.http.post(f"{job}/replay", data={**form, "model": "extractive"})
    assert replayed.status_code == 303
    replay = door.http.get(f"/v1/jobs/{replayed.headers['location'].rpartition('/')[2]}").json()
    assert door.http.get(f"/v1/batches/{replay['batch_id']}").json()["max_cost_usd"] == "1"
    bounded = door.http.post(f"{job}/replay", data={**form, "model": "vllm:qwen", "max_cost_usd": "1"})
    assert bounded.status_code == 409
    unpriced = door.http.post(f"{job}/replay", data={**form, "model": "vllm:qwen"})
    assert unpriced.status_code == 303, "a model of unknown price can't be asked under a ceiling"
    location = unpriced.headers["location"]
    unpriced_job = door.http.get(f"/v1/jobs/{location.rpartition('/')[2]}").json()
    assert door.http.get(f"/v1/batches/{unpriced_job['batch_id']}").json().get("max_cost_usd") is None
    assert f"/view/compare?a={own.jobs[0]}&amp;b=" in door.http.get(replayed.headers["location"]).text
    assert door.http.post(f"{job}/recheck", data=form).headers["location"] == job
    assert "run 2" in door.http.get(job).text


def test_jobs_are_cancelled_and_run_again_from_the_pages(door: Door) -> None:
    own = asyncio.run(new_night(door, door.service.settings.tenant))
    batch, last = f"/view/batches/{own.batch}", f"/view/jobs/{own.jobs[4]}"
    form = {"token": field(door.http.get(batch), "token")}

    def states() -> dict[str, int]:
        return dict(door.http.get(f"/v1/batches/{own.batch}").json()["states"])

    assert "Cancel this job" in door.http.get(last).text
    assert "Not final: 1 of 5 jobs" in door.http.get(batch).text
    assert door.http.post(f"{last}/retry", data=form).status_code == 409, "not final yet"
    assert door.http.post(f"{last}/cancel", data=form).headers["location"] == last
    assert states() == {"completed": 3, "failed": 1, "cancelled": 1}
    assert "Cancel this batch" not in door.http.get(batch).text
    refused = door.http.post(f"{batch}/retry", data={**form, "cause": "boredom"})
    assert (refused.status_code, states()["failed"]) == (422, 1)
    assert door.http.post(f"{batch}/retry", data={**form, "cause": "bad_answer"}).status_code == 303
    assert states() == {"completed": 3, "scheduled": 1, "cancelled": 1}
    assert door.http.post(f"{batch}/retry", data=form).headers["location"] == batch
    assert states() == {"completed": 3, "scheduled": 2}
    assert door.http.post(f"{batch}/cancel", data=form).headers["location"] == batch
    assert states() == {"completed": 3, "cancelled": 2}
    assert door.http.post(f"/view/jobs/{own.jobs[0]}/retry", data=form).status_code == 303
    assert "run 2" in door.http.get(f"/view/jobs/{own.jobs[0]}").text
    assert door.http.post(f"{batch}/cancel", data={**form, "token": "0" * 64}).status_code == 403
    actors = {event["actor"] for event in door.http.get(f"/v1/jobs/{own.jobs[4]}/record").json()["events"]}
    assert actors == {"http:local"}


def test_a_browser_is_led_from_the_front_to_the_pages(door: Door) -> None:
    answer = door.http.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/view/")
    assert door.http.get("/").status_code == 404


def test_figures_name_the_causes_of_failure_with_their_remedy(door: Door, own: Night) -> None:
    page = door.http.get(f"/view/batches/{own.batch}").text
    assert "bad answer" in page
    assert "raise max_tokens" in page
    assert "4 of 5" in page
    assert "data-live" in page
    followed = door.http.get(f"/view/batches/{own.batch}?follow=1")
    assert followed.headers["refresh"] == "5"


def test_lists_go_on_by_key(door: Door, own: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.http.pages.batch_pages.JOBS", 2)
    address, jobs = f"/view/batches/{own.batch}", []
    while address:
        page = Page(door.http.get(address))
        links = page.values("a", "href")
        jobs += [
            link.split("/")[3] for link in page.values("a", "href") if re.fullmatch(r"/view/jobs/[0-9a-f-]{36}", link)
        ]
        address = next(
            (f"/view/batches/{own.batch}{link}" for link in links if link.startswith("?") and "after=" in link), ""
        )
    # The cause of a failure names one of the jobs, too, above each page of them.
    assert set(jobs) == set(map(str, own.jobs))
    assert jobs.count(str(own.jobs[4])) == 1


def test_addresses_that_name_nothing_are_answered_by_a_page(door: Door) -> None:
    for address in (
        f"/view/jobs/{ABSENT}",
        f"/view/batches/{ABSENT}",
        "/view/jobs/x",
        "/view/nothing",
        "/view/assets/x",
    ):
        answer = door.http.get(address)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8"), address
    assert door.http.get("/view/?after=x").status_code == 422
    assert door.http.get("/view/", headers={"Host": "evil.example"}).status_code == 421


def test_the_style_and_the_script_are_kept_by_their_hash(door: Door) -> None:
    page = Page(door.http.get("/view/"))
    for address in (page.values("link", "href")[1], page.values("script", "src")[0]):
        answer = door.http.get(address)
        assert "immutable" in answer.headers["cache-control"]


@pytest.fixture(scope="module")
def guarded(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A service that needs keys."""
    with servers.database() as url:
        make_key(url, "first", "acme", Role.ADMIN)
        with running_service(url, servers.redis_url, tmp_path_factory.mktemp("home")) as door:
            yield door


def test_a_person_gives_a_key_once_sees_the_own_tenant_alone_and_judges_by_role(guarded: Door) -> None:
    door = guarded
    key = make_key(door.database_url, "viewer", "others", Role.READ)
    own = asyncio.run(new_night(door, "acme"))
    stranger = asyncio.run(new_night(door, "others"))
    with httpx2.Client(base_url=door.url, timeout=60) as person:
        led_off = person.get(f"/view/jobs/{stranger.jobs[1]}?doubtful=1")
        assert led_off.headers["location"] == f"/view/login?next=/view/jobs/{stranger.jobs[1]}%3Fdoubtful%3D1"
        form = {"token": field(person.get(led_off.headers["location"]), "token"), "next": "//evil.example"}
        assert person.post("/view/login", data={**form, "key": "ndk_wrong"}).status_code == 403
        entered = person.post("/view/login", data={**form, "key": key})
        assert entered.headers["location"] == "/view/"
        cookie = entered.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/view"))
        assert key not in entered.headers["set-cookie"]

        listing = person.get("/view/").text
        assert str(stranger.batch) in listing
        assert str(own.batch) not in listing
        pairs = zip(addresses(own), addresses(stranger), strict=True)
        for foreign, address in pairs:
            if str(own.batch) in foreign or str(own.jobs[1]) in foreign:
                absent = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", ABSENT, foreign)
                answers = person.get(foreign), person.get(absent)
                assert [(each.status_code, each.content) for each in answers] == [(404, answers[0].content)] * 2, (
                    foreign
                )
            assert person.get(address).status_code == 200, address
        page = person.get(f"/view/jobs/{stranger.jobs[1]}")
        assert "Accept" not in page.text
        links = [
            *Page(page).values("a", "href"),
            *Page(person.get(f"/view/batches/{stranger.batch}")).values("a", "href"),
        ]
        reached = {link: person.get(link) for link in links if link.endswith(("/record", "/report", "/results"))}
        assert {link.rpartition("/")[2]: answer.status_code for link, answer in reached.items()} == {
            "record": 200, "report": 200, "results": 200,
        }  # fmt: skip
        assert person.get(f"/view/jobs/{own.jobs[1]}/record").status_code == 404
        assert person.get(f"/view/batches/{own.batch}/report").status_code == 404
        token = field(page, "token")
        judged = person.post(
            f"/view/jobs/{stranger.jobs[1]}/labels", data={"token": token, "run": "1", "judge": "1:supported"}
        )
        assert judged.status_code == 403
        assert person.post("/view/logout", data={"token": token}).headers["location"] == "/view/login"
        assert person.get("/view/").status_code == 303
        person.cookies.set("nightdesk_viewer", entered.cookies["nightdesk_viewer"], path="/view")
        assert person.get("/view/").status_code == 303, "the session is over"
    assert key not in repr(door.service.access)


def show(door: Door, job_id: UUID) -> None:
    """Write about a job as ``nightdesk show`` does."""

    async def find() -> JobDetail:
        async with KeptLedger(door.database_url) as ledger:
            return await find_job(ledger, job_id, "")

    detail = asyncio.run(find())
    show_job(audit_of(detail, result_of(detail.view)))


DAMAGES = (
    r"UPDATE job_request SET frame = '\xdeadbeef' WHERE job_id = %s",
    """UPDATE generation_record SET citations = '[{"no": "citation"}]' WHERE job_id = %s""",
    r"UPDATE generation_record SET frame = '\xdeadbeef' WHERE job_id = %s",
    "UPDATE completion SET frame = NULL WHERE job_id = %s",
    "UPDATE completion SET parsed = '[]' WHERE job_id = %s",
    """UPDATE attempt SET usage = '{"input_tokens": [1]}' WHERE job_id = %s""",
    """UPDATE attempt SET failure = '{"kind": "of tomorrow", "message": "m"}' WHERE job_id = %s""",
    "UPDATE attempt SET cost_usd = 'NaN', opened_at = '-infinity', closed_at = 'infinity' WHERE job_id = %s",
    """UPDATE job_event SET detail = '{"provider": [1]}' WHERE job_id = %s""",
    "UPDATE job SET errors = '[1]' WHERE id = %s",
    "UPDATE generation_record SET timing_ms = '[]', usage = '7', quality = '[]' WHERE job_id = %s",
)


def test_jobs_whose_rows_are_damaged_take_no_page_down(door: Door) -> None:
    nights = {damage: asyncio.run(new_night(door, door.service.settings.tenant)) for damage in DAMAGES}
    with psycopg.connect(door.database_url, autocommit=True) as connection:
        for damage, night in nights.items():
            connection.execute(damage.encode(), (night.jobs[1],))

    for damage, night in nights.items():
        job = str(night.jobs[1])
        its = [address for address in addresses(night) if job in address or str(night.batch) in address]
        for address in (*its, f"/v1/jobs/{job}", f"/v1/jobs/{job}/record"):
            answer = door.http.get(address)
            assert answer.status_code == 200 or address.endswith("/sources/1"), (damage, address, answer.text[:500])
        results = door.http.get(f"/v1/batches/{night.batch}/results")
        assert len(results.text.splitlines()) == len(night.jobs), damage
        show(door, night.jobs[1])
    assert {door.http.get(address).status_code for address in addresses(night)} == {200}


def test_what_cannot_be_read_of_a_call_is_said_beside_the_rest(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    own = asyncio.run(new_night(door, door.service.settings.tenant))
    with psycopg.connect(door.database_url, autocommit=True) as connection:
        connection.execute("""UPDATE attempt SET usage = '"many"' WHERE job_id = %s""", (own.jobs[1],))
        connection.execute("UPDATE completion SET frame = NULL WHERE job_id = %s", (own.jobs[1],))
    show(door, own.jobs[1])
    page = door.http.get(f"/view/jobs/{own.jobs[1]}").text
    record = door.http.get(f"/v1/jobs/{own.jobs[1]}/record").json()

    assert "its usage can't be read" in capsys.readouterr().out
    assert "its usage can&#39;t be read" in page
    assert "it can&#39;t be read" in page
    assert record["attempts"][0]["outcome"] == "ok"
    assert record["attempts"][0]["unreadable"].startswith("its usage can't be read")
    assert record["completions"][0]["unreadable"].startswith("it can't be read")
