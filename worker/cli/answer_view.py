"""Shows one answer as a person wants to read it: question, answer, claims with their verdicts, and sources."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from schemas.grounding import Claim, Evidence, Verdict
from schemas.job import JobRequest, SourceContext
from schemas.record import JobResult
from worker.cli.console import safe

VERDICTS = {
    Verdict.SUPPORTED: ("✓", "green"),
    Verdict.CONTRADICTED: ("✗", "bold red"),
    Verdict.UNSUPPORTED: ("✗", "red"),
    Verdict.NOT_CHECKABLE: ("·", "dim"),
    Verdict.UNCHECKED: ("?", "yellow"),
}
"""Sign and colour of a verdict."""

SNIPPET = 300
"""Characters of evidence shown; more is cut in the middle."""

INDENT = 2


def show_answer(out: Console, request: JobRequest, result: JobResult) -> None:
    """Writes one answer with everything that lets a reader judge it."""
    out.print(safe("Question", "bold"))
    out.print(_indented(safe(request.query or "(none: a given answer was checked)")))
    out.print(safe("Answer", "bold"), safe(f"({_kind(result)})", "dim"))
    out.print(_indented(_response(result)))
    if result.claims:
        out.print(safe("Claims", "bold"), _score(result))
        out.print(_indented(Group(*_claims(request, result))))
    if sources := list(_sources(request, result)):
        out.print(safe("Sources", "bold"), safe(f"({len(sources)} of {len(request.context)} given are used)", "dim"))
        out.print(_indented(Group(*sources)))


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 1, INDENT), expand=False)


def _kind(result: JobResult) -> str:
    parts = [(result.outcome or result.state).value]
    if result.provider_snapshot is not None:
        snapshot = result.provider_snapshot
        parts.append(" ".join(filter(None, (snapshot.provider, snapshot.model_returned or snapshot.model_asked))))
    return ", ".join(parts)


def _response(result: JobResult) -> Text:
    """The answer with its citation markers set off."""
    text = safe(result.response)
    for citation in result.citations:
        text.stylize("bold cyan" if citation.verified else "bold yellow", citation.start_pos, citation.end_pos)
    return text


def _score(result: JobResult) -> Text:
    scores = []
    if result.grounding_score is not None:
        scores.append(f"grounding {result.grounding_score:.2f}")
    if result.confidence is not None:
        scores.append(f"confidence {result.confidence:.2f}")
    return safe(f"({', '.join(scores)})" if scores else "", "dim")


def _claims(request: JobRequest, result: JobResult) -> Iterator[RenderableType]:
    ranks = {citation.source_index: citation.rank for citation in result.citations}
    for claim in result.claims:
        sign, style = VERDICTS[claim.verdict]
        table = Table.grid(padding=(0, 1))
        table.add_row(Text(sign, style=style), Text.assemble((claim.verdict.value, style), "  ", safe(claim.text)))
        for remark in _remarks(claim):
            table.add_row("", safe(remark, "yellow"))
        for evidence in claim.evidence:
            table.add_row("", _evidence(request, evidence, ranks))
        yield table


def _remarks(claim: Claim) -> Iterator[str]:
    if claim.miscited:
        yield "supported, but not by the source it cites"
    if claim.reason and claim.verdict is not Verdict.SUPPORTED:
        yield claim.reason


def _evidence(request: JobRequest, evidence: Evidence, ranks: dict[int, int]) -> Text:
    source = request.context[evidence.source_index]
    words = " ".join(source.content[evidence.start : evidence.end].split())
    if len(words) > SNIPPET:
        words = f"{words[: SNIPPET // 2]} … {words[-SNIPPET // 2 :]}"
    rank = ranks.get(evidence.source_index)
    name = f"[{rank}]" if rank else f"source {evidence.source_index + 1}, not cited"
    return Text.assemble((f"{name} ", "cyan"), safe(f"“{words}”", "italic dim"))


def _sources(request: JobRequest, result: JobResult) -> Iterator[RenderableType]:
    """The cited sources, by the number they have in the answer."""
    ranked = {citation.rank: citation.source_index for citation in result.citations}
    for rank, index in sorted(ranked.items()):
        yield Text.assemble((f"[{rank}] ", "bold cyan"), safe(label(request.context[index])))


def label(source: SourceContext) -> str:
    """A name for a source that people recognise."""
    metadata = source.metadata
    name = next((str(metadata[key]) for key in ("title", "source_path") if metadata.get(key)), source.document_id)
    parts = [name]
    parts += [str(metadata[key]) for key in ("article", "section") if metadata.get(key)]
    if metadata.get("page") is not None:
        parts.append(f"page {metadata['page']}")
    return ", ".join(parts)
