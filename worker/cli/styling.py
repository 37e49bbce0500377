"""Renders stored answers in another style or format, as options of a command ask for."""

from dataclasses import dataclass
from typing import Annotated, Any

from schemas.generation import CitationStyle, OutputFormat, Style
from schemas.job import GenerationConfig
from schemas.record import JobResult
from tasks.errors import InputError
from tasks.ports import JobView
from worker.cli.help import option


def style_of(text: str) -> Style:
    """Reads a style of citations, or a marker of one's own; raises ``InputError``."""
    # Results are mostly written as they are stored: then no step of an answer is loaded.
    from tasks.submit import validated  # noqa: PLC0415

    config: GenerationConfig = validated(GenerationConfig, {"citation_style": text})
    return config.citation_style


CitationStyleOption = Annotated[
    Any,
    option(
        f"Render the citations anew, without a call: {', '.join(CitationStyle)}, or a marker of your own "
        "with {index} or {title}: '({index})'.",
        "--citation-style",
        metavar="STYLE",
        parser=style_of,
    ),
]
Format = Annotated[
    OutputFormat | None,
    option("Render the answers in this format; makes no provider call.", "--output-format"),
]
WithSources = Annotated[bool, option("Close each answer with the list of the sources it cites.", "--with-sources")]
WithConfidence = Annotated[
    bool, option("Close each answer with its confidence, or its answer quality.", "--with-confidence")
]


@dataclass(frozen=True, slots=True)
class Styling:
    """The rendering of stored answers. Raises ``InputError`` for ``auto``: a stored answer has its format."""

    style: Style | None = None
    output_format: OutputFormat | None = None
    with_sources: bool = False
    with_confidence: bool = False

    def __post_init__(self) -> None:
        if self.output_format is OutputFormat.AUTO:
            raise InputError("--output-format auto: name a format, or leave the option out to keep the one it has")

    def result(self, view: JobView) -> JobResult:
        """The result of a job, rendered again when a style, a format or a closing line is asked for."""
        # As above.
        from tasks.results import result_of  # noqa: PLC0415

        if self == Styling():
            return result_of(view)
        from tasks.policy.restyle import restyle  # noqa: PLC0415

        return restyle(
            view,
            self.style,
            self.output_format,
            with_sources=self.with_sources,
            with_confidence=self.with_confidence,
        )
