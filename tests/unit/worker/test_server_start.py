"""The message about an embedded server that ended while it started."""

import errno
from pathlib import Path

import pytest

from worker.local import HomeError
from worker.local.home import Home
from worker.local.servers import why_it_ended


def test_a_full_disk_is_one_sentence_without_the_servers_log(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text(
        'FATAL:  could not write to file "pg_wal/xlogtemp.1": No space left on device\n'
        "HINT:  some data is corrupted and you will have to use the last backup for recovery\n"
    )
    message = why_it_ended("postgres", log)
    assert message == (
        f"postgres ended while starting, because the disk of {tmp_path} is full: make room there. Nothing that was stored is lost"
    )


def test_another_cause_is_shown_by_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text("FATAL:  lock file is empty\n")
    assert why_it_ended("postgres", log).endswith(f"The end of {log}:\nFATAL:  lock file is empty")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_home_without_room_is_told_as_a_full_disk(number: int, tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    home.create()
    with pytest.raises(HomeError, match=r"^the disk of .* is full: make room there"), home.lock(1.0):
        raise OSError(number, "no room", "postgresql.conf")
