"""kube-scheduler in the pair and beside it: what it is told, which version it is, how it starts and ends."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
import yaml

from extender.schedulerconfig import Call, Election, Profile, Tls, configuration
from gpushare.placement import Policy
from tests.chart.rendering import Release, noted_configuration, render
from tests.chart.secrets import upgrade

MODES = ["pair", "external"]
POLICIES = [Policy.BINPACK, Policy.SPREAD]


@pytest.mark.parametrize("kubernetes", ["1.25", "1.36"])
@pytest.mark.parametrize("policy", POLICIES)
def test_I2_the_pair_is_told_what_scheduler_config_prints(policy: Policy, kubernetes: str) -> None:
    values = {
        "scheduler": {"policy": policy.value, "name": "packed", "extenderWeight": 31},
        "resource": {"memory": "example.com/vram"},
    }

    told = pair_configuration(render(values, namespace="gpus", kubernetes=kubernetes))

    assert told == configuration(
        call=Call(resource="example.com/vram", weight=31),
        profile=Profile(name="packed", policy=policy),
        election=Election(namespace="gpus"),
    )


def test_I2_by_default_too() -> None:
    told = pair_configuration(render())
    (asked,) = told["extenders"]

    assert told == configuration()
    assert told["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert asked["ignorable"] is False
    assert asked["managedResources"] == [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}]


@pytest.mark.parametrize("name", ["gpushare-scheduler", "default-scheduler"])
@pytest.mark.parametrize("policy", POLICIES)
def test_I2_the_notes_say_what_the_control_planes_scheduler_has_to_be_told(policy: Policy, name: str) -> None:
    release = render(
        {
            "scheduler": {"mode": "external", "policy": policy.value, "name": name},
            "external": {"clusterIP": "10.96.0.77"},
        }
    )

    assert noted_configuration(release) == external_configuration("10.96.0.77", policy=policy, name=name)
    assert "CLUSTER_IP" not in release.notes


def test_the_notes_of_an_upgrade_know_the_services_address() -> None:
    values = {"scheduler": {"mode": "external"}}
    first = render(values, kubernetes="1.30")
    service = first.one("Service", "gpushare-extender")
    service["spec"]["clusterIP"] = "fd00::7"

    later = upgrade(values, there=[service])

    assert "CLUSTER_IP" in first.notes
    assert "get service gpushare-extender" in first.notes
    assert noted_configuration(later) == external_configuration("[fd00::7]")


def test_the_notes_tell_how_kube_scheduler_gets_its_certificate() -> None:
    notes = render({"scheduler": {"mode": "external"}}).notes

    assert "get secret gpushare-scheduler-client" in notes
    assert "{{ index .data" in notes


def test_the_notes_have_what_the_manifest_lacks_and_keep_it_through_kubeadms_upgrades() -> None:
    notes = render({"scheduler": {"mode": "external"}}).notes
    manifest, list_of_both, map_of_both = (yaml.safe_load(each) for each in snippets(notes, of="spec:"))
    (container,) = manifest["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    (volume,) = manifest["spec"]["volumes"]

    assert container["command"] == ["--config=/etc/kubernetes/gpushare/config.yaml"]
    assert mount == {"name": "gpushare", "mountPath": "/etc/kubernetes/gpushare", "readOnly": True}
    assert volume["name"] == mount["name"]
    assert volume["hostPath"] == {"path": "/etc/kubernetes/gpushare", "type": "Directory"}
    # kubeadm's ClusterConfiguration: v1beta4 (kubeadm 1.31) has lists of names and values, v1beta3 maps.
    for document in (list_of_both, map_of_both):
        (extra,) = document["scheduler"]["extraVolumes"]
        assert (extra["hostPath"], extra["mountPath"]) == (volume["hostPath"]["path"], mount["mountPath"])
        assert extra["readOnly"] is True
    flag = container["command"][0].removeprefix("--").split("=")
    assert list_of_both["scheduler"]["extraArgs"] == [dict(zip(("name", "value"), flag, strict=True))]
    assert map_of_both["scheduler"]["extraArgs"] == dict([flag])
    assert all(len(line) <= 120 for line in notes.splitlines() if "{{" not in line and "kubectl" not in line)


@pytest.mark.parametrize(
    ("cluster", "flags"), [("1.25", True), ("v1.30.5-gke.100", True), ("1.36", True), ("1.37", False)]
)
def test_L13_a_pod_that_was_refused_by_an_older_view_waits_no_five_minutes(cluster: str, flags: bool) -> None:  # noqa: FBT001
    # There since 1.24, always called deprecated; a version without it would not start.
    flag = "--pod-max-in-unschedulable-pods-duration=60s"
    container = by_name(pod(render(kubernetes=cluster))["containers"])["kube-scheduler"]

    assert (flag in container["args"]) is flags
    assert (flag in render({"scheduler": {"mode": "external"}}, kubernetes=cluster).notes) is flags


@pytest.mark.parametrize(
    ("cluster", "image"),
    [
        ("1.36", "v1.36.0"),
        ("v1.30.5-gke.100", "v1.30.5"),
        ("v1.31.2+k3s1", "v1.31.2"),
        ("v1.29.9-eks-a737599", "v1.29.9"),
        ("v1.33.1+rke2r1", "v1.33.1"),
        ("v1.34.0-rc.1", "v1.34.0"),
    ],
)
def test_kube_scheduler_is_of_the_clusters_version_without_a_providers_suffix(
    cluster: str, image: str
) -> None:
    found = pod(render(kubernetes=cluster))["containers"]

    assert by_name(found)["kube-scheduler"]["image"] == f"registry.k8s.io/kube-scheduler:{image}"


def test_kube_scheduler_can_be_of_another_version() -> None:
    values = {"scheduler": {"image": {"repository": "mirror.example/kube-scheduler", "tag": "v1.30.14"}}}

    containers = by_name(pod(render(values))["containers"])

    assert containers["kube-scheduler"]["image"] == "mirror.example/kube-scheduler:v1.30.14"


@pytest.mark.parametrize(("cluster", "waits"), [("v1.29.9", False), ("v1.30.0-gke.7", True), ("1.36", True)])
def test_kube_scheduler_gives_its_lease_up_after_the_extenders_last_bind(cluster: str, waits: bool) -> None:  # noqa: FBT001
    spec = pod(render(kubernetes=cluster))
    containers = by_name(spec["containers"])

    # PodLifecycleSleepAction is on since 1.30; a bind takes 3.9 s at most.
    expected = {"preStop": {"sleep": {"seconds": 5}}} if waits else None
    assert containers["kube-scheduler"].get("lifecycle") == expected
    assert "lifecycle" not in containers["extender"]
    assert spec["terminationGracePeriodSeconds"] >= 15


@pytest.mark.parametrize(("cluster", "ready"), [("1.30", "/healthz"), ("1.31", "/readyz")])
def test_kube_schedulers_probes_ask_its_secure_port(cluster: str, ready: str) -> None:
    container = by_name(pod(render(kubernetes=cluster))["containers"])["kube-scheduler"]

    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert container["readinessProbe"]["httpGet"]["path"] == ready
    assert container["ports"] == [{"name": "https", "containerPort": 10259}]
    assert "--secure-port=10259" in container["args"]


def test_the_extender_may_take_its_time_to_read_a_large_cluster() -> None:
    probe = by_name(pod(render())["containers"])["extender"]["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


def test_pods_roll_when_the_configuration_changes_and_only_then() -> None:
    def mark(values: dict[str, Any]) -> str:
        deployment = render(values).one("Deployment", "gpushare-scheduler")
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        return found

    assert mark({"scheduler": {"extenderWeight": 31}}) != mark({})
    assert mark({"scheduler": {"replicas": 3}}) == mark({})


@pytest.mark.parametrize("mode", MODES)
def test_replicas_can_be_drained_one_at_a_time(mode: str) -> None:
    release = render({"scheduler": {"mode": mode}})
    (budget,) = release.of("PodDisruptionBudget")
    deployment = release.one("Deployment", budget["metadata"]["name"])["spec"]
    (first, *_) = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]

    assert budget["spec"] == {"maxUnavailable": 1, "selector": deployment["selector"]}
    assert first["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert not render({"scheduler": {"mode": mode, "podDisruptionBudget": {"enabled": False}}}).of(
        "PodDisruptionBudget"
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_waits_for_each_new_replica_before_an_old_one_goes(mode: str) -> None:
    (deployment,) = render({"scheduler": {"mode": mode}}).of("Deployment")

    assert deployment["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert "progressDeadlineSeconds" not in deployment["spec"]


def test_the_extenders_service_goes_by_the_leaders_label_which_no_pod_starts_with() -> None:
    release = render({"scheduler": {"mode": "external"}}, kubernetes="1.30")
    selector = release.one("Service", "gpushare-extender")["spec"]["selector"]
    template = release.one("Deployment", "gpushare-extender")["spec"]["template"]
    (container,) = template["spec"]["containers"]

    assert selector["gpushare/leader"] == "true"
    assert "--leader-label=gpushare/leader" in container["args"]
    assert {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container["env"]
    assert "--pod-name=$(POD_NAME)" in container["args"]
    assert "gpushare/leader" not in template["metadata"]["labels"]
    # A standby can answer reviews.
    assert "gpushare/leader" not in release.one("Service", "gpushare-admission")["spec"]["selector"]


SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
RUNTIME = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
SIMULATED = {"devicePlugin": {"simulatedCards": [{"uuid": "GPU-a", "memory": 1}]}}


@pytest.mark.parametrize(
    ("values", "there", "says"),
    [
        ({}, [SYSTEM], True),
        ({}, [SYSTEM, RUNTIME], False),
        ({"devicePlugin": {"runtimeClassName": "other"}}, [SYSTEM, RUNTIME], True),
        # Helm finds nothing at all where it only renders.
        ({}, [], False),
        ({"devicePlugin": {"runtimeClassName": ""}}, [SYSTEM], False),
        (SIMULATED, [SYSTEM], False),
        ({"devicePlugin": {"enabled": False}}, [SYSTEM], False),
    ],
    ids=["missing", "there", "another", "rendered", "none", "simulated", "disabled"],
)
def test_a_missing_runtime_class_is_told_before_pods_fail_for_it(
    values: dict[str, Any],
    there: list[Any],
    says: bool,  # noqa: FBT001
) -> None:
    notes = upgrade(values, there=there).notes

    assert ("cannot be created" in notes) is says
    assert ("--set devicePlugin.runtimeClassName=" in notes) is says


GIVEN = {"setRuntimeClassName": "nvidia"}


@pytest.mark.parametrize(
    ("values", "there", "says"),
    [
        ({"admission": GIVEN}, [SYSTEM], True),
        ({"admission": GIVEN, "devicePlugin": {"enabled": False}}, [SYSTEM], True),
        ({"admission": GIVEN} | SIMULATED, [SYSTEM], True),
        ({"admission": GIVEN}, [SYSTEM, RUNTIME], False),
        ({"admission": GIVEN}, [], False),  # only rendered
        ({"admission": GIVEN | {"mode": "none"}}, [SYSTEM], False),
        ({}, [SYSTEM], False),
    ],
    ids=["missing", "disabled", "simulated", "there", "rendered", "nothing-added", "none-given"],
)
def test_a_missing_runtime_class_is_told_before_pods_are_refused_for_it(
    values: dict[str, Any],
    there: list[Any],
    says: bool,  # noqa: FBT001
) -> None:
    notes = upgrade(values, there=there).notes

    assert ("pods that ask for GPU memory cannot be created" in notes) is says
    assert ("--set admission.setRuntimeClassName=\n" in notes) is says


def test_pods_of_users_need_the_runtime_too() -> None:
    assert "runtimeClassName: nvidia" in render().notes
    # Unless admission gives it to them.
    assert "runtimeClassName" not in render({"admission": {"setRuntimeClassName": "nvidia"}}).notes
    assert "setRuntimeClassName=nvidia" in render().notes
    assert "setRuntimeClassName" not in render({"admission": {"mode": "none"}}).notes
    assert "runtimeClassName" not in render(SIMULATED).notes
    assert "runtimeClassName" not in render({"devicePlugin": {"runtimeClassName": ""}}).notes


def pair_configuration(release: Release) -> Any:
    return yaml.safe_load(release.one("ConfigMap", "gpushare-scheduler")["data"]["config.yaml"])


def snippets(notes: str, *, of: str) -> list[str]:
    """The indented documents that are, or belong beside, one that starts with this line."""
    found = [text for text in re.split(r"\n(?=\S)|\n\n", notes) if text.startswith("  ")]
    return [textwrap.dedent(text) for text in found if text.lstrip().startswith((of, "scheduler:"))]


def external_configuration(
    host: str, *, policy: Policy = Policy.BINPACK, name: str = "gpushare-scheduler"
) -> Any:
    folder = "/etc/kubernetes/gpushare"
    tls = Tls(
        ca=f"{folder}/ca.crt",
        cert=f"{folder}/tls.crt",
        key=f"{folder}/tls.key",
        server_name="gpushare-extender.gpushare-system.svc",
    )
    return configuration(
        call=Call(url=f"https://{host}:39999/gpushare-scheduler", tls=tls),
        profile=Profile(name=name, policy=policy, beside_default=name != "default-scheduler"),
        election=Election(namespace="kube-system", name="kube-scheduler"),
        kubeconfig="/etc/kubernetes/scheduler.conf",
    )


def pod(release: Release) -> Any:
    return release.one("Deployment", "gpushare-scheduler")["spec"]["template"]["spec"]


def by_name(containers: list[Any]) -> dict[str, Any]:
    return {each["name"]: each for each in containers}
