"""The gate that every generated record must pass, whatever was asked for: four layers, then snapshot and timings."""

from typing import assert_never

from schemas.generation import CitationStyle, OutputFormat
from schemas.job import JobRequest
from schemas.record import GenerationRecord, JobResult, RecordStatus
from schemas.states import FINAL_STATES

_MEASURED = ("prompt", "llm", "postprocess", "check")
_SLACK_MS = 1.0


def assert_record(result: JobResult, record: GenerationRecord | None, request: JobRequest) -> None:
    """Hold a result and its record against the request they answer; for jobs that a model was called for."""
    assert record is not None, "no record"
    assert record.job_id == result.job_id
    assert result.state in FINAL_STATES

    assert record.output_raw, "the raw output was not kept"
    assert record.canonical is not None

    assert record.status in set(RecordStatus)
    assert record.answer == result.response
    assert (record.failure is None) is (record.status is not RecordStatus.FAILED)

    assert_citations(result, request)
    assert record.citations == result.citations
    assert {citation.source for segment in record.canonical.segments for citation in segment.citations} <= set(
        range(1, len(request.context) + 1)
    )

    _assert_snapshot(record, request)
    _assert_timings(record)


def assert_citations(result: JobResult, request: JobRequest) -> None:
    """Every citation is among the given sources, and every position is exact."""
    chunks = [source.chunk_id for source in request.context]
    ranks: dict[int, int] = {}
    for citation in result.citations:
        source = request.context[citation.source_index]
        assert citation.chunk_id in chunks
        assert (citation.chunk_id, citation.document_id) == (source.chunk_id, source.document_id)
        assert citation.rank == ranks.setdefault(citation.source_index, len(ranks) + 1)
        marker = result.response[citation.start_pos : citation.end_pos]
        assert bool(marker) is request.config.include_citations
        if citation.source_start is None or citation.source_end is None:
            assert (citation.verified, citation.quoted_text) == (False, "")
        else:
            assert source.content[citation.source_start : citation.source_end] == citation.quoted_text != ""
            assert citation.verified
    assert set(result.sources_used) == {citation.chunk_id for citation in result.citations}
    for claim in result.claims:
        assert result.response[claim.start_pos : claim.end_pos] == claim.text
        for evidence in claim.evidence:
            assert 0 <= evidence.start < evidence.end <= len(request.context[evidence.source_index].content)


def assert_marker(marker: str, rank: int, style: CitationStyle, output_format: OutputFormat) -> None:
    """A marker looks as its style says."""
    if output_format is OutputFormat.JSON:
        assert marker == str(rank)
        return
    match style:
        case CitationStyle.INLINE:
            assert marker.startswith("(Source: ")
            assert marker.endswith(")")
        case CitationStyle.FOOTNOTE:
            assert marker == str(rank).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        case CitationStyle.SOURCE:
            assert marker == f"[Source {rank}]"
        case CitationStyle.NUMBERED | CitationStyle.ENDNOTE:
            assert marker == f"[{rank}]"
        case _:
            assert_never(style)


def _assert_snapshot(record: GenerationRecord, request: JobRequest) -> None:
    snapshot, messages = record.provider_snapshot, record.messages_snapshot
    assert snapshot is not None
    assert messages is not None
    for name in ("provider", "model_asked", "model_returned", "protocol", "endpoint", "request_id", "sdk"):
        assert getattr(snapshot, name), f"provider_snapshot.{name} is missing"
    assert snapshot.parameters_sent
    assert (record.model_provider, record.model_name) == (snapshot.provider, snapshot.model_returned)
    assert record.prompt_name
    assert record.prompt_version
    assert record.prompt_hash
    assert messages.protocol is snapshot.protocol
    assert messages.proves([source.content for source in request.context])
    assert record.usage is not None
    assert record.usage.output_tokens > 0


def _assert_timings(record: GenerationRecord) -> None:
    timing = record.timing_ms.model_dump()
    total = timing.pop("total")
    assert min(timing.values()) >= 0
    assert all(timing[name] > 0 for name in _MEASURED), timing
    assert abs(sum(timing.values()) - total) <= _SLACK_MS
