"""A stored prompt rendered again: the same bytes, or the first place that differs, and why."""

import asyncio
import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest, SourceContext
from schemas.model_call import Correction, Prompt, ProviderSnapshot, hash_messages
from schemas.states import JobState
from tasks.ports import JobView
from tasks.prompting.messages import render, with_correction
from tests.builders import SOURCE, make_record, make_request
from tests.contract.situations import submit_and_take, view
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Registry, ScriptedProvider
from worker.ledger.answer_calls import AnswerCall
from worker.operations.replay import Finding, proof_document, prove

PROVIDERS = Registry(ScriptedProvider(name="first"))


def answered(request: JobRequest, prompt: Prompt, **changes: Any) -> JobView:
    """A final job whose record has this prompt."""

    async def work() -> JobView:
        ledger = LentLedger()
        job = await submit_and_take(ledger, request)
        record = make_record(
            job,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
            prompt_hash=prompt.template_sha256,
            messages_snapshot=prompt.snapshot,
            provider_snapshot=ProviderSnapshot(provider="first", model_asked="scripted-1"),
        )
        final = replace(await view(ledger, job.job_id), state=JobState.COMPLETED, finished_at=job.created_at)
        return replace(final, record=record, **changes)

    return asyncio.run(work())


def call_of(prompt: Prompt, **changes: Any) -> AnswerCall:
    """The call that the scripted provider makes of a prompt."""
    body = hashlib.sha256(prompt.snapshot.sha256.encode()).digest()
    return replace(AnswerCall(body, None, pinned=False), **changes)


def with_text(prompt: Prompt, request: JobRequest, before: str, after: str) -> Prompt:
    """A prompt with other words in its messages, and the hash of these."""
    changed = Prompt.model_validate_json(prompt.model_dump_json().replace(before, after))
    proof = hash_messages(changed.snapshot.texts([source.content for source in request.context]))
    # As recorded by a version of the code that wrote these words.
    return changed.model_copy(update={"snapshot": changed.snapshot.model_copy(update={"sha256": proof})})


def test_an_unchanged_prompt_is_identical_in_messages_and_body() -> None:
    request = make_request()
    prompt = render(request, AnswerProtocol.MARKERS)
    proof = prove(answered(request, prompt), call_of(prompt), PROVIDERS)

    assert (proof.messages, proof.body, proof.reasons, proof.place) == (Finding.IDENTICAL, Finding.IDENTICAL, (), None)
    assert proof.proven
    assert proof_document(proof)["messages_sha256"] == prompt.snapshot.sha256


def test_a_second_round_is_rendered_with_its_correction() -> None:
    request = make_request()
    correction = Correction(purpose="correct", problems=("No source says so.",), previous="It is ready at noon.")
    prompt = with_correction(render(request, AnswerProtocol.MARKERS), request, correction)

    whole = prove(answered(request, prompt), call_of(prompt, correction=correction), PROVIDERS)
    without = prove(answered(request, prompt), call_of(prompt), PROVIDERS)

    assert whole.messages is Finding.IDENTICAL
    assert without.messages is Finding.DIFFERENT
    assert without.place is not None
    assert (without.place.role, without.place.now) == ("assistant", None)


def test_other_code_is_found_with_the_first_place_that_differs() -> None:
    request = make_request()
    prompt = render(request, AnswerProtocol.MARKERS)
    recorded = with_text(prompt, request, "When is the copy ready?", "When was the copy ready?")
    proof = prove(answered(request, recorded), call_of(recorded), PROVIDERS)

    assert (proof.messages, proof.body) == (Finding.DIFFERENT, Finding.IDENTICAL)
    assert proof.place is not None
    assert (proof.place.role, (proof.place.before or "")[:12], (proof.place.now or "")[:11]) == (
        "user",
        "was the copy",
        "is the copy",
    )
    assert "the code that fills the template has changed" in proof.reasons[0]
    assert not proof.proven


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"template_sha256": "0" * 64}, "the template grounded@2 was changed: recorded 000000000000"),
        ({"version": "99"}, "it can't be rendered by this version: config.prompt_version"),
    ],
)
def test_a_template_that_changed_or_is_gone_is_named(changes: dict[str, str], reason: str) -> None:
    request = make_request()
    prompt = with_text(render(request, AnswerProtocol.MARKERS), request, "When is", "When was")
    prompt = prompt.model_copy(update=changes)

    proof = prove(answered(request, prompt), call_of(prompt), PROVIDERS)

    assert proof.messages is Finding.DIFFERENT
    assert proof.reasons[0].startswith(reason)


def test_sources_that_changed_prove_nothing() -> None:
    request = make_request(context=(SourceContext(content=SOURCE),))
    prompt = render(request, AnswerProtocol.MARKERS)
    other = request.model_copy(update={"context": (SourceContext(content=SOURCE.replace("copy", "news")),)})

    proof = prove(answered(other, prompt), call_of(prompt), PROVIDERS)

    assert (proof.messages, proof.body) == (Finding.DIFFERENT, Finding.UNKNOWN)
    assert "the stored request was changed since, or a source removed" in proof.reasons[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"erased_at": datetime(2026, 11, 1, tzinfo=UTC)}, "it was erased on 2026-11-01 00:00 UTC"),
        ({"state": JobState.RUNNING, "finished_at": None}, "it is not final but running"),
    ],
)
def test_a_job_without_its_messages_is_not_compared(changes: dict[str, Any], reason: str) -> None:
    request = make_request()
    job = answered(request, render(request, AnswerProtocol.MARKERS), **changes)

    proof = prove(job, None, PROVIDERS)

    assert (proof.messages, proof.body, proof.proven) == (Finding.UNKNOWN, Finding.UNKNOWN, False)
    assert proof.reasons[0].startswith(reason)


def test_a_replay_and_an_unknown_provider_are_told_apart() -> None:
    request = make_request()
    prompt = render(request, AnswerProtocol.MARKERS)
    job = answered(request, prompt)

    assert prove(job, call_of(prompt, pinned=True), PROVIDERS).messages is Finding.STORED
    other = prove(job, call_of(prompt, body_sha256=b"\x01" * 32), PROVIDERS)
    assert (other.messages, other.body) == (Finding.IDENTICAL, Finding.DIFFERENT)
    assert "the code that writes its body" in other.reasons[0]
    lost = prove(job, call_of(prompt), Registry(ScriptedProvider(name="second")))
    assert (lost.messages, lost.body, lost.proven) == (Finding.IDENTICAL, Finding.UNKNOWN, True)
