"""Writes the shipped model file, and says whether the one in the repository is what the data and the recipe give."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.eval.data import sha256
from bench.eval.fitting import RECIPE, Fitted, Table, fit
from tasks.grounding import model
from tasks.grounding.model import WEIGHED, Features
from tasks.grounding.weights import RightShares

TARGET = Path(model.__file__).parent / "models" / model.SHIPPED
VERSION = "6"


def write(fitted: Fitted, right: RightShares, paths: Sequence[Path], metrics: dict[str, Any]) -> Path:
    """Write the model file."""
    weights = fitted.weights
    TARGET.write_text(
        json.dumps(
            {
                "name": "lexical",
                "version": VERSION,
                "features": WEIGHED,
                "weights": [round(value, 5) for value in weights.weights],
                "intercept": round(weights.intercept, 5),
                "knots": fitted.knots,
                "supported_at": round(fitted.supported_at, 4),
                "right": right.model_dump(),
                "trained_on": {path.name: sha256(path) for path in paths},
                "trained_at": datetime.now(UTC).date().isoformat(),
                "recipe": RECIPE,
                "metrics": metrics,
            },
            indent=1,
        )
        + "\n"
    )
    model.shipped.cache_clear()
    return TARGET


def drift(table: Table, paths: Sequence[Path]) -> str:
    """One sentence that says if a fit on these files gives the shipped model."""
    shipped = model.shipped()
    if shipped.trained_on != {path.name: sha256(path) for path in paths}:
        return "The shipped model was fitted on other files than these."
    again = fit(table, np.ones(len(table.rows), dtype=bool))
    gap = float(
        np.abs(
            again.probabilities(again.weights.log_odds(table.features))
            - [shipped.probability(Features(*claim[:-1], verbatim=bool(claim[-1]))) for claim in table.features]
        ).max()
    )
    return (
        f"The shipped model {shipped.identity} was fitted on these files; fitting it again gives probabilities that differ"
        f" by at most {gap:.4f}."
    )
