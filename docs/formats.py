"""Writes docs/formats.md: every format and citation style, each with the rendering of one answer."""

import asyncio
from pathlib import Path
from typing import Any

from schemas.generation import AnswerProtocol, CitationStyle, OutputFormat
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, ProviderSnapshot
from tasks.answers.layouts import Extras
from tasks.answers.postprocess import Processed, postprocess, rerender
from tasks.answers.styles import manner_of
from tasks.prompting.messages import render
from worker.providers.extractive import Extractive

QUESTION = "How long is the notice period for tenant and landlord?"
CONTEXT: tuple[dict[str, Any], ...] = (
    {
        "content": "The notice period for the tenant is three months. It begins with the month after the letter.",
        "title": "Tenancy Act [consolidated]",
        "section_hierarchy": ["Ending a lease", "Notice"],
        "article": "12",
        "page": 14,
    },
    {
        "content": "The landlord has a notice period of six months. The rent may rise once a year, by 4% at most.",
        "product_name": "Home Lease",
        "document_type": "Terms",
    },
)
FORMATS = {
    OutputFormat.MARKDOWN: "The answer's own Markdown. An unfinished block of code is closed, and never contains a marker.",
    OutputFormat.PLAIN: "Headings, emphasis, links and code lose their marks; every word stays, and code keeps its lines. A table keeps its rows.",
    OutputFormat.BULLETS: 'A sentence an item, or the items and levels of a list that the model wrote. A heading or an introduction comes before the list. A row of a model\'s table becomes an item "head: cell; head: cell".',
    OutputFormat.STEPS: "Items of `bullets`, numbered 1, 2, 3 without gaps.",
    OutputFormat.TABLE: "A statement a row. A table that the model wrote itself keeps its columns, with the markers in its cells; beside other text its rows become statements.",
    OutputFormat.JSON: "`answer` holds the texts, each with the numbers of the sources it cites; `sources` the list. In place of an answer, such as for an abstention or a failure, `answer` is empty, `status` names the reason and `message` is the text for the reader.",
}
TABLE_ANSWER = """| Party | Notice period |
| --- | --- |
| tenant | three months [1] |
| landlord | six months [2] |"""

READING = (
    "What a model writes beside its answer never reaches a reader: thoughts (`<think>`), tokens of its chat template, raw JSON.",
    "JSON of another shape is read by its texts, damaged JSON is repaired; where text was lost the model is asked again. Parts that",
    "say the same are merged with their citations.",
    "",
    "HTML tags are removed and their words stay; scripts go with their content. An image, and a link with another scheme than",
    "`http`, `https`, `mailto`, `tel` or `ftp`, becomes its text. Code stays as it is. A warning says that something was changed;",
    "`output_raw` of the record has the original. `allow_html: true` keeps everything. A supplied answer is not changed.",
    "",
)
INTRODUCTION = (
    "# Formats and citation styles",
    "",
    "For whoever chooses how answers look. Made by `python -m docs.formats`; do not edit. Every example is one answer of the offline",
    "provider; another format or style of a stored answer needs no new call:",
    "",
    "```console",
    "$ nightdesk results BATCH --citation-style endnote --output-format bullets -o endnotes.jsonl",
    "$ nightdesk results BATCH --citation-style inline --with-sources --with-confidence",
    "```",
    "",
)


def processed(text: str | None = None) -> tuple[JobRequest, Processed]:
    """The answer of the offline provider to the question, or one that a model wrote as running text with markers."""
    request = JobRequest(query=QUESTION, context=CONTEXT, config=GenerationConfig())
    if text is not None:
        completion = Completion(
            text=text,
            finish_reason=FinishReason.STOP,
            protocol=AnswerProtocol.MARKERS,
            snapshot=ProviderSnapshot(provider="example"),
        )
        return request, postprocess(request, render(request, AnswerProtocol.MARKERS), completion)
    provider = Extractive()
    prompt = render(request, provider.protocol(request.config))
    answered = asyncio.run(provider.call(provider.plan(request, prompt)))
    return request, postprocess(request, prompt, answered.completion)


def rendered(
    example: tuple[JobRequest, Processed],
    style: CitationStyle,
    output_format: OutputFormat,
    extras: Extras | None = None,
) -> str:
    """The answer in a style and format, as a block of code."""
    request, answer = example
    config = request.config.model_copy(update={"citation_style": style, "output_format": output_format})
    request = request.model_copy(update={"config": config})
    response = rerender(request, answer.canonical, answer.shown_sources, extras or Extras())
    if response.format_problem:
        raise ValueError(response.format_problem)
    return f"```\n{response.response}\n```"


def formats() -> str:
    """The page."""
    example = processed()
    return "\n".join([*INTRODUCTION, *_formats(example), *_styles(example), *_closing_lines(example)]) + "\n"


def _formats(example: tuple[JobRequest, Processed]) -> list[str]:
    lines = [
        "## Formats (`output_format`)",
        "",
        "A parser reads every rendered answer back. Faults of the form are repaired where that changes no word; one that stays",
        "makes the outcome `partial`, with the reason.",
        "",
    ]
    lines += READING
    for output_format, about in FORMATS.items():
        lines += [f"### {output_format.value}", "", about, ""]
        text = rendered(example, CitationStyle.NUMBERED, output_format).replace("```\n{", "```json\n{")
        lines += [] if text in lines else [text, ""]
        if output_format is OutputFormat.TABLE:
            own = rendered(processed(TABLE_ANSWER), CitationStyle.NUMBERED, output_format)
            lines += ["A model wrote a table of its own in running text:", "", own, ""]
    return [
        *lines,
        "### auto",
        "",
        "Decided by the job's `intent` (`comparison`: table, `procedural` or `how-to`: steps, `list`: bullets), then by",
        "the form that the query names (*as a table*, *step by step*, *as a list*), then by the mode `comparison`, then",
        "by what the query asks: *list*, *what are all*, *enumerate*; *compare*, *difference*, *vs*; *how to*, *steps*,",
        "*process*; and their like in German, Spanish, French, Chinese and Arabic, where the asker is who acts (*¿Cómo lo",
        "cancelo?*, *如何解除合同*). Else it is markdown.",
        "",
    ]


def _styles(example: tuple[JobRequest, Processed]) -> list[str]:
    lines = [
        "## Citation styles (`citation_style`)",
        "",
        "A marker comes before the punctuation that closes its statement. `include_citations: false` leaves the markers out;",
        "the citations are located all the same. Markdown in a title is escaped. A style may also be a marker of your own with",
        "`{index}` or `{title}` in it, such as `({index})`; `citation_format` is another name of the option.",
        "",
    ]
    for style in CitationStyle:
        about = manner_of(style).about
        lines += [
            f"### {style.value}",
            "",
            f"{about[0].upper()}{about[1:]}{' (the default).' if style is CitationStyle.NUMBERED else '.'}",
            "",
        ]
        if style is not CitationStyle.NUMBERED:
            lines += [rendered(example, style, OutputFormat.MARKDOWN), ""]
    return lines


def _closing_lines(example: tuple[JobRequest, Processed]) -> list[str]:
    extras = Extras(sources=True, score=("Confidence", 0.87))
    return [
        "## Closing lines",
        "",
        "`--with-sources` adds the list of sources to the styles that have none, `--with-confidence` a line with the",
        "confidence, or else the answer quality. In JSON it is a field. With a confidence of 0.87:",
        "",
        rendered(example, CitationStyle.NUMBERED, OutputFormat.MARKDOWN, extras),
    ]


if __name__ == "__main__":
    (Path(__file__).parent / "formats.md").write_text(formats())
