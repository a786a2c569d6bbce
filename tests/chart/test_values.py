"""Wrong values are refused before anything is sent, in words that say which and why."""

from __future__ import annotations

import json
from typing import Any

import helm_python
import pytest
import yaml

from gpushare.errors import ResourceNameError
from gpushare.names import Names
from tests.chart.rendering import CHART, Object, default_values, render


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"shceduler": {}}, "'shceduler' not allowed"),
        ({"scheduler": {"polciy": "spread"}}, "'/scheduler': additional properties 'polciy' not allowed"),
        ({"scheduler": {"mode": "both"}}, "'/scheduler/mode': value must be one of 'pair', 'external'"),
        ({"scheduler": {"replicas": 0}}, "'/scheduler/replicas': minimum: got 0, want 1"),
        ({"scheduler": {"replicas": "2"}}, "'/scheduler/replicas': got string, want integer"),
        ({"scheduler": {"policy": None}}, "'/scheduler': missing property 'policy'"),
        ({"devicePlugin": {"slots": 2000}}, "'/devicePlugin/slots': maximum: got 2,000, want 1,024"),
        (
            {"devicePlugin": {"simulatedCards": [{"uuid": "a"}]}},
            "simulatedCards/0': missing property 'memory'",
        ),
        ({"devicePlugin": {"memoryOf": ["0"]}}, "'/devicePlugin/memoryOf/0'"),
        ({"devicePlugin": {"kubeletDir": "kubelet"}}, "'/devicePlugin/kubeletDir'"),
        ({"nodeFence": {"enabled": "yes"}}, "'/nodeFence/enabled': value must be one of 'auto', true, false"),
        ({"image": {"digest": "latest"}}, "'/image/digest': 'latest' does not match"),
        ({"resource": {"unit": "GB"}}, "'/resource/unit': value must be one of 'MiB', 'GiB'"),
        ({"resource": {"memory": "gpu-mem"}}, "'/resource/memory': 'gpu-mem' does not match"),
        (
            {"certificates": {"issuerRef": {"kind": "Issuer"}}},
            "'/certificates/issuerRef': properties 'name' required",
        ),
        ({"networkPolicy": {"enabled": "no"}}, "'/networkPolicy/enabled': got string, want boolean"),
        ({"devicePlugin": {"maxSurge": 0}}, "'/devicePlugin/maxSurge': minimum: got 0, want 1"),
        ({"devicePlugin": {"maxSurge": "0%"}}, "'/devicePlugin/maxSurge': '0%' does not match"),
        ({"external": {"clusterIP": "1.2.3"}}, "'/external/clusterIP': '1.2.3' is not valid ipv4"),
        ({"external": {"clusterIP": "fd00::x"}}, "'/external/clusterIP': 'fd00::x' is not valid ipv6"),
        ({"external": {"extraAddresses": ["1.2.3.400"]}}, "'/external/extraAddresses/0': '1.2.3.400' is not"),
    ],
)
def test_the_schema_names_the_key_and_what_is_wrong_with_it(values: dict[str, Any], words: str) -> None:
    with pytest.raises(helm_python.HelmError) as refusal:
        render(values)

    told = str(refusal.value)
    assert words in told
    assert told.count("- at ") == 1, "one mistake, one line"


@pytest.mark.parametrize("address", ["", "10.96.0.77", "fd00::7", "::ffff:10.0.0.1"])
def test_addresses_are_of_IPv4_and_IPv6(address: str) -> None:
    assert render({"scheduler": {"mode": "external"}, "external": {"clusterIP": address}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scheduler": {"name": "default-scheduler"}}, "two would bind the same pods"),
        (
            {"devicePlugin": {"passDeviceSpecs": True, "deviceListStrategy": ["cdi-cri"]}},
            "of no use with CDI alone",
        ),
        ({"resource": {"memory": "x.kubernetes.io/gpu"}}, "Kubernetes keeps names"),
        ({"resource": {"memory": "nvidia.com/gpu"}}, "NVIDIA's own device plugin announces"),
    ],
)
def test_values_that_make_no_sense_together_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(helm_python.HelmError) as refusal:
        render(values)

    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "memory",
    [
        "aliyun.com/gpu-mem",
        "example.com/vram",
        "Example.com/vram",
        "gpu-mem",
        "a/b/c",
        "-a.com/x",
        "a..b/x",
        "kubernetes.io/gpu",
        "my-kubernetes.io/gpu",
        "requests.com/gpu",
        "k8s.io/gpu",
        "gpus.k8s.io/gpu",
        "my-k8s.io/gpu",
        "nvidia.com/gpu",
        "nvidia.com/vram",
        "shared.nvidia.com/gpu",
        "not-nvidia.com/gpu",
        "example.com/gpu-slot",
        "example.com/gpu-count",
        "example.com/" + "x" * 39,
        "example.com/" + "x" * 40,
        "",
    ],
)
def test_the_chart_takes_the_resource_names_that_the_programs_take(memory: str) -> None:
    try:
        Names.of(memory)
    except ResourceNameError:
        with pytest.raises(helm_python.HelmError):
            render({"resource": {"memory": memory}})
    else:
        assert render({"resource": {"memory": memory}})


def test_every_value_has_a_place_in_the_schema_and_the_other_way_round() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert keys_of(default_values()) == keys_in(schema) - {"global"}


def test_every_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    sections = [number for number, line in enumerate(lines) if line[:1].isalpha()]

    assert [lines[number] for number in sections if not lines[number - 1].startswith("#")] == ["monitoring:"]
    assert yaml.safe_load("\n".join(lines)) == default_values()


def test_null_takes_a_default_away() -> None:
    release = render({"devicePlugin": {"nodeSelector": None, "tolerations": None}})
    spec = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]

    assert "nodeSelector" not in spec
    assert "tolerations" not in spec


@pytest.mark.parametrize("gone", [{"gpushare": None}, {"gpushare": None, "never-there": None}])
def test_a_default_label_gives_way_to_another(gone: dict[str, None]) -> None:
    release = render({"devicePlugin": {"nodeSelector": {**gone, "gpu": "yes"}}})
    spec = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]

    assert spec["nodeSelector"] == {"gpu": "yes"}
    assert "kubectl label node NODE gpu=yes\n" in release.notes


def test_every_node_can_be_meant() -> None:
    release = render({"devicePlugin": {"nodeSelector": {"gpushare": None}}})
    spec = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]

    assert "nodeSelector" not in spec
    assert "label node" not in release.notes


def keys_of(values: Object, prefix: str = "") -> set[str]:
    """Of the sections: what is in free maps, such as labels, is the user's."""
    free = {"nodeSelector", "resources", "kubeSchedulerResources", "labels"}
    found = set()
    for key, value in values.items():
        found.add(f"{prefix}{key}")
        if isinstance(value, dict) and key not in free:
            found |= keys_of(value, f"{prefix}{key}.")
    return found


def keys_in(schema: Object, prefix: str = "") -> set[str]:
    optional = {"issuerRef"}
    found = set()
    for key, value in schema.get("properties", {}).items():
        found.add(f"{prefix}{key}")
        if key not in optional:
            found |= keys_in(value, f"{prefix}{key}.")
    return found
