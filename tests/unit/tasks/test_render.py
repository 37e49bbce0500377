"""Rendering: every style and format, with markers exactly at their recorded positions."""
# ruff: noqa: RUF001 - full-width characters are meant

import json
from typing import Any

import pytest

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.generation import CitationStyle, GenerationMode, OutputFormat, Style
from schemas.job import GenerationConfig, JobRequest, SourceContext
from tasks.answers.citations import Label, label
from tasks.answers.formats import format_problem, resolve_format
from tasks.answers.postprocess import render

LABELS = [Label(f"Title {number}") for number in range(1, 13)]


def segment(text: str, *sources: int) -> Segment:
    return Segment(text=text, citations=tuple(SegmentCitation(source=source) for source in sources))


def answer(*segments: Segment) -> CanonicalAnswer:
    return CanonicalAnswer(segments=segments)


TWO = answer(segment("The fee is 4 EUR.", 3), segment(" It rose in May.", 1, 3))


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (CitationStyle.NUMBERED, "The fee is 4 EUR [1]. It rose in May [2][1]."),
        (CitationStyle.SOURCE, "The fee is 4 EUR [Source 1]. It rose in May [Source 2][Source 1]."),
        (
            CitationStyle.INLINE,
            "The fee is 4 EUR (Source: Title 3). It rose in May (Source: Title 1) (Source: Title 3).",
        ),
        (CitationStyle.FOOTNOTE, "The fee is 4 EUR.¹ It rose in May.²,¹\n\n¹ Title 3  \n² Title 1"),
        (
            CitationStyle.ENDNOTE,
            "The fee is 4 EUR [1]. It rose in May [2][1].\n\n**Sources:**\n\n- [1] Title 3\n- [2] Title 1",
        ),
        ("[{index}]", "The fee is 4 EUR [1]. It rose in May [2][1]."),
        ("({index})", "The fee is 4 EUR (1). It rose in May (2)(1)."),
        ("<{title}>", "The fee is 4 EUR <Title 3>. It rose in May <Title 1> <Title 3>."),
    ],
)
def test_styles(style: Style, expected: Any) -> None:
    assert render(TWO, style, OutputFormat.MARKDOWN, LABELS).text == expected


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        (OutputFormat.BULLETS, "- The fee is 4 EUR [1].\n- It rose in May [2][1]."),
        (OutputFormat.STEPS, "1. The fee is 4 EUR [1].\n2. It rose in May [2][1]."),
        (
            OutputFormat.TABLE,
            "| Statement | Sources |\n| --- | --- |\n| The fee is 4 EUR. | [1] |\n| It rose in May. | [2][1] |",
        ),
    ],
)
def test_formats_made_of_items(output_format: OutputFormat, expected: Any) -> None:
    assert render(TWO, CitationStyle.NUMBERED, output_format, LABELS).text == expected


def test_json_is_json_and_its_markers_are_the_ranks() -> None:
    quoted = answer(segment('He said "4".\nThen', 3), segment(" it rose.", 1))
    rendered = render(quoted, CitationStyle.NUMBERED, OutputFormat.JSON, LABELS)
    assert json.loads(rendered.text) == {
        "answer": [{"text": 'He said "4". Then it rose.', "citations": [1, 2]}],
        "sources": [{"number": 1, "title": "Title 3"}, {"number": 2, "title": "Title 1"}],
    }
    assert [rendered.text[mark.start : mark.end] for mark in rendered.marks] == ["1", "2"]


def test_existing_list_markers_are_replaced_and_headings_kept() -> None:
    listed = answer(segment("# Steps"), segment("\n1. Open it.", 1), segment("\n2. Close"), segment(" it.", 2))
    text = render(listed, CitationStyle.NUMBERED, OutputFormat.BULLETS, LABELS).text
    assert text == "# Steps\n- Open it [1].\n- Close it [2]."


def test_hidden_markers_are_empty_but_placed() -> None:
    rendered = render(TWO, CitationStyle.NUMBERED, OutputFormat.MARKDOWN, LABELS, show_markers=False)
    assert rendered.text == "The fee is 4 EUR. It rose in May."
    assert [(mark.start, mark.end, mark.rank) for mark in rendered.marks] == [(16, 16, 1), (32, 32, 2), (32, 32, 1)]


