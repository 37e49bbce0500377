"""Every format, style, protocol and mode with each value of the others, through the real SDKs over HTTP and a real worker.

The stub answers as a model would: segments as JSON, running text with markers, Anthropic's own citation blocks; asked
for a table or a list in running text, it writes one itself. What comes out is parsed by another Markdown parser than
the one that Nightdesk validates with.
"""

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import combinations, product
from typing import Any

import mistune
import pytest

from schemas.generation import AnswerProtocol, CitationStyle, GenerationMode, OutputFormat
from schemas.record import JobResult
from schemas.states import Outcome
from tasks.ports import JobView
from tasks.results import result_of
from tests.acceptance.conftest import System
from tests.providers import KEY
from tests.record_checks import assert_marker, assert_record
from tests.stub.scripts import SCRIPTS, Piece, Script
from tests.stub.server import running_stub
from worker.ledger.postgres import PostgresLedger

RENT = "Rent may rise once a year, by 4% at most."
NOTICE = "Die Kündigungsfrist beträgt drei Monate | oder länger."
FEE = "费用为四欧元。"
PAID = "الإيجار يدفع شهريا 👩‍🚀."
CONTEXT: list[Any] = [
    {"content": f"{RENT} The landlord gives notice 60 days before.", "title": "Act [2024] | *consolidated*\n(draft)",
     "page": 14, "article": "12", "section_hierarchy": ["Rent", "Increases"]},
    {"content": f"{NOTICE} Schäden werden gemeldet.", "product_name": "Home Cover", "document_type": "Terms"},
    {"content": f"{FEE}押金为两个月租金。"},
    {"content": f"Introduction. {PAID} More follows.", "title": "قانون الإيجار"},
]  # fmt: skip

PROSE: Script = (
    Piece(RENT, ((1, "Rent may rise once a year"),)),
    Piece(" " + NOTICE, ((2, "drei Monate | oder"), (1, "once a year"))),
    Piece(f" {FEE}", ((3, "费用为四欧元"),)),
    Piece(f" {PAID}", ((4, "يدفع شهريا"),)),
)
LIST: Script = (
    Piece("What is known:\n\n1. "), Piece(RENT, ((1, "4% at most"),)), Piece("\n   - "), Piece(NOTICE, ((2, "drei Monate"),)),
    Piece("\n2. "), Piece(FEE, ((3, "费用为四欧元"),)), Piece("\n3. "), Piece(PAID, ((4, "يدفع شهريا"),)),
)  # fmt: skip
ROWS = NOTICE.replace("|", "\\|")
TABLE: Script = (
    Piece("| Topic | Rule |\n| --- | --- |\n| rent | "), Piece(RENT, ((1, "4% at most"),)),
    Piece(" |\n| notice | "), Piece(ROWS, ((2, "drei Monate"),)), Piece(" |\n| fee | "), Piece(FEE, ((3, "费用为四欧元"),)),
    Piece(" |\n| month | "), Piece(PAID, ((4, "يدفع شهريا"),)), Piece(" |"),
)  # fmt: skip
SCRIPTED_ANSWERS = {"#prose": PROSE, "#list": LIST, "#table": TABLE}

PROVIDERS = {
    AnswerProtocol.SEGMENTS: "structured",
    AnswerProtocol.MARKERS: "plain",
    AnswerProtocol.NATIVE: "anthropic",
}


@dataclass(frozen=True)
class Case:
    mode: GenerationMode
    output_format: OutputFormat
    style: CitationStyle
    protocol: AnswerProtocol

    @property
    def script(self) -> str:
        """A model that answers in running text writes the form that it is asked for itself."""
        form = self.expected if self.output_format is not OutputFormat.AUTO else None
        if self.protocol is not AnswerProtocol.SEGMENTS:
            if form is OutputFormat.TABLE:
                return "#table"
            if form in {OutputFormat.BULLETS, OutputFormat.STEPS}:
                return "#list"
        return "#prose"

    @property
    def expected(self) -> OutputFormat:
        if self.output_format is not OutputFormat.AUTO:
            return self.output_format
        return OutputFormat.TABLE if self.mode is GenerationMode.COMPARISON else OutputFormat.MARKDOWN

    def job(self) -> dict[str, Any]:
        config = {
            # Its segments are written for their form: whether words support them is another test's.
            "strictness": "lenient",
            "mode": self.mode.value, "output_format": self.output_format.value, "citation_style": self.style.value,
            "provider": PROVIDERS[self.protocol], "max_attempts": 2,
        }  # fmt: skip
        return {"query": f"What is known of {self.script}?", "context": CONTEXT, "config": config}


def cases() -> Iterator[Case]:
    styles, protocols = list(CitationStyle), list(AnswerProtocol)
    for number, output_format in enumerate(OutputFormat):
        for turn, mode in enumerate(GenerationMode):
            style, protocol = styles[(number + turn) % len(styles)], protocols[(number + 2 * turn) % len(protocols)]
            yield Case(mode, output_format, style, protocol)


CASES = list(cases())


def test_each_two_values_meet() -> None:
    for kind, other in combinations((GenerationMode, OutputFormat, CitationStyle, AnswerProtocol), 2):
        pairs = {
            (first, second)
            for case in CASES
            for first in astuple(case)
            for second in astuple(case)
            if isinstance(first, kind) and isinstance(second, other)
        }
        assert pairs == set(product(kind, other))


