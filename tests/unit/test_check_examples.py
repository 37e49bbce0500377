"""The examples of docs/checks.md are those of docs/checks.jsonl, with the verdicts that the check gives."""

from pathlib import Path

import pytest

from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [JobRequest.model_validate_json(line) for line in (DOCS / "checks.jsonl").read_bytes().splitlines()]


def row(request: JobRequest) -> str:
    """The row of an example: its kind, source, answer, and the verdict on its last claim with the words that explain it."""
    (*_, claim) = (claim for claim in grounded(request) if claim.verdict is not Verdict.NOT_CHECKABLE)
    sources = " ".join(
        f"{source.metadata['product_name']}: {source.content}" if source.metadata else source.content
        for source in request.context
    )
    cells = (request.custom_id or "", sources, f"{request.query} {request.response}", verdict_of(claim))
    return f"| {' | '.join(' '.join(cell.replace('|', ' ').split()) for cell in cells)} |"


def verdict_of(claim: Claim) -> str:
    """A verdict with both sides of a difference, or with what is not accounted for."""
    if claim.error is not None:
        return f"`{claim.verdict}`: {claim.error.source_words}"
    return f"`{claim.verdict}`" + (f": {', '.join(claim.unaccounted)}" if claim.unaccounted else "")


def grounded(request: JobRequest) -> tuple[Claim, ...]:
    return ground(request, postprocess(request, None, None)).claims


@pytest.mark.parametrize("request_", EXAMPLES, ids=lambda request: request.custom_id)
def test_an_example_has_the_verdict_that_the_page_shows(request_: JobRequest) -> None:
    assert row(request_) in (DOCS / "checks.md").read_text().splitlines()


def test_every_row_of_the_page_is_an_example() -> None:
    page = (DOCS / "checks.md").read_text()
    table = page.partition("| kind |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(EXAMPLES) >= 24
    assert {verdict for verdict in Verdict if any(f"`{verdict}`" in line for line in table)} == {
        Verdict.SUPPORTED,
        Verdict.CONTRADICTED,
        Verdict.UNDECIDED,
    }