@pytest.mark.parametrize(
    ("query", "intent", "expected"),
    [
        ("What is it?", None, OutputFormat.MARKDOWN),
        ("What is it?", "How-To", OutputFormat.STEPS),
        ("Show it in a table", None, OutputFormat.TABLE),
        ("Explain step by step", None, OutputFormat.STEPS),
        ("List all fees", "factual", OutputFormat.BULLETS),
    ],
)
def test_auto_is_decided_by_intent_then_by_words(query: str, intent: str | None, expected: Any) -> None:
    config = GenerationConfig(output_format=OutputFormat.AUTO)
    assert resolve_format(JobRequest(query=query, intent=intent, config=config)) is expected
    assert resolve_format(JobRequest(query=query, intent=intent)) is OutputFormat.MARKDOWN


# ---- what a model writes into its text ---------------------------------------------------------------------------


def listed(output_format: OutputFormat, *segments: Segment, style: CitationStyle = CitationStyle.NUMBERED) -> str:
    rendered = render(answer(*segments), style, output_format, LABELS)
    assert format_problem(rendered.text[: rendered.body], output_format) is None
    return rendered.text


def test_a_nested_list_keeps_its_levels_and_its_items_keep_their_sentences() -> None:
    parts = (
        segment("The fees:\n\n"),
        segment("* Night fee. It is 4 EUR", 1),
        segment(".\n    * On Sundays\n      it is 5 EUR", 2),
        segment(".\n* Day fee", 1),
    )
    assert listed(OutputFormat.BULLETS, *parts) == (
        "The fees:\n\n- Night fee. It is 4 EUR [1].\n  - On Sundays it is 5 EUR [2].\n- Day fee [1]"
    )
    assert listed(OutputFormat.STEPS, *parts) == (
        "The fees:\n\n1. Night fee. It is 4 EUR [1].\n   - On Sundays it is 5 EUR [2].\n2. Day fee [1]"
    )


def test_a_table_of_the_model_is_kept_for_a_table_and_its_heads_are_no_statement() -> None:
    parts = (
        segment("Compared:\n\n| What | A | B |\n| :-- | --- | --- |\n| fee | 4 EUR", 1),
        segment(" | 5 EUR", 2),
        segment(" |\n| due | May \\| June | July |\n\nNothing else is known.", 1),
    )
    rendered = render(answer(*parts), CitationStyle.NUMBERED, OutputFormat.TABLE, LABELS)
    assert rendered.text == (
        "Compared:\n\n| What | A | B |\n| :-- | --- | --- |\n| fee | 4 EUR [1] | 5 EUR [2] |\n"
        "| due | May \\| June | July |\n\nNothing else is known [1]."
    )
    statements = "".join(rendered.text[piece.start : piece.end] for piece in rendered.pieces)
    assert "What" not in statements
    assert "fee" in statements
    assert listed(OutputFormat.BULLETS, *parts).splitlines()[2:] == [
        "- What: fee; A: 4 EUR [1]; B: 5 EUR [2]",
        "- What: due; A: May \\| June; B: July",
        "- Nothing else is known [1].",
    ]


def test_a_table_that_is_broken_gives_way_to_statements() -> None:
    rows = answer(segment("| a | b |\n| --- | --- |\n| 1 | 2 | 3 |", 1))
    assert render(rows, CitationStyle.NUMBERED, OutputFormat.TABLE, LABELS).text.startswith("| Statement | Sources |")
    markdown = render(rows, CitationStyle.NUMBERED, OutputFormat.MARKDOWN, LABELS).text
    assert "more cells" in str(format_problem(markdown, OutputFormat.MARKDOWN))


def test_code_survives_in_markdown_and_its_markers_stand_behind_it() -> None:
    code = (
        segment("Run:\n```python\nx = y[1]", 2),
        segment("\nprint(x)\n```", 1),
        segment("\nThen wait", 3),
        segment("."),
    )
    assert listed(OutputFormat.MARKDOWN, *code) == (
        "Run:\n```python\nx = y[1]\nprint(x)\n```\n[1][2]\nThen wait [3]."
    )  # fmt: skip
    assert listed(OutputFormat.MARKDOWN, segment("```\ncut off", 1)) == "```\ncut off\n```\n[1]"
    assert listed(OutputFormat.PLAIN, *code) == "Run:\nx = y[1] [1]\nprint(x) [2]\nThen wait [3]."


