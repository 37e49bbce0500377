"""Answers as readers get them: nothing that a hostile or confused model writes beside its answer reaches anyone."""
# ruff: noqa: RUF001 - full-width characters are meant

import json
import re
from collections import deque
from html.parser import HTMLParser
from itertools import cycle
from typing import Any

import mistune
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, CitationStyle, OutputFormat
from schemas.states import JobState, Outcome
from tasks.answers.active_content import is_active, neutralise
from tasks.answers.json_reply import parse_segments
from tasks.answers.parse import merge_repeated, parse_exact
from tasks.answers.postprocess import postprocess
from tasks.answers.stream_text import StreamText
from tasks.answers.texts import fallback, in_format
from tasks.answers.thoughts import without_thoughts
from tasks.prompting.messages import render
from tests.reader_outputs import Output, faults, outputs
from tests.stub import hostile
from tests.stub.hostile import CODE, HOSTILE, LANDLORD, MARKERS, RENT, SEGMENTS, SOURCES, TENANT, Reply

FORMATS = tuple(output_format for output_format in OutputFormat if output_format is not OutputFormat.AUTO)
EMPTY = (
    "empty",
    "empty_markers",
    "no_segments",
    "blank_segments",
    "empty_object",
    "broken_before_text",
    "think_unclosed",
    "only_fence",
    "only_rule",
)


def output(reply: Reply | str, output_format: str = "markdown", **config: Any) -> Output:
    """The output for a stand-in's reply, by its name or itself."""
    reply = HOSTILE[reply] if isinstance(reply, str) else reply
    request = hostile.request(output_format=output_format, **config)
    return outputs("test", request, hostile.completion(reply))


# ---- every reply in every format and style ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_no_reader_sees_anything_beside_the_answer(name: str) -> None:
    """Each format with one style, another one for each reply: together all pairs."""
    styles = deque(CitationStyle)
    styles.rotate(list(HOSTILE).index(name))
    for output_format, style in zip(FORMATS, cycle(styles), strict=False):
        result = output(name, output_format.value, citation_style=style)
        assert list(faults(result)) == [], result.text
        assert result.state is JobState.COMPLETED or name in {*EMPTY, "schema_echoed", "null"}


@pytest.mark.parametrize(
    "name",
    [
        "json_as_markers",
        "fenced_json_as_markers",
        "nested",
        "tool_call",
        "think",
        "think_markers",
        "harmony",
        "two_objects",
    ],
)
def test_a_whole_answer_in_another_shape_is_the_answer(name: str) -> None:
    result = output(name)
    expected = f"{TENANT[:-1]} [1]. {LANDLORD[:-1]} [2]."
    assert result.text.startswith(expected)
    assert (result.outcome, result.again) == (Outcome.ANSWERED, False)


@pytest.mark.parametrize(
    "name", ["single_quotes", "unquoted_keys", "no_commas", "array", "array_of_strings", "other_keys"]
)
def test_damaged_json_is_repaired_without_another_call(name: str) -> None:
    result = output(name)
    assert result.text.startswith(f"{TENANT[:-1]} [1].")
    assert not result.again
    assert any("JSON" in warning for warning in result.warnings)


@pytest.mark.parametrize("name", ["first_segment_broken", "second_segment_broken"])
def test_json_that_breaks_off_is_asked_for_again_and_then_partial_with_its_text(name: str) -> None:
    result = output(name)
    assert result.again
    assert result.outcome is Outcome.PARTIAL
    assert result.text.startswith("The notice period for the tenant is three mon")


@pytest.mark.parametrize("output_format", ["markdown", "json"])
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_answer_is_a_failure_that_says_so(name: str, output_format: str) -> None:
    result = output(name, output_format)
    assert result.again
    assert (result.state, result.outcome) == (JobState.FAILED, None)
    assert result.failure is not None
    assert result.failure.kind is FailureKind.BAD_ANSWER
    assert "technical problem" in result.text


def test_an_empty_answer_with_the_object_asked_for_is_kept() -> None:
    reply = Reply(hostile.segments(data={"fee": "none"}))
    result = output(reply, output_schema={"type": "object", "required": ["fee"]})
    assert (result.state, result.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)


# ---- damaged JSON ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["{" * 20_000, "[" * 20_000, '{"segments": [' * 3_000, '{"a": ' * 5_000, "{'segments" * 9_000]
)
def test_a_repair_is_bounded(text: str) -> None:
    reply = parse_segments(text)
    assert reply is None or not reply.complete


def test_a_repair_that_loses_words_is_not_whole() -> None:
    whole = parse_segments("{'segments': [{'text': 'One two three.'}]}")
    lossy = parse_segments("{'segments': [{'text': 'One two three.'}]} {'other': 'Four five six.'}")
    assert whole is not None
    assert whole.complete
    assert lossy is None or not lossy.complete


