"""Reads the deployment files as Docker Compose and Kubernetes do, so far as tests need it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
COMPOSE = REPOSITORY / "docker-compose.yml"
KUBERNETES = REPOSITORY / "deploy" / "k8s"
BASE = KUBERNETES / "base"
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"
HEALTH = REPOSITORY / "deploy" / "healthcheck.sh"
"""The check of the image."""

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::-(?P<text>[^}]*))?\}")


def interpolate(value: Any, environment: Mapping[str, str]) -> Any:
    """Fill in ``${NAME}`` and ``${NAME:-default}`` everywhere."""
    if isinstance(value, dict):
        return {key: interpolate(inner, environment) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, environment) for inner in value]
    if not isinstance(value, str):
        return value

    filled = _VARIABLE.sub(lambda match: environment.get(match["name"]) or match["text"] or "", value)
    assert "$" not in filled.replace("$$", ""), f"a form of variable that is not known here: {value}"
    return filled.replace("$$", "$")


def compose_text() -> Any:
    """The file, with its anchors resolved and its variables as they stand."""
    return yaml.load(COMPOSE.read_text(), yaml.CSafeLoader)


def compose(**environment: str) -> dict[str, Any]:
    """The file with an environment."""
    filled: dict[str, Any] = interpolate(compose_text(), environment)
    return filled


def make_secrets(folder: Path, **environment: str) -> Path:
    """The folder of secrets that the script of the compose file makes for a clone in this one."""
    (folder / "deploy").mkdir(exist_ok=True)
    for name in ("secrets.sh", "redis-users.acl"):
        shutil.copy(REPOSITORY / "deploy" / name, folder / "deploy")
    subprocess.run(
        ["sh", folder / "deploy" / "secrets.sh"], env={"PATH": os.environ["PATH"], **environment}, check=True
    )
    return folder / "secrets"


def documents() -> list[dict[str, Any]]:
    """All Kubernetes objects that the kustomization of the base names, in its order."""
    return objects_of(BASE)


def objects_of(folder: Path) -> list[dict[str, Any]]:
    """All Kubernetes objects that the files of a kustomization hold, in its order."""
    names = yaml.load((folder / "kustomization.yaml").read_text(), yaml.CSafeLoader)["resources"]
    return [document for name in names for document in yaml.load_all((folder / name).read_text(), yaml.CSafeLoader)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    """The Kubernetes objects of a kind."""
    return [document for document in documents() if document["kind"] == kind]


@dataclass(frozen=True)
class Process:
    """A container of ours: what it runs, with what, and how it is asked whether it is well."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    probes: tuple[tuple[str, ...], ...]
    grace_s: float

    @property
    def lasts(self) -> bool:
        """True while the process runs until it is told to end."""
        return self.arguments[0] == "worker"


def compose_processes(**environment: str) -> Iterator[Process]:
    """The containers of our image in the compose file."""
    for name, service in compose(**environment)["services"].items():
        if not service["image"].startswith("nightdesk:"):
            continue
        assert "healthcheck" not in service, f"{name} hides the check of the image, which knows its command"
        yield Process(
            f"compose {name}",
            tuple(service["command"]),
            {key: value for key, value in service["environment"].items() if value is not None},
            (("sh", str(HEALTH)),),
            float(service.get("stop_grace_period", "10s").removesuffix("s")),
        )


def kubernetes_processes() -> Iterator[Process]:
    """The containers in the Kubernetes files."""
    (settings,) = of_kind("ConfigMap")
    for workload in (*of_kind("Job"), *of_kind("Deployment")):
        pod = workload["spec"]["template"]["spec"]
        for container in pod["containers"]:
            assert container["envFrom"][0] == {"configMapRef": {"name": settings["metadata"]["name"]}}
            probes = [container[key]["exec"]["command"] for key in sorted(container) if key.endswith("Probe")]
            yield Process(
                f"k8s {workload['metadata']['name']}",
                tuple(container["args"]),
                settings["data"],
                tuple(tuple(probe) for probe in probes),
                float(pod.get("terminationGracePeriodSeconds", 30)),
            )


def pods_user() -> set[tuple[int, int]]:
    """User and group that pods run as."""
    pods = [workload["spec"]["template"]["spec"] for kind in ("Job", "Deployment") for workload in of_kind(kind)]
    return {(pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) for pod in pods}
