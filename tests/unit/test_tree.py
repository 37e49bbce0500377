"""The rooms of the packages: few loose modules, and no name twice."""

from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_only_the_way_of_a_job_lies_loose() -> None:
    loose = {
        name: sorted(path.stem for path in (REPOSITORY / name).glob("*.py") if path.stem != "__init__")
        for name in ("tasks", "worker")
    }
    assert loose == {
        "tasks": ["celery_tasks", "check", "defaults", "errors", "generate", "masking", "results", "submit"],
        "worker": [
            "batching",
            "cancellation",
            "provider_settings",
            "public_address",
            "settings",
            "token_streams",
            "variables",
            "wiring",
        ],
    }, "a module belongs into a package; one that all packages use is a matter for this list"


def test_no_module_has_the_name_of_another() -> None:
    names = Counter(path.stem for name in ("schemas", "tasks", "worker") for path in (REPOSITORY / name).rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "__init__"] == []