# ---- thoughts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think>B", "B"),
        ("<Thinking>\na\n</Thinking>\nB", "\nB"),
        ("a</think>B", "B"),
        ("B<think>a", "B"),
        ("<think>a<think>b</think>C", "C"),
        ("[THINK]a[/THINK]B", "B"),
        ("◁think▷a◁/think▷B", "B"),
        ("<think>a {'x': 1} \n{\"sufficient\": true", '{"sufficient": true'),
        ("B<|im_end|>", "B"),
        ("B</s>", "B"),
        ("Write `<think>` first", "Write `<think>` first"),
        ("1 < 2 and <b>", "1 < 2 and <b>"),
    ],
)
def test_thoughts_and_control_tokens_go(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer


# ---- rows, steps, code and tables ---------------------------------------------------------------------------------------


def test_a_list_on_one_line_is_a_list() -> None:
    assert output("inline_steps", "steps").text.splitlines()[:3] == [
        "1. Write the notice.",
        "2. Sign it.",
        "3. Send it to the landlord [1].",
    ]
    assert (
        output("inline_bullets", "bullets").text == "The periods:\n\n- tenant: three months\n- landlord: six months [1]"
    )


@pytest.mark.parametrize(
    "text", ["It rose by 1. 2. The rest", "See sections 2. and 3. there.", "On May 1. 2024 it began."]
)
def test_a_number_is_no_item(text: str) -> None:
    assert text in output(Reply(text, MARKERS)).text.replace("\n", " ")
    assert "\n2" not in output(Reply(text, MARKERS)).text


@pytest.mark.parametrize("name", ["code", "code_markers"])
@pytest.mark.parametrize("output_format", FORMATS)
def test_code_survives_every_format(name: str, output_format: OutputFormat) -> None:
    text = output(name, output_format.value).text
    lines = ['months = {"tenant": 3}', 'if months["tenant"] < 6:', '    print("short")']
    if output_format is OutputFormat.JSON:
        assert CODE in [entry["text"] for entry in json.loads(text)["answer"]]
    elif output_format is OutputFormat.PLAIN:
        assert "\n".join(lines) in text
    else:
        (block,) = (token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.type == "fence")
        assert block.content.splitlines() == lines
        assert block.info == "python"


# ---- the requested form --------------------------------------------------------------------------------------------------

TEXT = st.text(alphabet=st.sampled_from("aB 1.:,{[(\n|#-“”\u4e2d"), max_size=12)


@given(
    st.lists(st.tuples(TEXT, st.lists(st.tuples(st.integers(-1, 4), TEXT), max_size=2)), max_size=4),
    st.sampled_from([{}, {"sufficient": False}, {"sufficient": True}, {"data": None}, {"more": 1}]),
)
def test_a_reply_in_the_requested_form_reads_as_one_of_any_form(segments: list[Any], others: dict[str, Any]) -> None:
    written = [
        {"text": text, "citations": [{"source": source, "quote": quote} for source, quote in cited]}
        for text, cited in segments
    ]
    reply = json.dumps(others | {"segments": written})
    exact, any_form = parse_exact(reply), parse_segments(reply)
    assert any_form is not None
    if exact is None:
        assert "data" in others or "more" in others or any(text.lstrip()[:1] in {"", "{", "["} for text, _ in segments)
    else:
        assert (exact, True, ()) == (any_form.answer, any_form.complete, any_form.repairs)


# ---- repetitions -------------------------------------------------------------------------------------------------------


def answer(*parts: tuple[str, int]) -> CanonicalAnswer:
    cited = [Segment(text=text, citations=(SegmentCitation(source=source),)) for text, source in parts]
    return CanonicalAnswer(segments=tuple(cited))


def test_parts_that_say_the_same_are_merged_with_their_citations() -> None:
    merged = merge_repeated(answer((TENANT, 1), (f" {RENT}", 2), (f"\n- {TENANT.upper()}", 2)), steps=False)
    assert [segment.text for segment in merged.segments] == [TENANT, f" {RENT}"]
    assert [citation.source for citation in merged.segments[0].citations] == [1, 2]


def test_a_step_may_be_meant_twice() -> None:
    parts = answer(("Press the green button.", 1), (" Wait a minute.", 1), (" Press the green button.", 1))
    assert len(merge_repeated(parts, steps=True).segments) == 3
    assert len(merge_repeated(parts, steps=False).segments) == 2
    again = answer(("Press OK.", 1), (" Press OK.", 1))
    assert len(merge_repeated(again, steps=True).segments) == 1


def test_a_circle_without_an_end_is_cut() -> None:
    parts = answer((f"{TENANT} ", 1), (f"{RENT} ", 2), (f"{TENANT} ", 1), ("The rent may rise", 2))
    assert [segment.text for segment in merge_repeated(parts, steps=False).segments] == [f"{TENANT} ", f"{RENT} "]
    loop = merge_repeated(answer(("The answer is: " * 30, 1)), steps=False)
    assert loop.segments[0].text.count("The answer is") < 3


# ---- active content ------------------------------------------------------------------------------------------------------

NASTY = (
    "<script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1) //",
    '<IMG SRC="x"onerror=alert(1)>',
    "<svg/onload=alert(1)>",
    "<iframe src=https://evil.example></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    '<a title="`"><script>alert(1)</script>` b',
    "<!-- <script> -->",
    "<?php echo 1 ?>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A;avascript&colon;alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x]( javascript:alert(1) 'title')",
    "[x\ny](javascript:alert(1))",
    "[![x](y)](javascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "<javascript:alert(1)>",
    "[x][y]\n\n[y]: javascript:alert(1)",
    "[x][y]\n\n[y]:\n  javascript:alert(1)",
    "![x](https://evil.example/p.png?q=secret)",
    "![](https://evil.example/p.png)",
    "![x][y]\n\n[y]: https://evil.example/p.png",
    "[x](https://example.org){onclick=alert(1)}",
    "`a` <b>`</b> <script>alert(1)</script>",
    "``` <script>alert(1)</script>",
)


class Page(HTMLParser):
    """Collects what is active on a page: elements that no Markdown makes, handlers, and where links lead."""

    MADE = frozenset(
        "p a em strong code pre ul ol li table thead tbody tr th td h1 h2 h3 h4 h5 h6 blockquote hr br".split()
    )

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.MADE:
            self.active.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (
                name in {"href", "src"} and re.match(r"(?!https?:|mailto:)\s*[\w&#;]+:", value or "")
            ):
                self.active.append(f"{name}={value}")


def active(page: str) -> list[str]:
    collector = Page()
    collector.feed(page)
    return collector.active


@pytest.mark.parametrize("output_format", ["markdown", "plain", "table"])
@pytest.mark.parametrize("nasty", NASTY)
def test_nothing_in_an_answer_is_active_on_a_page(nasty: str, output_format: str) -> None:
    for text in (f"{TENANT} [1] {nasty} {LANDLORD} [2]", f"{nasty}\n\n{TENANT} [1]"):
        written = output(Reply(text, MARKERS), output_format).text
        assert "tenant is three months" in written
        # A page may take the text for Markdown, in either library, or for HTML.
        markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        markdown.validateLink = lambda _: True  # type: ignore[assignment, method-assign]
        assert active(markdown.render(written)) == []
        assert active(str(mistune.html(written))) == []
        if output_format == "plain":
            assert active(written) == []


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from([*NASTY, "`", "```\n", "\n", " ", "<", ">", "[", "](", ")", "a", '"', "<b>", "](x)"]),
        max_size=8,
    )
)
def test_no_mixture_is_active(parts: list[str]) -> None:
    neutral, _ = neutralise(CanonicalAnswer(segments=tuple(Segment(text=part) for part in parts)))
    assert not is_active("".join(segment.text for segment in neutral.segments))
    assert neutralise(neutral)[0] == neutralise(neutralise(neutral)[0])[0]


