"""Local models of the check, as the settings name them.

onnx  any cross-encoder in ONNX form, from a directory
card  what a directory says of its model
"""

from importlib import import_module
from pathlib import Path

from tasks.errors import ConfigurationError
from tasks.ports.scorer import ClaimScorer
from worker.settings import Settings

__all__ = ["scorer_of"]

SETTING = "NIGHTDESK_LOCAL_MODEL"


def scorer_of(settings: Settings) -> ClaimScorer | None:
    """Load the model that the settings name; None: they name none.

    Only settings name one, never a job. Raises ``ConfigurationError`` that says what is wrong with it.
    """
    named = settings.local_model
    if named is None:
        return None
    if Path(named).is_dir():
        return _from_directory(Path(named), settings.local_model_threads)
    if ":" in named:
        return _from_path(named)
    raise ConfigurationError(f"{SETTING}: {named} is neither a directory nor a path like 'package.module:factory'")


def _from_directory(directory: Path, threads: int) -> ClaimScorer:
    try:
        onnx = import_module("worker.scorers.onnx")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{SETTING}: a model in a directory needs {error.name}: install Nightdesk with the extra 'onnx'"
        ) from error
    scorer: ClaimScorer = onnx.OnnxScorer(directory, threads=threads)
    return scorer


def _from_path(named: str) -> ClaimScorer:
    module, _, factory = named.partition(":")
    try:
        scorer: ClaimScorer = getattr(import_module(module), factory)()
    except Exception as error:
        # Someone else's code: whatever it raises, the operator is to read which setting brought it here.
        raise ConfigurationError(f"{SETTING}: {named} gave no model: {type(error).__name__}: {error}") from error
    for wanted, kind in (("name", str), ("version", str), ("max_tokens", int)):
        if not isinstance(getattr(scorer, wanted, None), kind):
            raise ConfigurationError(f"{SETTING}: the model of {named} has no '{wanted}' ({kind.__name__})")
    if not callable(getattr(scorer, "score", None)):
        raise ConfigurationError(f"{SETTING}: the model of {named} has no method 'score'")
    return scorer
