"""Properties of any rendered answer in every style and format: exact positions, same citations and words, valid form."""

import json
import re
from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.generation import CitationStyle, OutputFormat, Style
from tasks.answers.citations import Label
from tasks.answers.formats import format_problem, table_lines
from tasks.answers.postprocess import render
from tasks.answers.rendered import Rendered, strip_markers
from tasks.text.sentences import Span

FORMATS = [format_ for format_ in OutputFormat if format_ is not OutputFormat.AUTO]
STYLES = (*CitationStyle, "[^{index}]", "({index}: {title})")
COMBINATIONS = list(product(STYLES, FORMATS))
NASTY = Label("A [b](http://x.test) *c* | d\\ `e` <i> &amp; (2024)", "§ 1 > x_y > _z_", article=5, page="3, 4")
LABELS = [
    NASTY,
    Label("第二章"),
    Label("قانون الإيجار", page=7),
    *(Label(f"Title {number}") for number in range(4, 13)),
]
MARKDOWN = MarkdownIt("commonmark").enable("table")
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

FORM = ["- ", "* ", "\n- ", "\n  - ", "\n1. ", "\n2. ", "| a | b |", "\n| --- | --- |\n", "|", "```", "\n```\n", "~~~"]
MARKS = ["# ", "> ", "**", "*", "_", "`", "(x)", "\\", '"', "=", "---", "\n===\n", "<b>", "[x]"]
OTHER_PIECES = ["fee", "4 EUR", "3.", "1.", "\n\n", "\n", "\t", " ", ".", "。", ":", "\u2028", "\x1f", "\x01"]
SCRIPTS = ["费用为四欧元", "رسوم", "a\u0301", "\U0001f469\u200d\U0001f680"]
WORDS = st.sampled_from([*FORM, *MARKS, *OTHER_PIECES, *SCRIPTS])
TEXT = st.lists(st.one_of(WORDS, st.text(st.characters(codec="utf-8"), max_size=4)), max_size=7).map("".join)
ANSWERS = st.lists(
    st.builds(
        lambda text, sources: Segment(text=text, citations=tuple(SegmentCitation(source=source) for source in sources)),
        TEXT,
        st.lists(st.integers(1, 12), max_size=3),
    ),
    max_size=6,
).map(lambda segments: CanonicalAnswer(segments=tuple(segments)))

CITED_RULE = CanonicalAnswer(segments=(Segment(text="- |- \n| --- | --- |\n", citations=(SegmentCitation(source=1),)),))
CITED_BEFORE_CODE = CanonicalAnswer(
    segments=(Segment(text="\u2028", citations=(SegmentCitation(source=1),)), Segment(text="```| a | b |"))
)


def letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())


def spans(rendered: Rendered) -> list[Span]:
    return [Span(mark.start, mark.end) for mark in rendered.marks]


def expected_citations(answer: CanonicalAnswer) -> list[tuple[int, int]]:
    pairs = [
        (index, citation.source) for index, segment in enumerate(answer.segments) for citation in segment.citations
    ]
    return list(dict.fromkeys(pairs))


@given(ANSWERS)
def test_marks_are_exact_and_the_same_in_every_style_and_format(answer: CanonicalAnswer) -> None:
    for style, output_format in COMBINATIONS:
        rendered = render(answer, style, output_format, LABELS)
        assert [(mark.segment, mark.source) for mark in rendered.marks] == expected_citations(answer), (
            style,
            output_format,
        )
        end = 0
        for mark in rendered.marks:
            assert end <= mark.start < mark.end <= rendered.body or output_format is OutputFormat.JSON
            end = mark.end
            marker_text = rendered.text[mark.start : mark.end]
            if output_format is not OutputFormat.JSON and (style is CitationStyle.INLINE or "{title}" in style):
                assert marker_text.startswith("(Source: " if style is CitationStyle.INLINE else f"({mark.rank}: ")
                assert marker_text.endswith(")")
                assert "\n" not in marker_text
            else:
                assert int(re.sub(r"\D", "", marker_text.translate(SUPERSCRIPTS))) == mark.rank


@given(ANSWERS)
def test_without_its_markers_an_answer_is_the_answer_without_markers(answer: CanonicalAnswer) -> None:
    for style, output_format in COMBINATIONS:
        if output_format is OutputFormat.JSON:
            continue
        rendered = render(answer, style, output_format, LABELS)
        bare = render(answer, style, output_format, LABELS, show_markers=False)
        stripped = strip_markers(rendered.text[: rendered.body], spans(rendered))
        # Superscripts of one place have a comma between them, and "(" after a marker a space before it.
        pattern = r"[\s,]+" if style is CitationStyle.FOOTNOTE else r"\s+"
        assert re.sub(pattern, "", stripped) == re.sub(pattern, "", bare.text), (style, output_format)
        assert [(m.segment, m.source, m.rank) for m in rendered.marks] == [
            (m.segment, m.source, m.rank) for m in bare.marks
        ]


