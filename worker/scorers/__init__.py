"""Loads the local model of the check that the settings name: by ``onnx`` from a directory, or by a path of your own."""

from importlib import import_module
from pathlib import Path

from tasks.errors import ConfigurationError
from tasks.ports.provider import ClaimScorer
from worker.plugins import load_plugin
from worker.settings import Settings

__all__ = ["scorer_of"]

SETTING = "NIGHTDESK_LOCAL_MODEL"


def scorer_of(settings: Settings) -> ClaimScorer | None:
    """Loads the model that the settings name; None without one.

    Only the settings name a model, never a job. Raises ``ConfigurationError`` with the problem of the setting.
    """
    model = settings.local_model
    if model is None:
        return None
    if Path(model).is_dir():
        return _from_directory(Path(model), settings.local_model_threads)
    if model.partition(":")[2]:
        return _from_path(model)
    raise ConfigurationError(f"{SETTING}: {model} is neither a directory nor a path like 'package.module:factory'")


def _from_directory(directory: Path, threads: int) -> ClaimScorer:
    try:
        onnx = import_module("worker.scorers.onnx")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{SETTING}: a model in a directory needs {error.name}: install Nightdesk with the extra 'onnx'"
        ) from error
    scorer: ClaimScorer = onnx.OnnxScorer(directory, threads=threads)
    return scorer


def _from_path(path: str) -> ClaimScorer:
    scorer: ClaimScorer = load_plugin(path, "", SETTING).build(f"{SETTING}: {path}")
    for attribute, kind in (("name", str), ("version", str), ("max_tokens", int)):
        if not isinstance(getattr(scorer, attribute, None), kind):
            raise ConfigurationError(f"{SETTING}: the model of {path} has no '{attribute}' ({kind.__name__})")
    if not callable(getattr(scorer, "score", None)):
        raise ConfigurationError(f"{SETTING}: the model of {path} has no method 'score'")
    return scorer