@pytest.fixture
def scripted(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    SCRIPTS.update(SCRIPTED_ANSWERS)
    try:
        with running_stub(lean=True) as stub:
            providers = {
                "structured": {"kind": "openai", "base_url": f"{stub.url}/v1", "model": "gpt-6-luna"},
                "plain": {"kind": "openai_chat", "base_url": f"{stub.url}/v1", "model": "m", "json_schema": False},
                "anthropic": {"kind": "anthropic", "base_url": stub.url, "model": "claude-haiku-5-5"},
            }
            monkeypatch.setenv("NIGHTDESK_PROVIDERS", json.dumps(providers))
            yield system
    finally:
        for word in SCRIPTED_ANSWERS:
            del SCRIPTS[word]


def read_all(system: System, job_ids: list[Any]) -> list[JobView]:
    async def read(ledger: PostgresLedger) -> list[JobView]:
        return await ledger.reading.views(job_ids)

    return system.with_ledger(read)


def test_every_combination_is_valid_consistent_and_exact(scripted: System) -> None:
    _, job_ids = scripted.submit([case.job() for case in CASES])
    scripted.start_worker()
    scripted.until_final(len(CASES))
    views = read_all(scripted, job_ids)
    results = scripted.with_ledger(lambda ledger: ledger.reading.results(job_ids))
    assert [stored.result.model_dump_json() for stored in results] == [
        result_of(view).model_dump_json() for view in views
    ]
    cited: dict[tuple[str, AnswerProtocol], set[tuple[tuple[int, int | None, int | None], ...]]] = {}
    for case, view in zip(CASES, views, strict=True):
        result = result_of(view)
        try:
            assert_record(result, view.record, view.request)
            assert_form(case, result)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}\n{result.reasoning}\n{result.response}") from error
        assert result.provider_snapshot is not None
        assert result.provider_snapshot.protocol is case.protocol
        places = tuple(
            (citation.source_index, citation.source_start, citation.source_end) for citation in result.citations
        )
        cited.setdefault((case.script, case.protocol), set()).add(places)
    # Whatever the mode, the format and the style: the same answer cites the same places of the same sources.
    exact = {key: positions for key, positions in cited.items() if key[1] is not AnswerProtocol.MARKERS}
    assert {key: len(positions) for key, positions in exact.items()} == dict.fromkeys(exact, 1)


def assert_form(case: Case, result: JobResult) -> None:
    """The answer is of its format, by a parser of other people, and its markers are of its style."""
    assert result.outcome is Outcome.ANSWERED
    assert result.output_format is case.expected
    assert len(result.citations) == (5 if case.script == "#prose" else 4)
    assert_citations_stand_apart(case, result)
    text = result.response
    if case.expected is OutputFormat.JSON:
        parsed = json.loads(text)
        assert result.structured == parsed
        ranks = [rank for segment in parsed["answer"] for rank in segment["citations"]]
        assert ranks == [citation.rank for citation in result.citations]
        assert [source["number"] for source in parsed["sources"]] == [1, 2, 3, 4]
        return
    blocks = [block for block in parsed_blocks(text) if block["type"] != "blank_line"]
    kinds = [block["type"] for block in blocks]
    listed = case.style in {CitationStyle.ENDNOTE, CitationStyle.FOOTNOTE}
    notes = {CitationStyle.ENDNOTE: ["paragraph", "list"], CitationStyle.FOOTNOTE: ["paragraph"]}.get(case.style, [])
    if case.expected is OutputFormat.PLAIN:
        assert "**" not in text
        assert ("\n\nSources:\n[1] " in text) is (case.style is CitationStyle.ENDNOTE)
        return
    assert kinds[len(kinds) - len(notes) :] == notes
    body = blocks[: len(kinds) - len(notes)]
    if listed:
        assert all(
            name in plain_text(blocks[-1]) for name in ("Act [2024] | *consolidated* (draft)", "Home Cover Terms")
        )
    if case.expected is OutputFormat.TABLE:
        (table,) = [block for block in body if block["type"] == "table"]
        rows = [table["children"][0]["children"], *(row["children"] for row in table["children"][1]["children"])]
        assert {len(row) for row in rows} == {2}
        assert len(rows) == (
            5 if case.protocol is not AnswerProtocol.SEGMENTS and case.script == "#table" else len(rows)
        )
    elif case.expected in {OutputFormat.BULLETS, OutputFormat.STEPS}:
        (list_block,) = [block for block in body if block["type"] == "list"]
        assert list_block["attrs"]["ordered"] is (case.expected is OutputFormat.STEPS)
        assert list_block["attrs"].get("start", 1) == 1
        assert len(list_block["children"]) == (3 if case.script == "#list" else 4)


def assert_citations_stand_apart(case: Case, result: JobResult) -> None:
    end = 0
    for citation in result.citations:
        assert end <= citation.start_pos
        end = citation.end_pos
        marker = result.response[citation.start_pos : citation.end_pos]
        assert_marker(marker, citation.rank, case.style, case.expected)
    first = result.citations[0]
    assert (first.page, first.article, first.section) == (14, "12", "Rent > Increases")


def parsed_blocks(text: str) -> list[dict[str, Any]]:
    parse = mistune.create_markdown(renderer="ast", plugins=["table"])
    blocks = parse(text)
    assert isinstance(blocks, list)
    return blocks


def plain_text(block: dict[str, Any]) -> str:
    return str(block.get("raw", "")) + "".join(plain_text(child) for child in block.get("children", ()))