@given(ANSWERS)
@example(CanonicalAnswer(segments=(Segment(text="- |A\n| --- | --- |\n**"),)))
@example(CanonicalAnswer(segments=(Segment(text="- |- \n| --- | --- |\n"),)))
@example(CanonicalAnswer(segments=(Segment(text="| a | b |\n| --- | --- |"),)))
def test_every_word_is_kept_in_its_order_and_found_again(answer: CanonicalAnswer) -> None:
    text = "".join(segment.text.replace("\r\n", "\n").replace("\r", "\n") for segment in answer.segments)
    for output_format in FORMATS:
        rendered = render(answer, CitationStyle.NUMBERED, output_format, LABELS)
        words = "".join(
            rendered.text[start:end] for run, (start, end) in rendered.runs if run.end - run.start == end - start
        )
        if table_lines(text):
            # The heads of a table are written before each cell.
            assert set(letters(text)) <= set(letters(rendered.text)), output_format
        elif "](" not in text and "```" not in text and "~~~" not in text:
            assert letters(words) == letters(text), output_format
        position = 0
        for run, (start, end) in rendered.runs:
            assert position <= start <= end <= len(rendered.text)
            position = end
            place = rendered.place_of(run.start, run.end)
            assert place == Span(start, end)
            if start < end:
                assert rendered.origin_of(*place) == Span(run.start, run.end)
        for place in rendered.segments:
            assert 0 <= place.start <= place.end <= len(rendered.text)
        for piece in rendered.pieces:
            assert 0 <= piece.start < piece.end <= piece.reach <= len(rendered.text)


@given(ANSWERS, st.sampled_from(STYLES))
@example(CITED_BEFORE_CODE, CitationStyle.SOURCE)
@example(CITED_RULE, CitationStyle.SOURCE)
def test_an_answer_from_segments_is_always_valid(answer: CanonicalAnswer, style: Style) -> None:
    words = bool(letters("".join(segment.text for segment in answer.segments)))
    parsed = json.loads(render(answer, style, OutputFormat.JSON, LABELS).text)
    assert all(set(entry) == {"text", "citations"} for entry in parsed["answer"])
    cited = [rank for entry in parsed["answer"] for rank in entry["citations"]]
    assert set(cited) == {source["number"] for source in parsed["sources"]}
    assert len(cited) == len(expected_citations(answer))
    table = render(answer, style, OutputFormat.TABLE, LABELS)
    body = table.text[: table.body]
    assert format_problem(body, OutputFormat.TABLE) is None
    tokens = MARKDOWN.parse(body)
    opened = Counter(token.type for token in tokens)
    # Code stands between two tables of the same two columns.
    assert opened["table_open"] in range(1, opened["fence"] + 2) or not body.strip() or opened["fence"]
    columns, rest = divmod(opened["th_open"], opened["table_open"] or 1)
    assert rest == 0
    assert columns >= 2 or not opened["table_open"]
    assert opened["td_open"] == columns * (opened["tr_open"] - opened["table_open"])
    if words:
        for output_format in (OutputFormat.BULLETS, OutputFormat.STEPS):
            listed = render(answer, style, output_format, LABELS)
            problem = format_problem(listed.text[: listed.body], output_format)
            assert problem is None or "has no list" in problem, listed.text


@pytest.mark.parametrize(("style", "output_format"), COMBINATIONS)
def test_a_title_cannot_break_the_form(style: Style, output_format: OutputFormat) -> None:
    answer = CanonicalAnswer(
        segments=(
            Segment(text="The fee is 4 EUR.", citations=(SegmentCitation(source=1), SegmentCitation(source=2))),
            Segment(text=" It rose.", citations=(SegmentCitation(source=3),)),
        )
    )
    rendered = render(answer, style, output_format, LABELS)
    body = rendered.text[: rendered.body]
    own = strip_markers(body, spans(rendered)) if output_format is OutputFormat.PLAIN else body
    assert format_problem(own, output_format) is None
    if output_format is OutputFormat.JSON:
        assert json.loads(rendered.text)["sources"][0]["title"] == NASTY.name
        return
    text = "".join(
        t.content for token in MARKDOWN.parse(rendered.text) for t in token.children or () if t.type == "text"
    )
    if output_format is not OutputFormat.PLAIN and style in {
        CitationStyle.INLINE,
        CitationStyle.ENDNOTE,
        CitationStyle.FOOTNOTE,
    }:
        assert str(NASTY) in text
