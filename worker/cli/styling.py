"""Renders stored answers in another style or format, as options of a command ask for."""

from dataclasses import dataclass
from typing import Annotated

import typer

from schemas.generation import CitationStyle, OutputFormat
from schemas.record import JobResult
from tasks.errors import InputError
from tasks.ports import JobView

Style = Annotated[
    CitationStyle | None,
    typer.Option("--citation-style", help="Render the citations in this style; makes no provider call."),
]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--output-format", help="Render the answers in this format; makes no provider call."),
]
WithSources = Annotated[
    bool, typer.Option("--with-sources", help="Close each answer with the list of the sources it cites.")
]
WithConfidence = Annotated[
    bool, typer.Option("--with-confidence", help="Close each answer with its confidence, or its answer quality.")
]


@dataclass(frozen=True, slots=True)
class Styling:
    """The rendering of stored answers. Raises ``InputError`` for ``auto``: a stored answer has its format."""

    style: CitationStyle | None = None
    output_format: OutputFormat | None = None
    with_sources: bool = False
    with_confidence: bool = False

    def __post_init__(self) -> None:
        if self.output_format is OutputFormat.AUTO:
            raise InputError("--output-format auto: name a format, or leave the option out to keep the one it has")

    def result(self, view: JobView) -> JobResult:
        """The result of a job, rendered again when a style, a format or a closing line is asked for."""
        # Results are mostly written as they are stored: then no step of an answer is loaded.
        from tasks.results import result_of  # noqa: PLC0415

        if self == Styling():
            return result_of(view)
        from tasks.policy.restyle import restyle  # noqa: PLC0415 - as above

        return restyle(
            view,
            self.style,
            self.output_format,
            with_sources=self.with_sources,
            with_confidence=self.with_confidence,
        )
