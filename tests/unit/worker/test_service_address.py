"""The address of the running HTTP service, as other commands find it."""

import os
from pathlib import Path

import orjson
import pytest

from tests.builders import new_id
from worker.supervise.service_address import batch_address, forget_service, note_service, service_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://0.0.0.0:8080", "http://localhost:8080"),
        ("http://[::]:81", "http://localhost:81"),
        ("http://[::1]:81", "http://[::1]:81"),
    ],
)
def test_the_address_of_a_service_is_there_until_it_ends(tmp_path: Path, address: str, expected: str) -> None:
    assert service_address(tmp_path) is None

    note_service(tmp_path, address)
    batch_id = new_id()

    assert service_address(tmp_path) == expected
    assert batch_address(tmp_path, batch_id) == f"{expected}/view/batches/{batch_id}"
    forget_service(tmp_path)
    assert batch_address(tmp_path, batch_id) is None
    forget_service(tmp_path)


def test_a_note_of_a_process_that_is_gone_or_of_nobody_names_no_service(tmp_path: Path) -> None:
    note_service(tmp_path, "http://127.0.0.1:8080")
    (file,) = tmp_path.iterdir()
    note = orjson.loads(file.read_bytes())
    for other in ({**note, "born": note["born"] - 1}, {**note, "pid": 2**22 + 1}, {**note, "pid": "x"}, [], {}):
        file.write_bytes(orjson.dumps(other))
        assert service_address(tmp_path) is None, other
    file.write_bytes(b"{")
    assert service_address(tmp_path) is None


def test_the_end_of_a_service_leaves_the_note_of_the_next(tmp_path: Path) -> None:
    note_service(tmp_path, "http://127.0.0.1:8080")
    (file,) = tmp_path.iterdir()
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "pid": os.getppid()}))

    forget_service(tmp_path)

    assert file.exists()


def test_a_home_that_is_not_there_is_made_and_one_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "new" / "home"
    note_service(home, "http://127.0.0.1:8080")
    assert service_address(home) == "http://127.0.0.1:8080"
    (tmp_path / "file").touch()
    note_service(tmp_path / "file", "http://127.0.0.1:8080")
    assert "service.json can't be written" in caplog.text
