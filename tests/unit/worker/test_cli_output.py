import gzip
import os
import threading
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemas.generation import CitationStyle, OutputFormat
from tasks.errors import InputError
from tasks.results import result_of
from tests.unit.tasks.test_restyle import SEGMENTS, view
from worker.cli.commands.stored_results import Styling, style_of
from worker.cli.exits import OutputFailed
from worker.cli.outfile import check_output, writing


def write(path: Path, content: bytes, error: Exception | None = None) -> None:
    with writing(str(path)) as file:
        file.write(content)
        if error is not None:
            raise error


def test_an_output_file_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(KeyError):
        write(path, b"half", error=KeyError())
    assert path.read_text() == "before"
    with writing(str(path)) as file:
        file.write(b"whole")
        assert path.read_text() == "before"
    assert path.read_text() == "whole"
    assert (tmp_path / "out.previous").read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "out.previous"]


def test_a_link_and_a_pipe_are_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    with writing(str(tmp_path / "link")) as file:
        file.write(b"after")
    assert target.read_text() == "after"
    assert (tmp_path / "link").is_symlink()

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with writing(str(pipe)) as file:
        file.write(b"through")
    reader.join(5)
    assert read == ["through"]
    assert pipe.is_fifo()


def test_an_unwritable_output_is_refused_before_the_work(tmp_path: Path) -> None:
    input_path = tmp_path / "in"
    input_path.write_text("")
    check_output("-")
    check_output(str(tmp_path / "out"), [str(input_path), "-"])
    for output, message in (
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "no" / "out"), "there is no directory"),
        (str(input_path), "is an input too"),
    ):
        with pytest.raises(InputError, match=message):
            check_output(output, [str(input_path)])


def test_a_full_disk_is_reported_by_name() -> None:
    with pytest.raises(OutputFailed, match="No space left"):
        write(Path("/dev/full"), b"something")


def test_results_are_rendered_again_only_for_another_style() -> None:
    stored = view(SEGMENTS)
    restyled = Styling(CitationStyle.ENDNOTE, OutputFormat.STEPS).result(stored)
    assert restyled.response.startswith("1. The night desk opens at nine. It closes at four [1].\n2. ")
    assert Styling(with_sources=True).result(stored).response != result_of(stored).response
    assert "Confidence: " in Styling(with_confidence=True).result(stored).response
    assert "nine. It closes at four (1)." in Styling(style_of("({index})")).result(stored).response
    assert style_of("endnote") is CitationStyle.ENDNOTE
    with pytest.raises(InputError, match="must be one of 'source'"):
        style_of("endnotes")
    with pytest.raises(InputError, match="name a format"):
        Styling(output_format=OutputFormat.AUTO)


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.csv", "answers.jsonl.gz"])
def test_results_of_another_batch_are_kept_beside(tmp_path: Path, name: str) -> None:
    path, batch_id = tmp_path / name, uuid4()

    def write(batch_id: UUID | None, text: bytes) -> list[str]:
        with writing(str(path), batch_id) as file:
            file.write(text)
        return sorted(each.name for each in tmp_path.iterdir() if each != path)

    assert write(batch_id, b'{"batch_id": "%s"}' % str(batch_id).encode()) == []
    assert write(batch_id, b'{"batch_id": "%s", "more": 1}' % str(batch_id).encode()) == []
    copies = [name.replace(".", ".previous.", 1)]
    assert write(uuid4(), b"of tonight") == copies
    with gzip.open(tmp_path / copies[0]) if name.endswith(".gz") else (tmp_path / copies[0]).open("rb") as file:
        assert b'"more"' in file.read()
    assert write(None, b"of nobody") == sorted([*copies, name.replace(".", ".previous-2.", 1)])
