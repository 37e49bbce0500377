"""Options by which a command renders stored answers anew, and what they ask for."""

from dataclasses import dataclass
from typing import Annotated

import typer

from schemas.generation import CitationStyle, OutputFormat
from schemas.record import JobResult
from tasks.answers.restyle import restyle
from tasks.errors import InputError
from tasks.ports import JobView
from tasks.results import result_of

Style = Annotated[
    CitationStyle | None,
    typer.Option("--citation-style", help="Render the citations in this style; calls nobody."),
]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--output-format", help="Render the answers in this format; calls nobody."),
]
WithSources = Annotated[
    bool, typer.Option("--with-sources", help="Close each answer with the list of the sources it cites.")
]
WithConfidence = Annotated[
    bool, typer.Option("--with-confidence", help="Close each answer with its confidence, or its answer quality.")
]


@dataclass(frozen=True, slots=True)
class Styling:
    """How stored answers are to be rendered. Raises ``InputError`` for ``auto``: a stored answer has its format."""

    style: CitationStyle | None = None
    output_format: OutputFormat | None = None
    with_sources: bool = False
    with_confidence: bool = False

    def __post_init__(self) -> None:
        if self.output_format is OutputFormat.AUTO:
            raise InputError("--output-format auto: name a format, or leave the option out to keep the one it has")

    def result(self, view: JobView) -> JobResult:
        """The result of a job, rendered anew when anything is asked for."""
        if self == Styling():
            return result_of(view)
        return restyle(
            view,
            self.style,
            self.output_format,
            with_sources=self.with_sources,
            with_confidence=self.with_confidence,
        )
