import json
from typing import Any

import pytest
import yaml

from tests.deployment import KUBERNETES, documents, kubernetes_processes, of_kind
from worker.cli.commands.http_service import PORT
from worker.http.server import DRAIN_S
from worker.settings import Settings

SECRETS = {"NIGHTDESK_DATABASE_URL", "NIGHTDESK_REDIS_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"}


def pods() -> list[dict[str, Any]]:
    return [workload["spec"]["template"]["spec"] for kind in ("Job", "Deployment") for workload in of_kind(kind)]


def containers() -> list[dict[str, Any]]:
    return [container for pod in pods() for container in pod["containers"]]


def test_every_object_keeps_the_schema_of_its_kind() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="large; pip install '.[deploy]' brings it")
    for document in documents():
        validate.validate(document, "1.37", strict=True)


def test_every_file_is_part_of_the_kustomization_and_names_no_namespace() -> None:
    kinds = [document["kind"] for document in documents()]
    assert sorted(kinds) == ["ConfigMap", "Deployment", "Deployment", "Job", *["PodDisruptionBudget"] * 2]
    for path in KUBERNETES.glob("*.yaml"):
        assert "namespace:" not in path.read_text()
    assert "Secret" not in kinds  # made by hand: none with an example's value is ever applied


def test_settings_are_known_and_valid() -> None:
    (settings,) = of_kind("ConfigMap")
    assert not SECRETS & settings["data"].keys()
    assert all(isinstance(value, str) for value in settings["data"].values())
    values = {name.removeprefix("NIGHTDESK_").lower(): value for name, value in settings["data"].items()}
    assert values.keys() <= Settings.model_fields.keys()
    assert Settings(**values).drain_s == 70


def test_every_container_gets_settings_and_secrets() -> None:
    for container in containers():
        assert container["envFrom"] == [
            {"configMapRef": {"name": "nightdesk"}},
            {"secretRef": {"name": "nightdesk"}},
        ]
        assert container["image"] == "nightdesk"


def test_a_worker_may_drain_before_it_is_killed() -> None:
    workers = [process for process in kubernetes_processes() if process.lasts]
    assert [process.name for process in workers] == ["k8s nightdesk-generate", "k8s nightdesk-check"]
    for process in workers:
        assert process.grace_s >= float(process.environment["NIGHTDESK_DRAIN_S"]) + 40
        assert len(process.probes) == 2


def test_the_optional_workers_with_the_local_model_are_check_workers_but_for_the_model() -> None:
    check, local = (yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text()) for name in ("check", "local"))
    (container,) = local["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["worker", "--queues", "local"]
    model = container["volumeMounts"].pop()
    assert (model["name"], model["mountPath"], model["readOnly"]) == ("model", "/model", True)
    volume = local["spec"]["template"]["spec"]["volumes"].pop()
    assert (volume["name"], volume["persistentVolumeClaim"]["readOnly"]) == ("model", True)
    resources = container.pop("resources")
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}
    del check["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert json.loads(json.dumps(local).replace("local", "check")) == check
    assert "# - local.yaml" in (KUBERNETES / "kustomization.yaml").read_text()


def test_the_optional_http_service_is_probed_and_bounded() -> None:
    deployment, service = yaml.safe_load_all((KUBERNETES / "http.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    generate = yaml.safe_load((KUBERNETES / "generate.yaml").read_text())["spec"]["template"]["spec"]
    assert container["args"] == ["serve", "--host", "0.0.0.0"]
    assert {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S
    assert container["ports"][0]["containerPort"] == PORT
    for name in ("securityContext", "enableServiceLinks", "automountServiceAccountToken", "volumes"):
        assert pod[name] == generate[name]
    for name in ("image", "envFrom", "securityContext", "volumeMounts"):
        assert container[name] == generate["containers"][0][name]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert "# - http.yaml" in (KUBERNETES / "kustomization.yaml").read_text()


def test_deployments_and_budgets_select_their_pods_by_label() -> None:
    labels = {}
    for deployment in of_kind("Deployment"):
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        labels[deployment["metadata"]["name"]] = selector
    for budget in of_kind("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] == labels[budget["metadata"]["name"]]
    assert len({tuple(sorted(labels_of_pods.items())) for labels_of_pods in labels.values()}) == 2


def test_our_containers_run_without_privileges_and_with_limits() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
    for container in containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/var/lib/nightdesk", "/tmp"}
