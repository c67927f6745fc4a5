"""deploy/kubernetes: the resources by Kubernetes' own schemas, and how they fit together and to what they start."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.paths import ROOT
from tests.served_metrics import metrics
from trimtab_agent.cli import agent_parser
from trimtab_agent.configuration import read_configuration
from trimtab_console.configuration import decode as decode_console
from trimtab_controller.cli import parser_for
from trimtab_controller.configuration import decode

FOLDER = ROOT / "deploy" / "kubernetes"
BASE = FOLDER / "base"
COMPONENTS = ("autoscaling", "console")
OURS = {"trimtab-agent", "trimtab-console", "trimtab-controller"}
SECRETS = {"signing", "trust"}
"""Made by whoever installs it: docs/guides/kubernetes.md."""
Resource = dict[str, Any]


def listed(folder: Path) -> list[tuple[str, Resource]]:
    """The resources of a kustomization, each with its name for a failing test."""
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    documents = [each for name in names for each in yaml.safe_load_all((folder / name).read_text())]
    return [(f"{each['kind']}/{each['metadata']['name']}", each) for each in documents]


RESOURCES = dict([*listed(BASE), *(each for name in COMPONENTS for each in listed(FOLDER / name))])
WORKLOADS = {name: each for name, each in RESOURCES.items() if each["kind"] in {"Deployment", "StatefulSet"}}
KUSTOMIZATIONS = [yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text()) for name in ("base", *COMPONENTS)]


def pod(name: str) -> Resource:
    found: Resource = WORKLOADS[name]["spec"]["template"]["spec"]
    return found


def containers(name: str) -> Iterator[Resource]:
    yield from pod(name).get("initContainers", [])
    yield from pod(name)["containers"]


def container(workload: str, name: str) -> Resource:
    return next(each for each in containers(workload) if each["name"] == name)


@pytest.mark.parametrize("name", RESOURCES)
def test_a_resource_has_the_form_that_kubernetes_asks_for(name: str) -> None:
    kubernetes_validate.validate(RESOURCES[name], kubernetes_validate.latest_version(), strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    broken = {**RESOURCES["PodDisruptionBudget/orders"], "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="specs"):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


def test_every_file_is_part_of_a_kustomization() -> None:
    parts = [yaml.safe_load(path.read_text()) for path in FOLDER.glob("*/kustomization.yaml")]
    named = {name for part in parts for name in part["resources"]}
    named |= {name for part in parts for each in part.get("configMapGenerator", ()) for name in each["files"]}
    assert named == {path.name for path in FOLDER.glob("*/*") if path.name != "kustomization.yaml"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_container_may_do_no_more_than_in_docker_compose(name: str) -> None:
    spec = pod(name)
    confined = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    assert confined.items() <= spec["securityContext"].items()
    assert spec["automountServiceAccountToken"] is False
    assert RESOURCES[f"ServiceAccount/{spec['serviceAccountName']}"]["automountServiceAccountToken"] is False
    for each in containers(name):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, each["name"]
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {
        each["kind"] for each in RESOURCES.values()
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_a_pod_refers_to_is_there(name: str) -> None:
    workload, spec = WORKLOADS[name], pod(name)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    made = {each["name"] for part in KUSTOMIZATIONS for each in part.get("configMapGenerator", ())}
    assert {each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each} <= made
    assert {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each} <= SECRETS
    claimed = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())}
    volumes = {each["name"] for each in spec["volumes"]} | claimed
    assert {mount["name"] for each in containers(name) for mount in each["volumeMounts"]} == volumes
    for each in containers(name):
        ports = {port["name"] for port in each.get("ports", ())}
        probes = [probe["httpGet"] for key, probe in each.items() if key.endswith("Probe") and "httpGet" in probe]
        assert {probe["port"] for probe in probes} <= ports
        assert {probe["path"] for probe in probes} in ({"/healthz", "/readyz"}, set())


def test_a_budget_and_a_policy_are_for_the_pods_of_each_workload() -> None:
    for name, workload in WORKLOADS.items():
        short = name.partition("/")[2]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        selectors = [RESOURCES[f"NetworkPolicy/{short}"]["spec"]["podSelector"]]
        if workload["spec"]["replicas"] > 1:
            selectors.append(RESOURCES[f"PodDisruptionBudget/{short}"]["spec"]["selector"])
        for selector in selectors:
            assert selector["matchLabels"].items() <= labels.items()
    assert WORKLOADS["Deployment/controller"]["spec"]["replicas"] == 2
    assert RESOURCES["Service/orders"]["metadata"]["name"] == WORKLOADS["StatefulSet/orders"]["spec"]["serviceName"]


def test_agent_and_worker_share_processes_socket_and_trust_and_neither_owns_the_processes() -> None:
    name = "StatefulSet/orders"
    assert pod(name)["shareProcessNamespace"] is True
    agent, worker = container(name, "agent"), container(name, "worker")
    mounts = {each["name"]: {m["name"]: m["mountPath"] for m in each["volumeMounts"]} for each in (agent, worker)}
    socket = Path(agent_configuration()["agent"]["socket"])
    environment = {each["name"]: each.get("value") for each in worker["env"]}
    assert mounts["agent"]["socket"] == mounts["worker"]["socket"] == str(socket.parent)
    assert environment["TRIMTAB_SOCKET"] == str(socket)
    assert environment["TRIMTAB_TRUST"] == agent_configuration()["trust"]["file"]
    assert mounts["agent"]["trust"] == mounts["worker"]["trust"] == str(Path(environment["TRIMTAB_TRUST"]).parent)
    assert environment["TRIMTAB_CLUSTER"] == agent_configuration()["agent"]["cluster"]
    assert "limits" not in agent["resources"], "the agent takes a limit for the quota of the whole host"


def agent_configuration() -> dict[str, Any]:
    """As the pod `orders-0` has it."""
    configure = container("StatefulSet/orders", "configure")
    assert configure["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    return tomllib.loads((BASE / "agent.toml").read_text().replace("POD_NAME", "orders-0"))


def test_the_daemons_read_their_files_and_are_heard_where_the_probes_ask(tmp_path: Path) -> None:
    document = agent_configuration()
    document["trust"]["file"] = str(tmp_path / "trusted.keys")
    agent = read_configuration(document)
    assert (agent.host, [str(worker) for worker in agent.workers]) == ("orders-0", ["orders-0"])
    controller = decode(tomllib.loads((BASE / "controller.toml").read_text()))
    assert agent.metrics is not None
    assert controller.metrics is not None
    heard = {
        container("StatefulSet/orders", "agent")["ports"][0]["containerPort"]: agent.metrics,
        container("Deployment/controller", "controller")["ports"][0]["containerPort"]: controller.metrics,
    }
    assert {port: (listen.address, listen.port) for port, listen in heard.items()} == {
        port: ("0.0.0.0", port) for port in heard
    }
    assert agent.cluster == controller.cluster


def test_the_console_reads_its_file_and_is_asked_from_within_its_pod() -> None:
    document = tomllib.loads((FOLDER / "console" / "console.toml").read_text())
    console = decode_console(document)
    found = container("Deployment/console", "console")
    assert console.cluster == agent_configuration()["agent"]["cluster"]
    mounted = {mount["mountPath"] for mount in found["volumeMounts"]}
    assert {
        str(console.trust_file.parent),
        str(parser_for("console").parse_args(found["args"]).config.parent),
    } < mounted
    for probe in (found["startupProbe"], found["livenessProbe"]):
        assert f"http://{console.address}:{console.port}/" in probe["exec"]["command"][-1]
    assert "ingress" not in RESOURCES["NetworkPolicy/console"]["spec"]


def test_the_images_start_with_arguments_that_they_know() -> None:
    for name, parser in (("agent", agent_parser()), ("controller", parser_for("controller"))):
        workload = next(each for each in WORKLOADS if any(c["name"] == name for c in pod(each)["containers"]))
        found = container(workload, name)
        options = parser.parse_args(found["args"])
        mounted = {mount["mountPath"] for mount in found["volumeMounts"]}
        assert str(Path(options.config).parent) in mounted
        default = {each["value"] for each in found.get("env", ()) if each["name"] == "TRIMTAB_CONFIG"}
        assert default <= {str(options.config)}


def test_the_images_are_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tags = {each["name"]: each["newTag"] for part in KUSTOMIZATIONS for each in part.get("images", ())}
    assert tags == dict.fromkeys(OURS, version)
    used = {each["image"] for name in WORKLOADS for each in containers(name)}
    assert used == OURS | {"orders"}


def test_the_autoscaler_only_adds_by_a_metric_that_we_serve() -> None:
    spec = RESOURCES["HorizontalPodAutoscaler/orders"]["spec"]
    target = spec["scaleTargetRef"]
    assert f"{target['kind']}/{target['name']}" in WORKLOADS
    [metric] = spec["metrics"]
    assert metric["external"]["metric"]["name"] in metrics()
    assert (
        metric["external"]["metric"]["selector"]["matchLabels"]["cluster"] == agent_configuration()["agent"]["cluster"]
    )
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert spec["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}


def test_the_sample_for_keda_keeps_the_size_while_there_is_no_metric() -> None:
    """KEDA takes no answer for 0, and has 0 as least size, unless it is told otherwise."""
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/guides/scale.md").read_text(), re.DOTALL)
    spec = yaml.safe_load(text)["spec"]
    [trigger] = spec["triggers"]
    query = re.search(r"max\((\w+)\{cluster=\"(\w+)\", app=\"orders\"\}\)", trigger["metadata"]["query"])
    assert query is not None
    assert query[1] in metrics()
    assert query[2] == agent_configuration()["agent"]["cluster"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert spec["minReplicaCount"] >= 1
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    generated = {**RESOURCES["HorizontalPodAutoscaler/orders"]}  # KEDA makes such an HPA of it
    generated["spec"] = {**generated["spec"], **spec["advanced"]["horizontalPodAutoscalerConfig"]}
    kubernetes_validate.validate(generated, kubernetes_validate.latest_version(), strict=True)
    assert generated["spec"]["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}
