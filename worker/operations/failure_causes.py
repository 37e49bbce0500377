"""Says why jobs of a batch failed, by cause, each with the command that helps."""

from uuid import UUID

from schemas.batch import FailureCause
from schemas.failure import FailureKind
from worker.operations.counts import count_of

_REMEDIES = {
    FailureKind.INVALID_REQUEST: "correct the setting that it names, restart the workers, then: {again}{change}",
    FailureKind.CONTEXT_EXCEEDED: "set a model with a larger window, restart the workers, then: {again}{change}",
    FailureKind.AUTHENTICATION: "set a key that is accepted, restart the workers, then: {again}",
    FailureKind.PERMISSION: "let the key use the model, then: {again}",
    FailureKind.NOT_FOUND: "set a model that exists, restart the workers, then: {again}{change}",
    FailureKind.PARAMETER: "change the setting that it names, restart the workers, then: {again}{change}",
    FailureKind.CONFIGURATION: "correct the setting, restart the workers, then: {again}",
    FailureKind.BAD_ANSWER: "raise max_tokens or take another model; the same again: {again}",
    FailureKind.MISSING_CITATIONS: "lower min_citations, or let such answers be partial; the same again: {again}",
    FailureKind.WORKER_LOST: "the job may be the cause: look at its sources and the workers' logs, then: {again}",
    FailureKind.UNREADABLE: "restore the rows of these jobs from a backup, then: {again}; or submit them again",
    FailureKind.INTERNAL: "a defect of Nightdesk: keep the message and the log, and report it",
}
"""The remedy by cause; a cause that is not here went away by itself, perhaps."""


def remedy(batch_id: UUID, kind: FailureKind) -> str:
    """The remedy for jobs of a batch that failed for a cause."""
    again = f"nightdesk retry {batch_id} --cause {kind.value}"
    change = f"; to change the jobs themselves, run the file of: nightdesk results {batch_id} --failed -o failed.jsonl"
    return _REMEDIES.get(kind, "try them again: {again}").format(again=again, change=change)


def failure_lines(batch_id: UUID, causes: tuple[FailureCause, ...]) -> list[str]:
    """Two lines a cause: number, example and the words of the first failure; the remedy."""
    lines = []
    for cause in causes:
        example = " ".join(cause.example.split()).rstrip(".")
        lines.append(
            f"{count_of(cause.jobs, 'job')} failed ({cause.kind.value}), such as {batch_id}:line{cause.position + 1}: {example}"
        )
        lines.append(f"To fix it: {remedy(batch_id, cause.kind)}")
    return lines
