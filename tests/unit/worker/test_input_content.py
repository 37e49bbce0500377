"""The digest of an input: what decides answers changes it, what only spells them otherwise does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.ports import Content
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Submission
from worker.operations.input_content import SameInput, basis_of
from worker.settings import Settings

JOBS = [{"query": f"Question {n}?", "context": ["Because."]} for n in range(30)]


def content(
    path: Path, jobs: list[dict[str, Any]], batch: dict[str, Any] | None = None, **settings: Any
) -> Content | None:
    """The digests by which a submission of these jobs is found."""
    path.write_text("\n".join(json.dumps(job) for job in jobs))
    submission = Submission(
        InputOrder([str(path)], batch or {}, same_input=SameInput.TAKE_EARLIER),
        Settings(**{"provider": "extractive", **settings}),
    )
    for _ in submission._chunks:
        pass
    return submission.batch.content() if submission.batch.content is not None else None


def test_the_same_jobs_in_another_spelling_are_the_same_input(tmp_path: Path) -> None:
    first = content(tmp_path / "a.jsonl", JOBS)
    turned = [{key: job[key] for key in reversed(job)} for job in JOBS]
    assert first is not None
    assert content(tmp_path / "b.jsonl", turned, {"name": "tonight", "max_cost_usd": "5"}) == first


@pytest.mark.parametrize(
    "other",
    [
        {"settings": {"model": "another"}},
        {"settings": {"strictness": "lenient"}},
        {"batch": {"defaults": {"temperature": 0.7}}},
        {"jobs": [*JOBS[:-1], {"query": "Another question?", "context": ["Because."]}]},
        {"jobs": [*reversed(JOBS)]},
        {"jobs": [*JOBS, {"no": "job"}]},
    ],
    ids=["model", "strictness", "defaults", "last job", "order", "a refused line more"],
)
def test_whatever_decides_answers_makes_another_input(tmp_path: Path, other: dict[str, Any]) -> None:
    first = content(tmp_path / "a.jsonl", JOBS)
    second = content(tmp_path / "b.jsonl", other.get("jobs", JOBS), other.get("batch"), **other.get("settings", {}))
    assert first is not None
    assert second is not None
    assert first.whole != second.whole


def test_limits_decide_no_answer_and_addresses_do() -> None:
    def basis(variables: dict[str, str], **fields: Any) -> bytes:
        provider = {"kind": "openai_chat", "base_url": "http://localhost:1", "model": "m", **fields}
        return basis_of(Settings(providers={"own": provider}), check_only=False, environment=variables)

    plain = basis({})
    assert basis({}, limits={"max_concurrency": 3}) == plain
    assert basis({}, base_url="http://localhost:2") != plain
    assert basis({"OPENAI_BASE_URL": "http://localhost:1"}) != plain
