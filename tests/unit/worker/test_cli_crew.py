import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from worker.cli.crew import Crew, Post, checking_posts, crew_of, crews_in, local_processes, posts
from worker.cli.exits import InUse
from worker.cli.place import Place
from worker.settings import Settings


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "home")
    place.create()
    return place


@pytest.fixture
def sleeper(place: Place) -> Iterator["subprocess.Popen[bytes]"]:
    """A process whose command line names the record of the worker 'generate'."""
    record = place.workers / "generate.pid"
    process = subprocess.Popen([sys.executable, "-c", "input()", str(record)], stdin=subprocess.PIPE)
    with process:
        yield process
        process.kill()


def note(place: Place, name: str, pid: int | str) -> None:
    (place.workers / f"{name}.pid").write_text(f'{pid}\n{{"queues": ["generate"], "passing": true, "settings": "x"}}\n')


def test_one_process_holds_the_calls_and_the_others_check() -> None:
    assert posts(1) == (Post("all", ("generate", "check", "submit")),)
    assert posts(3) == (
        Post("generate", ("generate", "submit")),
        Post("check-1", ("check",)),
        Post("check-2", ("check",)),
    )
    assert len(posts()) >= 2


def test_the_local_model_gets_processes_of_its_own() -> None:
    of_model = (Post("local-1", ("local",)), Post("local-2", ("local",)))
    assert posts(1, local=2) == (*posts(1), *of_model)
    assert posts(3, local=2) == (*posts(3), *of_model)
    assert checking_posts(local=2) == (*checking_posts(), *of_model)
    assert {queue for post in checking_posts() for queue in post.queues} == {"check"}
    assert local_processes(Settings(local_model_processes=3)) == 0
    assert local_processes(Settings(local_model="a.module:Model", local_model_processes=3)) == 3


def test_what_the_settings_name_by_a_path_is_found_from_where_workers_start(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    monkeypatch.setenv("NIGHTDESK_LOCAL_MODEL", "model")
    assert Crew(place)._environment()["NIGHTDESK_LOCAL_MODEL"] == str(tmp_path / "model")
    monkeypatch.setenv("NIGHTDESK_LOCAL_MODEL", "a.module:Model")
    assert Crew(place)._environment()["NIGHTDESK_LOCAL_MODEL"] == "a.module:Model"


def test_a_worker_is_known_by_the_record_that_its_command_line_names(
    place: Place, sleeper: "subprocess.Popen[bytes]"
) -> None:
    note(place, "generate", sleeper.pid)
    assert {name: hand.pid for name, hand in Crew(place).running().items()} == {"generate": sleeper.pid}


def test_a_process_id_that_belongs_to_another_by_now_is_no_worker(
    place: Place, sleeper: "subprocess.Popen[bytes]"
) -> None:
    note(place, "check-1", sleeper.pid)
    assert Crew(place).running() == {}
    assert Crew(place).ended() == {"check-1"}


@pytest.mark.parametrize("content", ["", "x\n{}", "999999999\n{}", "7\n"])
def test_a_damaged_or_stale_record_is_no_worker(place: Place, content: str) -> None:
    (place.workers / "generate.pid").write_text(content)
    assert Crew(place).running() == {}
    Crew(place).clear()
    assert Crew(place).ended() == set()


def test_workers_for_other_servers_are_told_apart(place: Place) -> None:
    embedded = crew_of(Settings(), place)
    one = crew_of(Settings(database_url="postgresql://u:p@one/d", redis_url="redis://one"), place)
    two = crew_of(Settings(database_url="postgresql://u:p@two/d", redis_url="redis://one"), place)
    assert len({crew.log("generate") for crew in (embedded, one, two)}) == 3
    note(place, "generate", 999_999_999)
    note(place, one.log("generate").stem, 999_999_999)
    assert embedded.ended() == one.ended() == {"generate"}
    assert two.ended() == set()
    assert len(crews_in(place)) == 2


def test_the_last_of_several_users_is_told_so_and_only_once(place: Place) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(place.used()) for _ in range(2))
        with pytest.raises(InUse), place.alone(0):
            pass
        assert not one.is_last()
        assert two.is_last()
    with place.alone(0):
        pass


def test_whether_servers_are_passing_outlives_the_command(place: Place) -> None:
    assert not place.servers_are_passing
    place.mark_servers(passing=True)
    assert Place(place.root).servers_are_passing
    place.mark_servers(passing=False)
    place.mark_servers(passing=False)
    assert not place.servers_are_passing
