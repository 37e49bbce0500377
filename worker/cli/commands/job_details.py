"""``nightdesk show``: everything known of one job."""

from tasks.results import result_of
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.job_view import show_job
from worker.cli.session import on_ledger
from worker.cli.terminal import write_json
from worker.operations.audit import audit_of, find_job, to_json


def show(job: options.JobTarget, *, as_json: options.Json = False) -> int:
    """Show everything known of a job: the answer with its claims and evidence, every attempt, the messages sent."""
    first_id, name = options.job_target(job, "a job's id")
    detail = on_ledger(lambda ledger: find_job(ledger, first_id, name))
    audit = audit_of(detail, result_of(detail.view))
    if as_json:
        write_json(to_json(audit))
    else:
        show_job(audit)
    return OK
