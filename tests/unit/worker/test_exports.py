"""Exports of other libraries, read as they meant them: the files of ``tests/exports`` were written by the libraries in their names, of that version."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tasks.ports import NewBatch
from tasks.submit import parse_request
from worker.operations.file_intake import InputOrder, Intake

EXPORTS = Path(__file__).parents[2] / "exports"
TERM = "The notice period is three months."
DEPOSIT = "The deposit is two monthly rents."


def exported(library: str) -> dict[str, Any]:
    (path,) = EXPORTS.glob(f"{library}-[0-9]*.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


DOCUMENTS = [
    (library, name, value)
    for library in ("langchain-core", "llama-index-core", "haystack-ai", "unstructured")
    for name, value in exported(library).items()
    if not name.startswith("messages")
]


@pytest.mark.parametrize(("library", "name", "value"), DOCUMENTS, ids=[f"{each[0]} {each[1]}" for each in DOCUMENTS])
def test_documents_of_a_library_are_sources_with_title_and_page(library: str, name: str, value: Any) -> None:
    request, _ = parse_request({"query": "How long is the notice period?", "documents": value})
    sources = [source for source in request.context if source.content]
    assert [source.content for source in sources] == [TERM, DEPOSIT][: len(sources)]
    assert {source.metadata["title"] for source in sources} == {"lease.pdf"}
    if name != "documents":
        assert [str(source.metadata["page"]) for source in sources] == ["1", "2"]
    scored = name in {"pairs", "source_nodes", "to_dict", "flat", "nested"}
    assert [source.relevance_score for source in sources] == ([0.8, 0.6] if scored else [None] * len(sources))
    assert not any("embed" in key or "relation" in key for source in sources for key in source.metadata)


@pytest.mark.parametrize("name", ["messages_messages_to_dict", "messages_model_dump"])
def test_messages_of_langchain_are_earlier_turns(name: str) -> None:
    request, _ = parse_request({"query": "Why?", "chat_history": exported("langchain-core")[name]})
    assert request.conversation_history == (("human", "Hi"), ("ai", "Yes?"))


def contents_of(path: Path) -> list[list[str]]:
    intake = Intake(InputOrder([str(path)], strict=True), NewBatch(id=uuid4(), tenant="default"))
    return [[source["content"] for source in json.loads(job.request)["context"]] for job in intake.jobs()]


@pytest.mark.parametrize("name", exported("pandas"))
def test_a_table_of_pandas_is_read_in_each_of_its_forms(tmp_path: Path, name: str) -> None:
    path = tmp_path / "in"
    path.write_text(exported("pandas")[name], encoding="utf-8")
    assert contents_of(path) == [[TERM, "It's new."], [DEPOSIT]]


@pytest.mark.parametrize("name", exported("datasets"))
def test_a_dataset_of_hugging_face_is_read_as_lines_and_as_a_table(tmp_path: Path, name: str) -> None:
    path = tmp_path / "in"
    path.write_text(exported("datasets")[name], encoding="utf-8")
    assert contents_of(path) == [[TERM, DEPOSIT]]
