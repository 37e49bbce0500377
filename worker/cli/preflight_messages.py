"""Says before a submission who answers at what price, and stops it where the first call would fail."""

from collections.abc import Sequence

from worker.cli.exits import run_interruptible
from worker.cli.terminal import tell, warn
from worker.operations.file_submission import Submission
from worker.operations.preflight import check_models, disk_line, first_jobs, models_line
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings


def make_sure(
    settings: Settings, submission: Submission, files: Sequence[str], *, quiet: bool, certain: bool, ask: bool
) -> None:
    """Looks at provider, key, model, price and disk for the first jobs of some files.

    Args:
        settings: of this process.
        submission: with at least one valid job.
        files: of the submission.
        quiet: say nothing but warnings.
        certain: the workers have these settings; else their providers are not known here.
        ask: ask the providers, too.

    Raises: ConfigurationError, ServiceUnavailable for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if line := disk_line(settings, files, jobs):
        warn(line)
    if not certain or not jobs.configs:
        return
    providers = ConfiguredProviders(settings)
    if not quiet and (line := models_line(providers, settings, jobs.configs)):
        tell(line)
    if ask:
        for line in run_interruptible(check_models(providers, jobs.configs)):
            warn(line)
