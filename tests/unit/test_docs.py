"""The docs say what the code says."""

import runpy
from pathlib import Path

import pytest

from schemas.record import GenerationRecord, JobResult
from schemas.states import JobState, Outcome
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


def test_configure_is_what_the_settings_and_the_contract_make() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))

    assert (DOCS / "configure.md").read_text() == reference["configure"](), "run: python docs/reference.py"


def test_formats_shows_what_the_renderer_makes() -> None:
    page = runpy.run_path(str(DOCS / "formats.py"))

    assert (DOCS / "formats.md").read_text() == page["formats"](), "run: python docs/formats.py"


@pytest.mark.parametrize("model", [GenerationRecord, JobResult])
def test_every_field_of_record_and_result_is_explained(model: type[GenerationRecord]) -> None:
    text = (DOCS / "record.md").read_text()

    assert [name for name in model.model_fields if f"`{name}`" not in text] == []


def test_every_outcome_and_state_is_explained() -> None:
    text = (DOCS / "how-it-works.md").read_text()

    assert [word for word in (*JobState, *Outcome) if word.value not in text] == []


def test_every_setting_and_option_says_what_it_means() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
