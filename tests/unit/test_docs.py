"""The docs say what the code says."""

import pkgutil
import re
import runpy
from pathlib import Path

import pytest

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.quality import QualityConstants
from schemas.record import GenerationRecord, JobResult
from schemas.states import JobState, Outcome
from tasks.prompting.messages import render
from tasks.prompting.own_templates import use_templates
from tasks.text.language import SUPPORTED, language_tables
from tests.faults.experiments import EXPERIMENTS
from tests.http_routes import RULES
from worker.cli.commands import NAMES
from worker.operations.uploaded_batches import ENDPOINT
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
EXAMPLE = REPOSITORY / "examples" / "extensions"
NEW_FILES = {
    "worker/providers/NAME.py",
}
"""Files that a reader of extend.md writes."""
PAGES = (REPOSITORY / "README.md", *DOCS.glob("*.md"))


def test_configure_page_matches_the_settings_and_the_contract() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))

    assert (DOCS / "configure.md").read_text() == reference["configure"](), "run: python -m docs.reference"


def test_formats_page_matches_the_renderer() -> None:
    page = runpy.run_path(str(DOCS / "formats.py"))

    assert (DOCS / "formats.md").read_text() == page["formats"](), "run: python -m docs.formats"


def test_every_output_on_the_pages_of_examples_is_the_present_one() -> None:
    generator = runpy.run_path(str(DOCS / "generation.py"))

    outdated = [page.name for page, text in generator["pages"]().items() if page.read_text() != text]

    assert outdated == [], "run: python -m docs.generation"


def test_every_page_is_linked_from_the_index_and_the_index_from_the_readme() -> None:
    index = (DOCS / "README.md").read_text()

    assert [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []
    assert "(docs/README.md)" in (REPOSITORY / "README.md").read_text()


def test_every_link_between_the_pages_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([\w./-]*?)(?:#([\w-]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            if not other.exists() or (anchor and anchor not in _anchors(other)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def test_every_path_on_the_pages_is_in_the_tree() -> None:
    missing = [
        f"{page.name}: {path}"
        for page in PAGES
        for path in re.findall(
            r"(?<![\w/.@-])(?:worker|tasks|schemas|tests|bench|docs|deploy)/[\w./@-]*\w", page.read_text()
        )
        if path not in NEW_FILES and not (REPOSITORY / path).exists()
    ]
    assert missing == []


def test_every_name_on_the_page_of_extensions_is_in_a_file_that_it_names() -> None:
    page = (DOCS / "extend.md").read_text()
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    paths = [REPOSITORY / path for path in re.findall(r"`((?:worker|tasks|schemas|tests)/[\w./]+\.py)`", prose)]
    code = "".join(path.read_text() for path in paths if path.exists())
    names = set(re.findall(r"`(_?[A-Z][A-Z_]{3,}|[A-Z][a-z]+(?:[A-Z][a-z]+)+)`", prose))
    names -= {*(f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields)}

    assert len(names) > 10
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", code)) == []


def test_every_module_on_the_pages_can_be_found() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"\b(?:worker|tasks|schemas)(?:\.[A-Za-z_]\w*)+", page.read_text())
        if not _resolves(name)
    ]
    assert missing == []


