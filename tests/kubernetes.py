"""Renders each overlay of deploy/k8s, alone and with each component, and checks every object by the schema of its kind (make test-k8s)."""

import importlib
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.deployment import KUBERNETES

VERSIONS = ("1.30", "1.37")
"""The oldest and the newest Kubernetes whose schemas are asked."""

MODELS = {
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
}
"""Models made from the definitions of kinds that are no part of Kubernetes."""


def main() -> int:
    """Render and check everything; ends with 1 when an object is wrong."""
    wrong = 0
    for name, folder in sorted(_roots().items()):
        objects = [each for each in yaml.safe_load_all(_render(folder)) if each]
        faults = [fault for each in objects for fault in _faults(each)] + _duplicates(objects)
        wrong += len(faults)
        sys.stdout.write(f"{name:<40} {len(objects):>3} objects, {len(faults)} wrong\n")
        for fault in faults:
            sys.stdout.write(f"  {fault}\n")
    wrong += _is_blind()
    return 1 if wrong else 0


def _roots() -> dict[str, Path]:
    overlays = {f"overlays/{path.name}": path for path in (KUBERNETES / "overlays").iterdir()}
    components = {f"base + {path.name}": path for path in (KUBERNETES / "components").iterdir()}
    return {"base": KUBERNETES / "base", **overlays, **components}


def _render(folder: Path) -> str:
    if folder.parent.name != "components":
        return _kustomize(folder)
    with tempfile.TemporaryDirectory(dir=KUBERNETES) as root:
        kustomization = {"resources": ["../base"], "components": [f"../components/{folder.name}"]}
        (Path(root) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return _kustomize(Path(root))


def _kustomize(folder: Path) -> str:
    return subprocess.run(
        ["kubectl", "kustomize", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def _faults(document: dict[str, Any]) -> list[str]:
    name = f"{document['kind']} {document['metadata']['name']}"
    if (models := MODELS.get(document["apiVersion"])) is not None:
        return [f"{name}: {fault}" for fault in _model_faults(document, models)]
    faults = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{name} ({version}): {error.message}")
    return faults


def _model_faults(document: dict[str, Any], models: str) -> list[str]:
    """Errors of types, and fields that the definition does not have: its models would keep those."""
    model = getattr(importlib.import_module(models), document["kind"])
    try:
        parsed = model.model_validate(document)
    except ValueError as error:
        return [str(error)]
    return list(_unknown(document, parsed.model_dump(by_alias=True, exclude_unset=True, mode="json"), parsed))


def _unknown(document: Any, dump: Any, model: Any, place: str = "") -> list[str]:
    if not isinstance(document, dict) or not hasattr(type(model), "model_fields"):
        return []
    fields = {field.alias or name: name for name, field in type(model).model_fields.items()}
    faults = [f"{place}{key}: no such field" for key in document if key not in fields]
    for key in document.keys() & fields.keys():
        value, inner = document[key], getattr(model, fields[key])
        pairs = zip(value, inner, strict=True) if isinstance(value, list) else [(value, inner)]
        for each, part in pairs:
            faults += _unknown(each, dump, part, f"{place}{key}.")
    return faults


def _duplicates(objects: list[dict[str, Any]]) -> list[str]:
    counts = Counter((each["kind"], each["metadata"]["name"]) for each in objects)
    return [f"{kind} {name}: {count} times" for (kind, name), count in counts.items() if count > 1]


def _is_blind() -> int:
    """The number of wrong objects that these checks would pass: each must find what is wrong on purpose."""
    scaler = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "wrong"}}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "wrong"}}
    wrong = [
        {**monitor, "spec": {"selector": {}, "endpoints": [{"port": "http", "route": "/metrics"}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wrong"}, "spec": {"replica": 1}},
        {**scaler, "spec": {"scaleTargetRef": {"name": "x"}, "triggers": [], "minReplicas": 1}},
        {**scaler, "spec": {"scaleTargetRef": {"name": "x"}, "triggers": [{"type": "postgresql"}]}},
    ]
    passed = [each for each in wrong if not _faults(each)]
    sys.stdout.write(f"{'wrong on purpose':<40} {len(wrong):>3} objects, {len(wrong) - len(passed)} wrong\n")
    return len(passed)


if __name__ == "__main__":
    sys.exit(main())
