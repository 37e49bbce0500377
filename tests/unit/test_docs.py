"""The docs say what the code says."""

import re
import runpy
from pathlib import Path

import pytest

from schemas.quality import QualityConstants
from schemas.record import GenerationRecord, JobResult
from schemas.states import JobState, Outcome
from tasks.text.language import SUPPORTED, language_tables
from tests.faults.experiments import EXPERIMENTS
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


def test_configure_is_what_the_settings_and_the_contract_make() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))

    assert (DOCS / "configure.md").read_text() == reference["configure"](), "run: python docs/reference.py"


def test_formats_shows_what_the_renderer_makes() -> None:
    page = runpy.run_path(str(DOCS / "formats.py"))

    assert (DOCS / "formats.md").read_text() == page["formats"](), "run: python docs/formats.py"


def test_every_output_on_the_page_of_the_generation_layer_is_what_comes_now() -> None:
    page = runpy.run_path(str(DOCS / "generation.py"))

    assert (DOCS / "generation.md").read_text() == page["generation"](), "run: python docs/generation.py"


def test_every_page_is_linked_from_the_readme() -> None:
    text = (REPOSITORY / "README.md").read_text()

    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in text] == []


def test_every_link_between_the_pages_leads_somewhere() -> None:
    broken = []
    for page in (REPOSITORY / "README.md", *DOCS.glob("*.md")):
        for target, anchor in re.findall(r"\]\(([\w./-]*?)(?:#([\w-]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            if not other.exists() or (anchor and anchor not in _anchors(other)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_constants_of_the_quality_are_those_of_the_code() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))
    text = (DOCS / "quality.md").read_text()

    assert text == reference["quality"](), "run: python docs/reference.py"
    assert [name for name in QualityConstants.model_fields if f"| `{name}` |" not in text] == []


def test_the_texts_shown_are_those_told() -> None:
    text = (DOCS / "quality.md").read_text()

    messages = {code: language_tables()[code]["messages"]["abstained"] for code in SUPPORTED}
    assert [code for code, message in messages.items() if f"| {code} | {message} |" not in text] == []


@pytest.mark.parametrize("model", [GenerationRecord, JobResult])
def test_every_field_of_record_and_result_is_explained(model: type[GenerationRecord]) -> None:
    text = (DOCS / "record.md").read_text()

    assert [name for name in model.model_fields if f"`{name}`" not in text] == []


def test_every_experiment_is_explained_and_every_one_explained_is_there() -> None:
    rows = [line for line in (DOCS / "failures.md").read_text().splitlines() if line.startswith("| ")]
    last = [row.rsplit(" | ", 1)[1].removesuffix(" |") for row in rows if not row.startswith(("| ---", "| failure"))]
    named = [name for cell in last if not cell.startswith("none") for name in re.findall("`([^`]+)`", cell)]

    assert sorted(named) == sorted(one.name for one in EXPERIMENTS)


def test_every_outcome_and_state_is_explained() -> None:
    text = (DOCS / "how-it-works.md").read_text()

    assert [word for word in (*JobState, *Outcome) if word.value not in text] == []


def test_every_setting_and_option_says_what_it_means() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
