import gzip
import io
import json
import os
import sys
import threading
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemas.job import MAX_LINE_BYTES, MAX_REQUEST_BYTES, JobRequest, SourceContext
from schemas.states import Step
from tasks.errors import InputError
from tasks.ports import NewBatch, Refused
from tasks.submission.identity import canonical
from worker.operations.file_submission import SMALL, Intake
from worker.operations.json_lines import check_files


def intake(*files: Path | str, strict: bool = False, **batch: Any) -> Intake:
    new = NewBatch(id=uuid4(), tenant="default", **batch)
    return Intake([str(file) for file in files], new, strict=strict, on_refused=lambda _: None)


def job(**fields: Any) -> str:
    return json.dumps({"query": "Why?", "context": ["Because."], **fields})


def written(path: Path, *lines: str, encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode(encoding))
    return path


def refused(taken: Intake) -> list[Refused]:
    list(taken.jobs())
    return taken.refused


def test_positions_count_the_lines_that_are_not_blank_over_all_files(tmp_path: Path) -> None:
    one = written(tmp_path / "one", job(), "", "{", "  ", job())
    two = written(tmp_path / "two", "", job())
    taken = intake(one, two)
    assert [new.position for new in taken.jobs()] == [0, 2, 3]
    assert [(bad.position, bad.place) for bad in taken.refused] == [(1, f"{one}, line 3")]
    assert (taken.lines, taken.accepted) == (4, 3)


def test_byte_order_mark_and_windows_line_ends_are_no_part_of_a_line(tmp_path: Path) -> None:
    taken = intake(written(tmp_path / "in", job(), job(), "", encoding="utf-8-sig", end="\r\n"))
    assert len(list(taken.jobs())) == 2
    assert not taken.refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "a job must be a JSON object, this is a list"),
        ('"text"', "this is a string"),
        ("null", "this is null"),
        ("7", "this is a number"),
        (job(query=""), "'query' is missing or empty"),
        (job(config={"temperature": 9}), "config.temperature"),
        (job(config={"temprature": 1}), "config.temprature: unknown field"),
        (job(context="x"), "context"),
        (job(query="a\0b"), "query: holds the character U+0000"),
        ('{"query": "\\ud800", "context": []}', "not valid JSON"),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_it(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "in", job(), line, job())
    (bad,) = refused(intake(path))
    assert bad.position == 1
    assert str(bad).startswith(f"{path}, line 2: ")
    assert message in bad.message


@pytest.mark.parametrize("field", ["custom_id", "message_id"])
def test_an_id_that_stands_twice_is_a_bad_line(tmp_path: Path, field: str) -> None:
    one = written(tmp_path / "one", job(**{field: "a"}))
    two = written(tmp_path / "two", job(**{field: "b"}), job(**{field: "a"}))
    (bad,) = refused(intake(one, two))
    assert (bad.position, bad.message) == (2, f"{field}: 'a' stands already in {one}, line 1")


def test_a_bad_line_keeps_its_custom_id(tmp_path: Path) -> None:
    lines = (job(custom_id="a", config=1), job(custom_id=7), "[]", "{")
    assert [bad.custom_id for bad in refused(intake(written(tmp_path / "in", *lines)))] == ["a", None, None, None]


def test_strict_reads_on_to_name_all_that_is_wrong_but_gives_no_more_jobs(tmp_path: Path) -> None:
    taken = intake(written(tmp_path / "in", job(), "{", job(), "["), strict=True)
    given = []
    with pytest.raises(InputError, match="2 of 4 lines"):
        given.extend(taken.jobs())
    assert [bad.position for bad in taken.refused] == [1, 3]
    assert taken.accepted == 1


def test_unknown_keys_are_warned_of_once_with_their_count(tmp_path: Path) -> None:
    taken = intake(written(tmp_path / "in", job(extra=1), job(extra=2)))
    list(taken.jobs())
    assert taken.warnings == {"unknown keys were put into metadata: 'extra'": 2}


