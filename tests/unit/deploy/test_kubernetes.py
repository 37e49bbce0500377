from typing import Any

import yaml

from tests.deployment import BASE, KUBERNETES, documents, kubernetes_processes, objects_of, of_kind
from worker.cli.commands.services import PORT
from worker.http.server import DRAIN_S
from worker.settings import Settings

LOCAL, HTTP, AUTOSCALE, URGENT = (
    KUBERNETES / "components" / name for name in ("local-model", "http", "autoscale", "urgent")
)
SECRETS = {"NIGHTDESK_DATABASE_URL", "NIGHTDESK_REDIS_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"}


def pods() -> list[dict[str, Any]]:
    return [workload["spec"]["template"]["spec"] for kind in ("Job", "Deployment") for workload in of_kind(kind)]


def containers() -> list[dict[str, Any]]:
    return [container for pod in pods() for container in pod["containers"]]


def test_every_file_is_part_of_the_kustomization_and_names_no_namespace() -> None:
    kinds = [document["kind"] for document in documents()]
    assert sorted(kinds) == [
        "ConfigMap",
        "Deployment",
        "Deployment",
        "Job",
        "NetworkPolicy",
        *["PodDisruptionBudget"] * 2,
    ]
    for path in KUBERNETES.glob("**/*.yaml"):
        assert "namespace:" not in path.read_text()
    assert "Secret" not in kinds  # made by hand: none with an example's value is ever applied


def test_settings_are_known_and_valid() -> None:
    (settings,) = of_kind("ConfigMap")
    assert not SECRETS & settings["data"].keys()
    assert all(isinstance(value, str) for value in settings["data"].values())
    values = {name.removeprefix("NIGHTDESK_").lower(): value for name, value in settings["data"].items()}
    assert values.keys() <= Settings.model_fields.keys()
    assert Settings(**values).drain_s == 70


def test_every_container_gets_the_servers_and_only_workers_get_what_calls_need() -> None:
    optional = [each for folder in (HTTP, URGENT, LOCAL) for each in objects_of(folder) if each["kind"] == "Deployment"]
    for workload in (*of_kind("Job"), *of_kind("Deployment"), *optional):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        sources = [{"configMapRef": {"name": "nightdesk"}}, {"secretRef": {"name": "nightdesk"}}]
        if container["args"][0] == "worker":
            sources.append({"secretRef": {"name": "nightdesk-calls", "optional": True}})
        assert container["envFrom"] == sources, workload["metadata"]["name"]
        assert container["image"] == "nightdesk"


def test_a_worker_may_drain_before_it_is_killed() -> None:
    workers = [process for process in kubernetes_processes() if process.lasts]
    assert [process.name for process in workers] == ["k8s nightdesk-generate", "k8s nightdesk-check"]
    for process in workers:
        assert process.grace_s >= float(process.environment["NIGHTDESK_DRAIN_S"]) + 40
        assert len(process.probes) == 2


def test_the_optional_http_service_is_probed_and_bounded() -> None:
    deployment, service, policy, budget = objects_of(HTTP)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    generate = yaml.safe_load((BASE / "generate.yaml").read_text())["spec"]["template"]["spec"]
    assert container["args"] == ["serve", "--host", "0.0.0.0"]
    assert {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S + int(seconds)
    assert container["resources"]["limits"].keys() == {"memory", "ephemeral-storage"}, "bodies of batches are on disk"
    assert container["ports"][0]["containerPort"] == PORT
    for name in ("securityContext", "enableServiceLinks", "automountServiceAccountToken", "volumes"):
        assert pod[name] == generate[name]
    for name in ("image", "securityContext", "volumeMounts"):
        assert container[name] == generate["containers"][0][name]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    for selecting in (policy["spec"]["podSelector"], budget["spec"]["selector"]):
        assert selecting["matchLabels"] == deployment["spec"]["selector"]["matchLabels"]


def test_scaling_counts_what_waits_for_workers_that_there_are() -> None:
    secret, *scalers = objects_of(AUTOSCALE)
    assert secret["spec"]["secretTargetRef"][0]["key"] in SECRETS
    deployments = {each["metadata"]["name"]: each for each in of_kind("Deployment")}
    for scaler in scalers:
        spec = scaler["spec"]
        queues = deployments[spec["scaleTargetRef"]["name"]]["spec"]["template"]["spec"]["containers"][0]["args"][2]
        assert f"step = '{queues.split(',', maxsplit=1)[0]}'" in spec["triggers"][0]["metadata"]["query"]
        assert spec["minReplicaCount"] >= 1, "the duties need a worker"


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
