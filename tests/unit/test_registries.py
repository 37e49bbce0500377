"""Tables by the members of an enumeration: a new member has its row in each, or the table says what holds without one."""

import pkgutil
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import docs
import schemas
import tasks
import worker
from docs.formats import FORMATS
from schemas.generation import OutputFormat
from schemas.states import FINAL_STATES, HeldReason, JobState, Outcome
from worker.operations import report_page
from worker.operations.report_page import ENDINGS

PARTIAL = {
    "schemas.claim_error._LABELS": "a kind without a label is called by its name",
    "schemas.generation.WINDOWS": "lanes in the background",
    "tasks.grounding.CHECKERS": "layers that compute here, without a model",
    "tasks.grounding.MISSING": "layers that may be absent",
    "tasks.policy.outcome._LABELS": "verdicts of which a reader is told",
    "worker.doctor.environment.ORIGINS": "revisions that this version does not know",
    "worker.http.response_document._CODES": "causes that the API of OpenAI has a code for",
    "worker.ledger.fleet._REMEDIES": "causes that pause a lane",
    "worker.operations.overview._REMEDIES": "causes that went away by themselves have none",
    "worker.operations.overview._SCOPES": "holds for a budget",
    "worker.providers.adapter._HAS_NOT": "lanes with fewer parameters",
    "worker.providers.vendors.VENDORS": "kinds of one vendor",
    "worker.provider_settings.CLOUD_OPTIONS": "kinds of a cloud",
}
"""Tables with fewer rows on purpose, each with what its rows are."""

EXTRAS = {"worker.providers.llamaindex", "worker.scorers.onnx", "worker.telemetry.spans"}
"""Modules that need more than the package does."""


def modules() -> Iterator[ModuleType]:
    for root in (schemas, tasks, worker):
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not module.name.endswith("__main__") and ".migrations." not in module.name and module.name not in EXTRAS:
                yield import_module(module.name)


def enum_of(value: Any) -> type[Enum] | None:
    """The enumeration whose members alone are the keys of a table."""
    kinds = {type(key) for key in value} if isinstance(value, Mapping) else set()
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    return kind if kind is not None and issubclass(kind, Enum) else None


def tables() -> dict[str, tuple[type[Enum], Mapping[Enum, Any]]]:
    """Every table by an enumeration, by the shortest path that leads to it."""
    names: dict[int, str] = {}
    values: dict[int, tuple[type[Enum], Mapping[Enum, Any]]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if (kind := enum_of(value)) is not None:
                path = f"{module.__name__}.{name}"
                # Imported by others, it is still that of one module.
                own = PARTIAL.keys() & {path}
                names[id(value)] = path if own else names.get(id(value), path)
                values[id(value)] = kind, value
    return {names[key]: value for key, value in values.items()}


def test_each_table_by_an_enumeration_has_each_member() -> None:
    incomplete = {path for path, (kind, table) in tables().items() if set(kind) - table.keys()}
    assert incomplete == PARTIAL.keys(), "add the member's row, or say in PARTIAL what holds without one"
    assert len(tables()) > len(PARTIAL) + 10


def test_each_ending_has_its_place_in_the_report_and_each_format_its_lines_in_the_docs() -> None:
    assert set(ENDINGS) == set(Outcome) | (FINAL_STATES - {JobState.COMPLETED})
    style = (Path(report_page.__file__).parent / "report.css.j2").read_text(encoding="utf-8")
    drawn = {
        name for name in ENDINGS if style.count(f"--{name}:#") == 2 and f"rect.{name}{{fill:var(--{name})}}" in style
    }
    assert drawn == set(ENDINGS), "a colour by light and one by dark"
    assert FORMATS.keys() == set(OutputFormat) - {OutputFormat.AUTO}


def test_each_hold_is_told_with_what_ends_it() -> None:
    holds = (Path(docs.__file__).parent / "operate.md").read_text(encoding="utf-8").partition("## Holds")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", holds.partition("\n## ")[0], re.MULTILINE)) == set(HeldReason)
