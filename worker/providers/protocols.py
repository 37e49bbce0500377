"""Choose the answer protocol of a job among those of the adapter."""

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, GenerationConfig
from worker.providers.failures import Failures


def chosen(
    config: GenerationConfig,
    best: AnswerProtocol,
    serves: tuple[AnswerProtocol, ...],
    preferred: AnswerProtocol | None,
    failures: Failures,
) -> AnswerProtocol:
    """Choose the answer protocol of a job.

    Args:
        config: the job's; a protocol in it has precedence.
        best: the adapter's best protocol for it.
        serves: all protocols of the adapter.
        preferred: the settings' choice for this provider; gives way to a job's ``output_schema``.
        failures: of the provider.

    Raises: ProviderError (configuration) for a protocol that the adapter lacks, or that can't carry the object.
    """
    protocol = config.answer_protocol
    if protocol is None:
        if preferred is None or config.output_schema is not None:
            return best
        protocol = preferred
    if protocol not in serves:
        available = ", ".join(f"'{served.value}'" for served in serves)
        problem = f"has no answer protocol '{protocol.value}'; it has {available}: change answer_protocol"
        raise failures.error(FailureKind.CONFIGURATION, problem)
    if config.output_schema is not None and protocol is not AnswerProtocol.SEGMENTS:
        problem = f"can't return the object of output_schema with answer_protocol '{protocol.value}': use 'segments'"
        raise failures.error(FailureKind.CONFIGURATION, problem)
    return protocol
