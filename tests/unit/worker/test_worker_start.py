"""A worker process that can't do what its queues ask for ends at once, naming the setting."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from schemas.generation import CheckerName, Strictness
from tasks.errors import ConfigurationError
from tasks.grounding import CHECKERS, use_calibration, use_local_model
from tasks.policy.outcome import use_strictness
from worker.cli.commands.services import _all
from worker.local import Endpoints
from worker.process.alive_file import prepare
from worker.process.main import _load_model, _prepare_check, run_worker
from worker.settings import SECRETS, Settings, load_settings, mistyped

NOWHERE = Endpoints("postgresql://127.0.0.1:1/none", "redis://127.0.0.1:1/0")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    use_calibration(None)
    use_local_model(None)
    use_strictness(Strictness.BALANCED)


@pytest.mark.parametrize(
    ("local_model", "queues", "message"),
    [
        (None, ["local"], "queue local is for workers with a local model: set NIGHTDESK_LOCAL_MODEL"),
        (None, ["check", "local"], "or leave local out of --queues"),
        ("tests.scorers:broken", ["local"], "NIGHTDESK_LOCAL_MODEL: .*FileNotFoundError: no weights"),
        ("no-such-directory", ["generate", "local"], "NIGHTDESK_LOCAL_MODEL: .*neither a directory nor a path"),
        (None, ["locale"], "unknown queue locale: choose from generate, check, local, submit, urgent"),
        (None, ["urgent", "check"], "urgent is for workers that take nothing else: leave out the other queues"),
    ],
)
def test_wrong_settings_are_reported_before_the_first_lease(
    local_model: str | None, queues: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_worker(Settings(local_model=local_model), NOWHERE, queues)


def test_a_worker_without_queue_options_serves_every_possible_queue() -> None:
    assert _all(Settings()) == ["generate", "check", "submit"]
    assert _all(Settings(local_model="tests.scorers:NamedScorer")) == ["generate", "check", "local", "submit"]


def test_only_workers_of_the_local_queue_load_the_model() -> None:
    _prepare_check(Settings(local_model="tests.scorers:broken"), ["generate", "check", "submit"])
    assert CheckerName.LOCAL not in CHECKERS
    loaded = _load_model(Settings(local_model="tests.scorers:NamedScorer"))
    assert loaded == "the local model says-who-3 is loaded"
    assert CHECKERS[CheckerName.LOCAL].version == "says-who-3"


@pytest.mark.parametrize(
    ("content", "variable", "problem"),
    [
        (None, "", "_FILE names .*secret, which can't be read .No such file or directory.; correct the path"),
        (b" \n", "", "_FILE names .*secret, which is empty; write the value of NIGHTDESK_DATABASE_URL into it"),
        (b"\xff", "", "_FILE names .*secret, which can't be read .it is no text."),
        (
            b"postgresql://of/file\n",
            "postgresql://of/variable",
            "NIGHTDESK_DATABASE_URL and NIGHTDESK_DATABASE_URL_FILE are both set",
        ),
        (b"postgresql://of/file\n", "", None),
    ],
)
def test_the_secrets_of_settings_may_stand_in_files(
    content: bytes | None, variable: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("NIGHTDESK_DATABASE_URL_FILE", str(file))
    monkeypatch.setenv("NIGHTDESK_DATABASE_URL", variable)
    if problem is None:
        assert load_settings().database_url == SecretStr("postgresql://of/file")
    else:
        with pytest.raises(ConfigurationError, match=problem):
            load_settings()
    assert not mistyped(f"{name}_FILE" for name in SECRETS)


def test_a_file_that_cannot_be_touched_stops_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "alive"
    with pytest.raises(ConfigurationError, match=r"NIGHTDESK_ALIVE_FILE: .*none/alive can't be written"):
        prepare(missing)


def test_the_file_of_an_earlier_process_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    path.touch()
    prepare(path)
    assert not path.exists()
