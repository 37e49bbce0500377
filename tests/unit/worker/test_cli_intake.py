import gzip
import io
import json
import os
import threading
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemas.job import MAX_LINE_BYTES, MAX_REQUEST_BYTES, JobRequest, SourceContext
from tasks.errors import InputError
from tasks.ports import NewBatch, Refused
from tasks.submit import canonical
from worker.operations.file_intake import InputOrder, Intake
from worker.operations.json_lines import check_files


def intake(*files: Path | str, strict: bool = False, **batch: Any) -> Intake:
    new = NewBatch(id=uuid4(), tenant="default", **batch)
    return Intake(InputOrder([str(file) for file in files], strict=strict), new)


def job(**fields: Any) -> str:
    return json.dumps({"query": "Why?", "context": ["Because."], **fields})


def write_lines(path: Path, *lines: str, encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode(encoding))
    return path


def refused(reader: Intake) -> list[Refused]:
    list(reader.jobs())
    return reader.refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("{'query': 'Why?'}", "column 2: a key stands between quotation marks, which are double"),
        ("[1]", "a job must be a JSON object, this is a list"),
        (job(config={"temprature": 1}), "config.temprature: unknown field"),
        (job(context=[{"title": "x"}]), "context.0.content"),
        ('{"query": "\\ud800", "context": []}', "not valid JSON"),
        ('{"n": ' + "9" * 400 + "}", "column 7: a number is too large; send it as a text"),
        ("[" * 2_000, "lists and objects are nested too deeply"),
        ("{} {}", "column 4: something follows the value; put each job on a line of its own"),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_it(tmp_path: Path, line: str, message: str) -> None:
    path = write_lines(tmp_path / "in", job(), line, job())
    (bad,) = refused(intake(path))
    assert bad.position == 1
    assert str(bad).startswith(f"{path}, line 2: ")
    assert message in bad.message


@pytest.mark.parametrize("field", ["custom_id", "message_id"])
def test_an_id_that_stands_twice_is_a_bad_line(tmp_path: Path, field: str) -> None:
    first_path = write_lines(tmp_path / "one", job(**{field: "a"}))
    two = write_lines(tmp_path / "two", job(**{field: "b"}), job(**{field: "a"}))
    (bad,) = refused(intake(first_path, two))
    assert bad.position == 2
    assert bad.message == f"{field}: 'a' is already in {first_path}, line 1; give each row one of its own, or none"
    chunk = write_lines(tmp_path / "chunk", job(context=["More."], **{field: "a"}))
    assert (
        "line 1; a row is one job; to ask once with all sources: --group-by query"
        in refused(intake(first_path, chunk))[0].message
    )


def test_unknown_keys_are_warned_of_once_with_their_count(tmp_path: Path) -> None:
    reader = intake(write_lines(tmp_path / "in", job(extra=1), job(extra=2, more=3), job(response="So.")))
    list(reader.jobs())
    warnings: list[str] = []
    reader.warn_of_jobs(warnings.append)
    assert warnings == [
        "unknown keys were put into metadata: 'extra', 'more' (2 jobs)",
        "a line with 'response' holds an answer: it is checked, and none is made (1 job)",
    ]


class Endless(io.RawIOBase):
    """A file of one line with no end in sight: ``size`` bytes made as they are read, then two good lines."""

    def __init__(self, size: int) -> None:
        self.remaining, self.after = size, f"\n{job()}\n{job()}\n".encode()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.remaining) or min(len(buffer), len(self.after))
        if self.remaining:
            buffer[:count] = b"{" * count
            self.remaining -= count
        else:
            buffer[:count], self.after = self.after[:count], self.after[count:]
        return count


def test_at_most_the_limit_of_a_long_line_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.operations.json_lines.MAX_LINE_BYTES", 1_000_000)
    endless = io.BufferedReader(Endless(60_000_000))
    monkeypatch.setattr("worker.operations.json_lines.opened", lambda _: nullcontext(endless))
    reader = intake(tmp_path / "in")
    tracemalloc.start()
    try:
        jobs = list(reader.jobs())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [new.position for new in jobs] == [1, 2]
    (bad,) = reader.refused
    assert str(bad).startswith(f"{tmp_path / 'in'}, line 1: the line is longer than 1,000,000 bytes")
    assert most < 10_000_000


def test_a_line_as_long_as_the_limit_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = job()
    for most, accepted in ((len(line), [0, 1]), (len(line) - 1, [])):
        monkeypatch.setattr("worker.operations.json_lines.MAX_LINE_BYTES", most)
        reader = intake(write_lines(tmp_path / "in", line, line))
        assert [new.position for new in reader.jobs()] == accepted
        assert len(reader.refused) == 2 - len(accepted)


def test_the_largest_job_fits_on_a_line_in_any_encoding() -> None:
    sources = ["ж" * 500_000] * 15
    stored, _ = canonical(JobRequest(query="Why?", context=tuple(map(SourceContext.model_validate, sources))))
    assert MAX_REQUEST_BYTES * 0.9 < len(stored) < MAX_REQUEST_BYTES
    assert len(job(context=sources)) < MAX_LINE_BYTES


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(job().encode())[:-9])
    with pytest.raises(InputError, match=r"in\.gz can't be read"):
        list(intake(path).jobs())


def test_a_pipe_is_read_to_its_end_before_the_first_job(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(f"{job()}\n{job()}\n"))
    writer.start()
    jobs = intake(pipe).jobs()
    next(jobs)
    writer.join(5)
    assert not writer.is_alive()
    assert len(list(jobs)) == 1


def test_files_are_checked_before_anything_is_started(tmp_path: Path) -> None:
    there = write_lines(tmp_path / "there", job())
    check_files([str(there), "-"])
    for files, message in (
        ([], "no file is given"),
        (["-", "-"], "only once"),
        ([str(tmp_path)], "is a directory"),
        ([str(there), str(tmp_path / "gone")], "gone does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            check_files(files)
