"""Rendering: every style and format, with markers exactly where they are said to be."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.generation import CitationStyle, GenerationConfig, OutputFormat
from schemas.job import JobRequest
from tasks.answers.render import render, resolve_format

LABELS = [f"Title {number}" for number in range(1, 13)]


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
        (CitationStyle.FOOTNOTE, "The fee is 4 EUR.¹ It rose in May.²,¹\n\n¹ Title 3\n² Title 1"),
        (CitationStyle.ENDNOTE, "The fee is 4 EUR [1]. It rose in May [2][1].\n\nSources:\n[1] Title 3\n[2] Title 1"),
    ],
)
def test_styles(style: CitationStyle, expected: Any) -> None:
    assert render(TWO, style, OutputFormat.MARKDOWN, LABELS).text == expected


def test_superscripts_go_beyond_nine() -> None:
    many = answer(*(segment(f"\nS{number}.", number) for number in range(1, 13)))
    text = render(many, CitationStyle.FOOTNOTE, OutputFormat.MARKDOWN, LABELS).text
    assert "S12.¹²" in text
    assert "\n¹² Title 12" in text


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


def test_plain_loses_its_markdown() -> None:
    rich = answer(segment("## Fee\n**Four** euros, see [here](https://x.test).", 1))
    assert render(rich, CitationStyle.NUMBERED, OutputFormat.PLAIN, LABELS).text == "Fee\nFour euros, see here [1]."


def test_markers_keep_out_of_table_rows_and_lead_sentences() -> None:
    row = answer(segment("| fee | 4 |", 1), segment("\n"), segment("", 2), segment(" says so."))
    assert render(row, CitationStyle.NUMBERED, OutputFormat.MARKDOWN, LABELS).text == "| fee | 4 [1] |\n[2] says so."


def test_existing_list_markers_are_replaced_and_headings_kept() -> None:
    listed = answer(segment("# Steps"), segment("\n1. Open it.", 1), segment("\n2. Close"), segment(" it.", 2))
    text = render(listed, CitationStyle.NUMBERED, OutputFormat.BULLETS, LABELS).text
    assert text == "# Steps\n- Open it [1].\n- Close it [2]."


def test_hidden_markers_are_empty_but_placed() -> None:
    rendered = render(TWO, CitationStyle.NUMBERED, OutputFormat.MARKDOWN, LABELS, show_markers=False)
    assert rendered.text == "The fee is 4 EUR. It rose in May."
    assert [(mark.start, mark.end, mark.rank) for mark in rendered.marks] == [(16, 16, 1), (32, 32, 2), (32, 32, 1)]


SEGMENTS = st.lists(
    st.builds(
        lambda text, sources: segment(text, *sources),
        st.text(
            alphabet=st.one_of(st.sampled_from('aB1 .!|\n#*-[](){}"\\:'), st.characters(codec="utf-8")), max_size=25
        ),
        st.lists(st.integers(1, 12), max_size=3),
    ),
    max_size=6,
)


def shape(style: CitationStyle, output_format: OutputFormat, rank: int, label: str) -> str:
    if output_format is OutputFormat.JSON:
        return str(rank)
    return {
        CitationStyle.SOURCE: f"[Source {rank}]",
        CitationStyle.INLINE: f"(Source: {label})",
        CitationStyle.FOOTNOTE: str(rank).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")),
    }.get(style, f"[{rank}]")


@given(
    SEGMENTS, st.sampled_from(CitationStyle), st.sampled_from([f for f in OutputFormat if f is not OutputFormat.AUTO])
)
def test_each_marker_stands_exactly_where_it_is_said_to(
    segments: list[Segment], style: CitationStyle, output_format: OutputFormat
) -> None:
    rendered = render(answer(*segments), style, output_format, LABELS)
    first_seen: dict[int, int] = {}
    position = 0
    for mark in rendered.marks:
        assert mark.rank == first_seen.setdefault(mark.source, len(first_seen) + 1)
        assert rendered.text[mark.start : mark.end] == shape(style, output_format, mark.rank, LABELS[mark.source - 1])
        assert mark.start >= position
        position = mark.end
    wanted = {(index, c.source) for index, part in enumerate(segments) for c in part.citations}
    assert {(mark.segment, mark.source) for mark in rendered.marks} == wanted
    for piece in rendered.pieces:
        assert 0 <= piece.start < piece.end <= piece.reach <= len(rendered.text)
    if output_format is OutputFormat.JSON:
        json.loads(rendered.text)


@given(SEGMENTS)
def test_running_text_is_the_segments_and_the_markers_and_nothing_else(segments: list[Segment]) -> None:
    rendered = render(answer(*segments), CitationStyle.NUMBERED, OutputFormat.MARKDOWN, LABELS)
    bare = "".join(
        character
        for position, character in enumerate(rendered.text)
        if not any(mark.start <= position < mark.end for mark in rendered.marks)
    )
    assert re.sub(r"\s", "", bare) == re.sub(r"\s", "", "".join(part.text for part in segments))


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