def test_the_first_jobs_are_remembered_with_their_step(tmp_path: Path) -> None:
    taken = intake(written(tmp_path / "in", job(response="Because."), *(job() for _ in range(SMALL))))
    given = list(taken.jobs())
    assert len(taken.first) == SMALL
    assert taken.first[given[0].id] is Step.CHECK
    assert taken.first[given[1].id] is Step.GENERATE


class Endless(io.RawIOBase):
    """A file of one line with no end in sight: ``size`` bytes made as they are read, then two good lines."""

    def __init__(self, size: int) -> None:
        self.left, self.after = size, f"\n{job()}\n{job()}\n".encode()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.left) or min(len(buffer), len(self.after))
        if self.left:
            buffer[:count] = b"x" * count
            self.left -= count
        else:
            buffer[:count], self.after = self.after[:count], self.after[count:]
        return count


def test_no_more_of_a_long_line_than_its_limit_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.operations.json_lines.MAX_LINE_BYTES", 1_000_000)
    given = io.BufferedReader(Endless(60_000_000))
    monkeypatch.setattr("worker.operations.json_lines._opened", lambda _: nullcontext(given))
    taken = intake(tmp_path / "in")
    tracemalloc.start()
    try:
        jobs = list(taken.jobs())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [new.position for new in jobs] == [1, 2]
    (bad,) = taken.refused
    assert str(bad).startswith(f"{tmp_path / 'in'}, line 1: the line is longer than 1,000,000 bytes")
    assert most < 10_000_000


def test_a_line_as_long_as_the_limit_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = job()
    for most, accepted in ((len(line), [0, 1]), (len(line) - 1, [])):
        monkeypatch.setattr("worker.operations.json_lines.MAX_LINE_BYTES", most)
        taken = intake(written(tmp_path / "in", line, line))
        assert [new.position for new in taken.jobs()] == accepted
        assert len(taken.refused) == 2 - len(accepted)


def test_nothing_is_taken_of_a_file_with_a_long_line_in_strict_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.operations.json_lines.MAX_LINE_BYTES", 200)
    taken = intake(written(tmp_path / "in", job(), "x" * 5000, job()), strict=True)
    with pytest.raises(InputError, match="1 of 3 lines"):
        list(taken.jobs())


def test_what_any_writer_makes_of_the_largest_job_fits_on_a_line() -> None:
    sources = ["ж" * 500_000] * 15
    stored, _ = canonical(JobRequest(query="Why?", context=tuple(map(SourceContext.model_validate, sources))))
    assert MAX_REQUEST_BYTES * 0.9 < len(stored) < MAX_REQUEST_BYTES
    assert len(job(context=sources)) < MAX_LINE_BYTES


def test_gzip_is_known_by_its_content_whatever_the_name(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(f"{job()}\n{job()}\n".encode()))
    plain = written(tmp_path / "plain.gz", job())
    assert len(list(intake(packed, plain).jobs())) == 3


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(job().encode())[:-9])
    with pytest.raises(InputError, match=r"in\.gz can't be read"):
        list(intake(path).jobs())


def test_utf_16_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-16"):
        list(intake(written(tmp_path / "in", job(), encoding="utf-16")).jobs())


def test_a_pipe_is_read_to_its_end_before_the_first_job_is_given(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(f"{job()}\n{job()}\n"))
    writer.start()
    jobs = intake(pipe).jobs()
    next(jobs)
    writer.join(5)
    assert not writer.is_alive()
    assert len(list(jobs)) == 1


def test_standard_input_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "in", job(), "{")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(path.open("rb")))
    (bad,) = refused(intake("-"))
    assert bad.place == "standard input, line 2"


def test_files_are_checked_before_anything_is_started(tmp_path: Path) -> None:
    there = written(tmp_path / "there", job())
    check_files([str(there), "-"])
    for files, message in (
        ([], "no file is given"),
        (["-", "-"], "only once"),
        ([str(tmp_path)], "is a directory"),
        ([str(there), str(tmp_path / "gone")], "gone does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            check_files(files)
