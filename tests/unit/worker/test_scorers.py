"""A local model by its import path: what is taken, and what the operator reads when it can't be."""

from pathlib import Path

import pytest

from tasks.errors import ConfigurationError
from tests.scorers import NamedScorer
from worker.scorers import scorer_of
from worker.settings import Settings


def test_no_model_is_loaded_unless_the_settings_name_it() -> None:
    assert scorer_of(Settings()) is None


def test_a_model_is_loaded_by_its_import_path() -> None:
    assert isinstance(scorer_of(Settings(local_model="tests.scorers:NamedScorer")), NamedScorer)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("tests.scorers:broken", r"can't be built: FileNotFoundError: no weights \(.*scorers.py, line"),
        ("tests.scorers:Missing", "can't be loaded: AttributeError"),
        ("no_such_module:Model", "can't be loaded: ModuleNotFoundError"),
        ("tests.scorers:nameless", "has no 'name'"),
        ("no-such-directory", "is neither a directory nor a path"),
    ],
)
def test_an_invalid_model_is_refused_by_name(named: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        scorer_of(Settings(local_model=named))
