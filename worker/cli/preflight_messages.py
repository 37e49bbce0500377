"""Says before a submission who answers at what price, and stops it where the first call would fail."""

from collections.abc import Sequence

from worker.cli.exits import run_interruptible
from worker.cli.terminal import tell, warn
from worker.operations.file_submission import Submission
from worker.operations.preflight import check_models, disk_line, first_jobs, judges_line, models_line
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


def ask_models(settings: Settings, submission: Submission, *, certain: bool) -> None:
    """Asks the providers of the first jobs for their models and judges; warns of what they did not tell.

    Raises: ConfigurationError, ServiceUnavailable for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if certain and (jobs.configs or jobs.judges):
        providers = ConfiguredProviders(settings)
        for line in run_interruptible(check_models(providers, settings, jobs.configs, jobs.judges)):
            warn(line)
