"""``nightdesk show``: everything known of one job."""

from worker.cli import options
from worker.cli.exits import OK
from worker.cli.job_view import show_job
from worker.cli.session import on_ledger
from worker.cli.styling import CitationStyleOption, Format, Styling, WithConfidence, WithSources
from worker.cli.terminal import write_json
from worker.operations.audit import audit_of, find_job, to_json


def show(
    job: options.JobTarget,
    *,
    citation_style: CitationStyleOption = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    as_json: options.Json = False,
) -> int:
    """Show everything known of a job: the answer with its claims and evidence, every attempt, the messages sent.

    The answer is rendered again when a style, a format or a closing line is asked for; the records stay as they are.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    first_id, name = options.job_target(job, "a job's id")
    detail = on_ledger(lambda ledger: find_job(ledger, first_id, name))
    audit = audit_of(detail, styling.result(detail.view))
    if as_json:
        write_json(to_json(audit))
    else:
        show_job(audit)
    return OK
