"""What every rendering has to be: valid, at home on clusters as they are, and locked down."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpushare import __version__
from tests.chart.rendering import CHART, NAMESPACE, VERSIONS, default_values, invalid, lint, render
from tests.chart.sets import SETS

LEADER = "gpushare/leader"
"""Label that a pod has for as long as it leads."""

TURNS = ("1.25", "1.30", "1.36")
"""Versions around which templates differ most."""
EVERY = [("default", version) for version in VERSIONS] + [
    (name, version) for name in SETS if name != "default" for version in TURNS
]


@pytest.mark.parametrize(("name", "kubernetes"), EVERY)
def test_every_object_is_what_that_kubernetes_takes(name: str, kubernetes: str) -> None:
    release = render(SETS[name], kubernetes=kubernetes)

    assert release.objects
    assert invalid(release) == []


@pytest.mark.parametrize("name", SETS)
def test_helm_has_nothing_to_say_against_it(name: str) -> None:
    assert lint(SETS[name], kubernetes="1.30") == []


def test_helm_refuses_a_kubernetes_that_lacks_what_is_rendered() -> None:
    # KubeSchedulerConfiguration v1 is there since 1.25. Helm compares at the install only.
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


def test_the_chart_is_of_the_programs_version() -> None:
    release = render()

    labels = release.one("Deployment", "gpushare-scheduler")["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == __version__
    assert containers(release, "gpushare-scheduler")["extender"]["image"] == f"gpushare:{__version__}"


@pytest.mark.parametrize("name", SETS)
def test_objects_are_of_the_release_and_its_namespace(name: str) -> None:
    for each in render(SETS[name], name="shared", namespace="gpus").objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "gpushare", each
        assert labels["app.kubernetes.io/instance"] == "shared", each
        assert each["metadata"]["name"].startswith("gpushare"), each
        assert each["metadata"].get("namespace", "gpus") in ("gpus", "kube-system"), each


@pytest.mark.parametrize("name", SETS)
def test_no_object_is_there_twice(name: str) -> None:
    seen = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in render(SETS[name]).objects
    ]

    assert sorted(map(str, seen)) == sorted({str(each) for each in seen})


@pytest.mark.parametrize("name", SETS)
def test_selectors_meet_the_pods_they_are_for_and_no_others(name: str) -> None:
    release = render(SETS[name], kubernetes="1.30")
    pods = {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"]["template"]["metadata"]["labels"]
        for each in release.objects
        if each["kind"] in ("Deployment", "DaemonSet", "Job")
    }
    for each in release.objects:
        spec, kind = each.get("spec", {}), each["kind"]
        selector = {
            "Deployment": lambda s: s["selector"]["matchLabels"],
            "DaemonSet": lambda s: s["selector"]["matchLabels"],
            "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
            "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"],
            "Service": lambda s: s["selector"],
        }.get(kind)
        if selector is None:
            continue
        wanted = selector(spec).items() - {(LEADER, "true")}
        met = [owner for owner, labels in pods.items() if wanted <= labels.items()]
        assert len(met) == 1, f"{kind}/{each['metadata']['name']} meets {met or 'no pod'}"


@pytest.mark.parametrize("kubernetes", TURNS)
@pytest.mark.parametrize("name", SETS)
def test_services_and_probes_name_ports_that_the_pods_open(name: str, kubernetes: str) -> None:
    release = render(SETS[name], kubernetes=kubernetes)
    opened: dict[str, set[str]] = {}
    for each in release.objects:
        if each["kind"] in ("Deployment", "DaemonSet"):
            component = each["metadata"]["labels"]["app.kubernetes.io/component"]
            for container in each["spec"]["template"]["spec"]["containers"]:
                own = {port["name"] for port in container["ports"]}
                opened.setdefault(component, set()).update(own)
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    assert container[probe]["httpGet"]["port"] in own, (each["metadata"]["name"], probe)
    for service in release.of("Service"):
        component = service["spec"]["selector"]["app.kubernetes.io/component"]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in opened[component], service["metadata"]["name"]
    for policy in release.of("NetworkPolicy"):
        component = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for rule in policy["spec"]["ingress"]:
            for port in rule["ports"]:
                assert port["port"] in opened[component], policy["metadata"]["name"]


@pytest.mark.parametrize("name", SETS)
def test_containers_have_no_power_they_do_not_need(name: str) -> None:
    for owner, spec in render(SETS[name], kubernetes="1.30").pod_specs():
        pod = spec["securityContext"]
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        for part in ("hostNetwork", "hostPID", "hostIPC"):
            assert part not in spec, owner
        # kubelet's folders belong to root; nobody else's do.
        assert (pod["runAsUser"] == 0) is (owner == "DaemonSet/gpushare-device-plugin"), owner
        assert pod["runAsNonRoot"] is (pod["runAsUser"] != 0), owner
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (owner, container["name"])
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, (owner, container["name"])
            assert "memory" in container["resources"]["limits"], (owner, container["name"])


@pytest.mark.parametrize("name", SETS)
def test_only_the_device_plugin_sees_the_host_and_only_kubelets_two_folders(name: str) -> None:
    seen = {
        (owner, volume["hostPath"]["path"])
        for owner, spec in render(SETS[name]).pod_specs()
        for volume in spec.get("volumes", ())
        if "hostPath" in volume
    }
    plugin = {**default_values()["devicePlugin"], **SETS[name].get("devicePlugin", {})}
    folders = ("device-plugins", "pod-resources") if plugin["enabled"] else ()

    assert seen == {
        ("DaemonSet/gpushare-device-plugin", f"{plugin['kubeletDir']}/{folder}") for folder in folders
    }


@pytest.mark.parametrize("name", SETS)
def test_accounts_hand_out_tokens_only_to_pods_that_say_so(name: str) -> None:
    release = render(SETS[name])

    assert all(each["automountServiceAccountToken"] is False for each in release.of("ServiceAccount"))
    accounts = {each["metadata"]["name"] for each in release.of("ServiceAccount")}
    for owner, spec in release.pod_specs():
        assert spec["serviceAccountName"] in accounts, owner
        assert spec["automountServiceAccountToken"] is True, owner


@pytest.mark.parametrize("name", SETS)
def test_volumes_that_are_mounted_are_there(name: str) -> None:
    release = render(SETS[name], kubernetes="1.30")
    secrets = {each["metadata"]["name"] for each in release.of("Secret")} | {
        each["spec"]["secretName"] for each in release.of("Certificate")
    }
    maps = {each["metadata"]["name"] for each in release.of("ConfigMap")}
    for owner, spec in release.pod_specs():
        volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
        mounts = [mount for container in spec["containers"] for mount in container.get("volumeMounts", ())]
        assert volumes.keys() == {mount["name"] for mount in mounts}, owner
        for volume in volumes.values():
            assert volume.get("secret", {}).get("secretName") in (None, *secrets), owner
            assert volume.get("configMap", {}).get("name") in (None, *maps), owner


def test_I5_no_selector_names_a_master_and_control_planes_are_tolerated() -> None:
    release = render()
    plugin = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]
    scheduler = release.one("Deployment", "gpushare-scheduler")["spec"]["template"]["spec"]

    for each in release.objects:
        assert "master" not in str(each.get("spec", "")), each
    assert plugin["nodeSelector"] == {"gpushare": "true"}
    for taint in ("nvidia.com/gpu", "node-role.kubernetes.io/control-plane"):
        assert {"key": taint, "operator": "Exists"} in plugin["tolerations"]
    assert any(
        each["key"] == "node-role.kubernetes.io/control-plane" and each["operator"] == "Exists"
        for each in scheduler["tolerations"]
    )
    assert "nodeSelector" not in scheduler


def test_system_priorities_are_allowed_in_the_namespace_by_a_quota_that_limits_nothing() -> None:
    release = render({"devicePlugin": {"priorityClassName": "system-node-critical"}})
    quota = release.one("ResourceQuota", "gpushare-priority-classes")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]

    assert quota["metadata"]["namespace"] == NAMESPACE
    assert set(scope["values"]) == {spec["priorityClassName"] for _, spec in running(release)}
    assert quota["spec"]["hard"] == {"pods": "1M"}


def test_without_priority_classes_there_is_nothing_to_allow() -> None:
    none = {"scheduler": {"priorityClassName": ""}, "devicePlugin": {"priorityClassName": ""}}
    one = {"scheduler": {"priorityClassName": ""}}

    # The API server refuses a scope without values, and kubernetes-validate does not know that.
    assert render(none).of("ResourceQuota") == []
    (quota,) = render(one).of("ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == ["system-node-critical"]


@pytest.mark.parametrize("mode", ["pair", "external"])
def test_the_network_lets_in_what_is_needed_and_nothing_more(mode: str) -> None:
    def ports(kubernetes: str) -> dict[str, list[str]]:
        release = render({"scheduler": {"mode": mode}}, kubernetes=kubernetes)
        for policy in release.of("NetworkPolicy"):
            assert policy["spec"]["policyTypes"] == ["Ingress"]
        return {
            policy["metadata"]["name"].removeprefix("gpushare-"): [
                port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]
            ]
            for policy in release.of("NetworkPolicy")
        }

    deciding, verbs = ("scheduler", []) if mode == "pair" else ("extender", ["verbs"])
    assert ports("1.36") == {deciding: ["view", *verbs], "device-plugin": ["metrics"], "uninstall": []}
    assert ports("1.30")[deciding] == ["view", *verbs, "admission"]


def running(release: Any) -> list[tuple[str, Any]]:
    """Every pod but the one of the uninstall."""
    return [(owner, spec) for owner, spec in release.pod_specs() if not owner.startswith("Job/")]


def containers(release: Any, deployment: str) -> dict[str, Any]:
    template = release.one("Deployment", deployment)["spec"]["template"]
    return {each["name"]: each for each in template["spec"]["containers"]}