@pytest.mark.parametrize(
    "text",
    [
        "The price is < 5 and > 3.",
        "See [the act](https://example.org/act(1)) or [here](#x), [mail](mailto:a@b.org).",
        "Use `<div onclick=x>` or\n\n```html\n<script>alert(1)</script>\n```\n",
        "A & B &amp; C; the data: five; javascript: a language.",
        "<https://example.org/a>",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert neutralise(CanonicalAnswer(segments=(Segment(text=text),))) == (
        CanonicalAnswer(segments=(Segment(text=text),)),
        False,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is so. [Read more](javascript:a) It ends.", "It is so. It ends."),
        ("It is so. ![plan](https://evil.example/p.png?q=secret) It ends.", "It is so. It ends."),
        ("It is so.\n\n[Open](data:text/html,x)\n\nIt ends.", "It is so.\n\n\n\nIt ends."),
        ("The [deposit](javascript:a) is ten rents.", "The deposit is ten rents."),
        ("The sign ![two arrows](https://evil.example/p.png) means stop.", "The sign two arrows means stop."),
        ("It is so. [Rent: 4 %](javascript:a) It ends.", "It is so. Rent: 4 % It ends."),
        ("It is so. [The landlord pays all costs](javascript:a)", "It is so. The landlord pays all costs"),
        ("1. [Deposit](javascript:a)\n2. [Rent](javascript:b)", "1. Deposit\n2. Rent"),
        ("- [Deposit](javascript:a)\n- Rent", "- Deposit\n- Rent"),
        ("See [the act][X] or [rule][y].\n\n[x]: javascript:a\n", "See the act or [rule][y].\n\n"),
        ("See [x][].\n\n[x]: javascript:a\n[y]: https://example.org\n", "See x.\n\n[y]: https://example.org\n"),
    ],
)
def test_a_removed_link_leaves_its_words_where_they_say_something(text: str, expected: str) -> None:
    neutral, changed = neutralise(CanonicalAnswer(segments=(Segment(text=text),)))
    assert (neutral.segments[0].text, changed) == (expected, True)


def test_html_stays_where_a_caller_wants_it() -> None:
    for output_format in ("markdown", "plain"):
        assert "<script>alert(1)</script>" in output("script", output_format, allow_html=True).text


def test_a_title_of_a_source_is_no_html_either() -> None:
    context = [{**SOURCES[0], "title": "<img src=x onerror=alert(1)>"}]
    for output_format in ("markdown", "plain"):
        request = hostile.request(output_format=output_format, citation_style="inline")
        request = request.model_validate({**request.model_dump(), "context": context})
        text = outputs("title", request, hostile.completion(Reply(f"{TENANT} [1]", MARKERS))).text
        assert active(text if output_format == "plain" else str(mistune.html(text))) == []


# ---- JSON in place of an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["no_evidence", "abstained", "rejected", "failed", "refused"])
def test_a_text_in_place_of_an_answer_is_json_where_json_was_asked_for(kind: str) -> None:
    value = json.loads(fallback(hostile.request(output_format="json"), kind))
    plain = fallback(hostile.request(), kind)
    assert value == {"answer": [], "sources": [], "status": kind, "message": plain}
    assert in_format(json.dumps(value), kind, OutputFormat.PLAIN) == plain
    assert in_format(plain, kind, OutputFormat.MARKDOWN) == plain


# ---- streams ------------------------------------------------------------------------------------------------------------


def stream(reply: Reply, size: int) -> str:
    """The text that a reader of the stream sees if the reply comes in pieces of this size."""
    parts: list[str] = []
    text = StreamText(parts.append, reply.protocol, [str(source["content"]) for source in SOURCES])
    for start in range(0, len(reply.text), size):
        text.feed(reply.text[start : start + size])
    text.close()
    return "".join(parts)


SEEN_BEFORE = {"think_unopened"}
"""A thought that was never opened is one only when it is closed."""


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_stream_shows_no_json_thoughts_or_html(name: str, size: int) -> None:
    text = stream(HOSTILE[name], size)
    assert not re.search(r'"segments"|"citations"|</?think|<\||<script|<img|onerror|\]\(javascript|!\[', text), text
    if name not in SEEN_BEFORE:
        assert "nine months" not in text


INTRODUCTIONS = ("Here is the answer:\n\n", "Sure! Here's the JSON you asked for:\n```json\n", "Of course.\n\n", "Hier ist die Antwort: ",
                 "Voici la réponse :\n", "Aquí está la respuesta:\n", "以下是答案：\n", "إليك الإجابة:\n")  # fmt: skip


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("protocol", [MARKERS, SEGMENTS])
@pytest.mark.parametrize("introduction", INTRODUCTIONS)
def test_a_stream_shows_no_words_before_json_that_the_result_omits(
    introduction: str, protocol: AnswerProtocol, size: int
) -> None:
    reply = Reply(f"{introduction}{hostile.GOOD}", protocol)
    request = hostile.request()
    result = postprocess(request, render(request, reply.protocol), hostile.completion(reply)).response
    assert re.findall(r"\w+", stream(reply, size)) == re.findall(r"\w+", result.replace(".", "")) != []


@pytest.mark.parametrize("size", [1, 4, 10_000])
@pytest.mark.parametrize("protocol", ["markers", "segments"])
def test_a_stream_numbers_sources_as_the_result_does(protocol: str, size: int) -> None:
    if protocol == "markers":
        reply = Reply(f"{LANDLORD} [2] {TENANT} [1][9] {RENT} [2]", MARKERS)
    else:
        reply = Reply(hostile.segments((LANDLORD, 2), (TENANT, 1), (RENT, 2)))
    request = hostile.request()
    result = postprocess(request, render(request, reply.protocol), hostile.completion(reply)).response
    assert re.findall(r"\[\d+\]", stream(reply, size)) == re.findall(r"\[\d+\]", result) == ["[1]", "[2]", "[1]"]