def _resolves(name: str) -> bool:
    """A dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def test_every_setting_on_the_pages_is_one() -> None:
    settings = {f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields} | {"NIGHTDESK_CONFIG"}
    mentioned = {
        (page.name, name) for page in PAGES for name in re.findall(r"NIGHTDESK_[A-Z][A-Z_]*[A-Z]", page.read_text())
    }

    assert sorted(item for item in mentioned if item[1] not in settings) == []


def _tests() -> str:
    return "".join(path.read_text() for path in (REPOSITORY / "tests").rglob("*.py") if path != Path(__file__))


def test_every_setting_is_set_by_a_test() -> None:
    names = re.findall(r"NIGHTDESK_([A-Z_]+)|(\w+)(?==|\"\]|\":)", _tests())
    named = {name.lower() for pair in names for name in pair}

    assert sorted(Settings.model_fields.keys() - named) == []


def test_every_command_is_run_by_a_test() -> None:
    text = _tests()

    assert [name for name in NAMES if not re.search(rf"[\[(]\s*\"{name}\"|\"{name}\"\]", text)] == []


def test_every_address_on_the_pages_is_a_route_and_every_route_of_programs_is_on_a_page() -> None:
    """Tests send a request to each of these routes (tests/http_routes.py)."""
    text = "".join((DOCS / page).read_text() for page in ("http.md", "viewer.md"))
    routes = {rule.partition(" ")[2] for rule in RULES}
    patterns = {route: re.sub(r"\{[^}]+\}", "[^/?]+", route.removesuffix("/{path:path}")) for route in routes}
    mentioned = set(re.findall(r"(?:NIGHTDESK|GET|POST|`)\"? ?(/(?:v1|view|openai)/[^\s\"`?'|)]*)", text)) - {ENDPOINT}

    assert len(mentioned) > 15
    assert [path for path in mentioned if not any(re.fullmatch(each, path) for each in patterns.values())] == []
    programs = {route for route in routes if route.startswith("/v1/")}
    assert [route for route in programs if not any(re.fullmatch(patterns[route], path) for path in mentioned)] == []


def test_every_command_on_the_pages_is_one() -> None:
    mentioned = {
        (page.name, name) for page in PAGES for name in re.findall(r"[`$] ?nightdesk ([a-z]+)", page.read_text())
    }

    assert sorted(item for item in mentioned if item[1] not in NAMES) == []


def _anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_quality_page_matches_the_constants_of_the_code() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))
    text = (DOCS / "quality.md").read_text()

    assert text == reference["quality"](), "run: python -m docs.reference"
    assert [name for name in QualityConstants.model_fields if f"| `{name}` |" not in text] == []


def test_quality_page_shows_the_texts_of_the_messages() -> None:
    text = (DOCS / "quality.md").read_text()

    messages = {code: language_tables()[code]["messages"]["abstained"] for code in SUPPORTED}
    assert [code for code, message in messages.items() if f"| {code} | {message} |" not in text] == []


@pytest.mark.parametrize("model", [GenerationRecord, JobResult])
def test_every_field_of_record_and_result_is_explained(model: type[GenerationRecord]) -> None:
    text = (DOCS / "record.md").read_text()

    assert [name for name in model.model_fields if f"`{name}`" not in text] == []


def test_failures_page_has_words_of_each_experiment_and_no_others() -> None:
    rows = [line for line in (DOCS / "failures.md").read_text().splitlines() if line.startswith("| ")]
    last = [row.rsplit(" | ", 1)[1].removesuffix(" |") for row in rows if not row.startswith(("| ---", "| failure"))]
    words = [word for cell in last if not cell.startswith("none") for word in re.findall("`([^`]+)`", cell)]
    names = [experiment.name for experiment in EXPERIMENTS]

    assert [name for name in names if not any(word in name for word in words)] == []
    assert [word for word in words if not any(word in name for name in names)] == []


def test_every_outcome_and_state_is_explained() -> None:
    text = (DOCS / "how-it-works.md").read_text()

    assert [word for word in (*JobState, *Outcome) if word.value not in text] == []


def test_every_setting_and_option_says_what_it_means() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def _code(page: str, language: str, start: str) -> str:
    """The block of code on a page in a language, by the words that it starts with."""
    (block,) = re.findall(rf"```{language}\n({re.escape(start)}.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(block)


def test_the_template_on_the_page_is_that_of_the_package() -> None:
    assert _code("extend.md", "jinja", "{%") == (EXAMPLE / "templates" / "terse@1.j2").read_text()


def test_the_template_on_the_page_renders(tmp_path: Path) -> None:
    (tmp_path / "terse@1.j2").write_text(_code("extend.md", "jinja", "{%"))
    use_templates(tmp_path)
    try:
        config = {"prompt_name": "terse"}
        request = JobRequest(query="When?", context=["The gate is closed at nine."], config=config)
        prompt = render(request, AnswerProtocol.SEGMENTS)
    finally:
        use_templates(None)

    assert (prompt.name, prompt.version) == ("terse", "1")
    system = prompt.snapshot.texts([source.content for source in request.context])[0][1]
    assert system.startswith("Answer in one sentence of at most twelve words")
