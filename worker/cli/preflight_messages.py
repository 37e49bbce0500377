"""Says before a submission who answers at what price, and stops it where the first call would fail."""

from collections.abc import Sequence

from tasks.errors import ConfigurationError, ServiceUnavailable
from worker.cli.exits import run_interruptible
from worker.cli.session import Session
from worker.cli.terminal import actor, tell, warn
from worker.ledger.postgres import PostgresLedger
from worker.operations.counts import count_of
from worker.operations.file_submission import Submission
from worker.operations.preflight import NOTHING, check_models, disk_line, first_jobs, judges_line, models_line
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings


def announce(settings: Settings, submission: Submission, files: Sequence[str], *, quiet: bool, certain: bool) -> None:
    """Says who answers the first jobs of some files at what price, and warns of a disk that is too full for them.

    Nothing is asked or started for that: it is a command's first line.

    Args:
        settings: of this process.
        submission: with at least one valid job.
        files: of the submission.
        quiet: say nothing but warnings.
        certain: the workers have these settings; else their providers are not known here.

    Raises: ConfigurationError for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if line := disk_line(settings, files, jobs):
        warn(line)
    if quiet or not certain or not (jobs.configs or jobs.judges):
        return
    providers = ConfiguredProviders(settings)
    for line in (models_line(providers, settings, jobs.configs), judges_line(providers, settings, jobs.judges)):
        if line:
            tell(line)


def ask_models(settings: Settings, submission: Submission, *, certain: bool) -> list[tuple[str, str]]:
    """Asks the providers of the first jobs for their models and judges; warns of what they did not tell.

    Returns: the providers with their models that did not refuse the key.
    Raises: ConfigurationError, ServiceUnavailable for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if certain and (jobs.configs or jobs.judges):
        providers = ConfiguredProviders(settings)
        accepted: list[tuple[str, str]] = []
        for line in run_interruptible(
            check_models(providers, settings, jobs.configs, jobs.judges, on_accepted=accepted.append)
        ):
            warn(line)
        return accepted
    return []


def ask_models_again(settings: Settings, submission: Submission, *, certain: bool) -> list[tuple[str, str]]:
    """The same for a batch that is there already, and whose calls were stopped: warns of what every call would meet."""
    try:
        return ask_models(settings, submission, certain=certain)
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