@pytest.mark.parametrize(
    ("text", "output_format", "problem"),
    [
        ("a **b** c", OutputFormat.PLAIN, "emphasis"),
        ("# a", OutputFormat.PLAIN, "h1"),
        ("a [b](https://x.test)", OutputFormat.PLAIN, "a link"),
        ("use `x`", OutputFormat.PLAIN, "code"),
        ("a\n```\nb", OutputFormat.MARKDOWN, "not closed"),
        ("| a | b |\n| --- |\n| 1 | 2 |", OutputFormat.MARKDOWN, None),
        ("| a | b |\n| --- | --- | --- |\n| 1 | 2 |", OutputFormat.MARKDOWN, "heads do not fit"),
        ("no list", OutputFormat.BULLETS, "no list"),
        ("1. a", OutputFormat.BULLETS, "ordered list"),
        ("- a\n\n> b", OutputFormat.BULLETS, "blockquote"),
        ("1. a\n3. b", OutputFormat.STEPS, "one by one"),
        ("2. a", OutputFormat.STEPS, "one by one"),
        ("no table", OutputFormat.TABLE, "0 tables"),
        ("| a | b |\n| --- | --- |\n| 1 |", OutputFormat.TABLE, "same number of cells"),
        ('{"answer": [}', OutputFormat.JSON, "unexpected"),
        ('{"answer": [{"text": 1}]}', OutputFormat.JSON, "no list 'answer'"),
    ],
)
def test_a_broken_format_is_reported(text: str, output_format: OutputFormat, problem: str | None) -> None:
    message = format_problem(text, output_format)
    assert message is None if problem is None else problem in str(message)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What are all the fees?", OutputFormat.BULLETS),
        ("What is the list price of the desk?", OutputFormat.MARKDOWN),
        ("Compare plan A and plan B", OutputFormat.TABLE),
        ("How to cancel?", OutputFormat.STEPS),
        ("Liste die Gebühren auf", OutputFormat.BULLETS),
        ("Wie kann ich kündigen?", OutputFormat.STEPS),
        ("¿Qué diferencia hay?", OutputFormat.TABLE),
        ("¿Cómo puedo cancelar?", OutputFormat.STEPS),
        ("Énumérez les exceptions", OutputFormat.BULLETS),
        ("有哪些费用？", OutputFormat.BULLETS),
        ("اذكر الرسوم", OutputFormat.BULLETS),
        ("ما هي خطوات الإلغاء؟", OutputFormat.STEPS),
        ("Comment s'inscrire ?", OutputFormat.STEPS),
        ("如何解除合同？", OutputFormat.STEPS),
    ],
)
def test_auto_reads_what_a_query_asks_for(query: str, expected: OutputFormat) -> None:
    config = GenerationConfig(output_format=OutputFormat.AUTO)
    assert resolve_format(JobRequest(query=query, config=config)) is expected


def test_a_comparison_is_a_table_unless_the_query_names_a_form() -> None:
    config = GenerationConfig(output_format=OutputFormat.AUTO, mode=GenerationMode.COMPARISON)
    assert resolve_format(JobRequest(query="A and B?", config=config)) is OutputFormat.TABLE
    assert resolve_format(JobRequest(query="A and B, as a list", config=config)) is OutputFormat.BULLETS


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"title": "Act\n of\t2024"}, "Act of 2024"),
        ({"title": "Act\x1b[2J of\u202e2024"}, "Act [2J of 2024"),
        ({"product_name": "Car Insurance", "document_type": "Terms", "section_hierarchy": ["A", "B"]},
         "Car Insurance Terms - A > B"),
        ({"source_path": "a/b.pdf", "page": [3, 4], "article": 5}, "a/b.pdf, art. 5, p. 3, 4"),
        ({"title": "Act", "section": "Rent", "article": "Art. 21", "page": 14}, "Act - Rent, Art. 21, p. 14"),
        ({"section_hierarchy": []}, "source 9"),
    ],
)  # fmt: skip
def test_names_of_sources(metadata: dict[str, Any], expected: str) -> None:
    assert str(label(SourceContext(content="x", metadata=metadata), 9)) == expected
