"""Says before a submission who answers at what price, and stops it where the first call would fail."""

from collections.abc import Sequence

from tasks.errors import ConfigurationError, ServiceUnavailable
from worker.cli.exits import run_interruptible
from worker.cli.session import Session
from worker.cli.terminal import actor, tell, warn
from worker.ledger.postgres import PostgresLedger
from worker.operations.answerers import Answerers
from worker.operations.counts import count_of
from worker.operations.file_submission import Submission
from worker.operations.preflight import NOTHING, check_models, disk_line, first_jobs, judges_line, models_line
from worker.settings import Settings


def announce(
    settings: Settings, submission: Submission, files: Sequence[str], answerers: Answerers, *, quiet: bool
) -> None:
    """Says who answers the first jobs of some files at what price, and warns of a disk that is too full for them.

    Args:
        settings: of this process.
        submission: with at least one valid job.
        files: of the submission.
        answerers: of its jobs.
        quiet: say nothing but warnings.

    Raises: ConfigurationError for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if line := disk_line(settings, files, jobs):
        warn(line)
    if quiet or not (jobs.configs or jobs.judges):
        return
    why = f", {answerers.why}" if answerers.why else ""
    for kind in answerers.kinds:
        for line in (
            models_line(kind.providers, kind.settings, jobs.configs),
            judges_line(kind.providers, kind.settings, jobs.judges),
        ):
            if line:
                tell(f"{line}{why}")


def ask_models(settings: Settings, submission: Submission, answerers: Answerers) -> list[tuple[str, str]]:
    """Asks the providers of the first jobs for their models and judges; warns of what they did not tell.

    Returns: the providers with their models that did not refuse the key; none where others have the key.
    Raises: ConfigurationError, ServiceUnavailable for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if answerers.here and answerers.certain and (jobs.configs or jobs.judges):
        accepted: list[tuple[str, str]] = []
        for line in run_interruptible(
            check_models(answerers.first.providers, settings, jobs.configs, jobs.judges, on_accepted=accepted.append)
        ):
            warn(line)
        return accepted
    return []


def ask_models_again(settings: Settings, submission: Submission, answerers: Answerers) -> list[tuple[str, str]]:
    """The same for a batch that is there already, and whose calls were stopped: warns of what every call would meet."""
    try:
        return ask_models(settings, submission, answerers)
    except (ConfigurationError, ServiceUnavailable) as error:
        warn(str(error).partition(f" {NOTHING}")[0])
        return []


async def resume_lanes(ledger: PostgresLedger, opened: Session, accepted: Sequence[tuple[str, str]]) -> None:
    """Lets the lanes go on that a refused key paused, and says so, unless workers run that have another key."""
    if not accepted or opened.supervisor.has_other_keys():
        return
    providers, jobs = await ledger.fleet.resume_lanes(accepted, actor())
    if providers:
        tell(f"{', '.join(providers)} accepts the key now: {count_of(jobs, 'held job')} released")
