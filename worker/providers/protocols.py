"""Chooses the form in which a model is asked to answer, among those its adapter has."""

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
    """The answer protocol of a job.

    Args:
        config: the job's; a protocol named there goes before all else.
        best: what the adapter serves best for it.
        serves: what the adapter has at all.
        preferred: the settings' choice for this provider; gives way to a job's ``output_schema``.
        failures: of the provider.

    Raises: ProviderError (configuration) for a protocol that the adapter has not, or that can't carry the object.
    """
    asked = config.answer_protocol
    if asked is None:
        if preferred is None or config.output_schema is not None:
            return best
        asked = preferred
    if asked not in serves:
        has = ", ".join(f"'{protocol.value}'" for protocol in serves)
        told = f"has no answer protocol '{asked.value}'; it has {has}: change answer_protocol"
        raise failures.error(FailureKind.CONFIGURATION, told)
    if config.output_schema is not None and asked is not AnswerProtocol.SEGMENTS:
        told = f"can't return the object of output_schema with answer_protocol '{asked.value}': use 'segments'"
        raise failures.error(FailureKind.CONFIGURATION, told)
    return asked
