"""helm uninstall cleans the nodes: a Job that comes after all else is gone, and goes itself."""

from __future__ import annotations

import pytest

from deviceplugin.settings import PluginSettings
from kubeapi.settings import read
from tests.chart.rendering import Object, render


def hooks(**values: object) -> dict[str, Object]:
    release = render({"uninstall": values})
    return {
        each["kind"]: each
        for each in release.objects
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    }


def test_it_runs_once_the_device_plugins_are_told_to_go() -> None:
    for kind, each in hooks().items():
        # Before that a plugin would write its node's annotation anew.
        assert each["metadata"]["annotations"]["helm.sh/hook"] == "post-delete", kind


def test_what_the_job_needs_is_there_before_it_and_gone_after_it() -> None:
    found = hooks()
    weights = {
        kind: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for kind, each in found.items()
    }

    assert found.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert max(weights["ServiceAccount"], weights["ClusterRole"]) < weights["ClusterRoleBinding"]
    assert weights["ClusterRoleBinding"] < weights["Job"]
    for kind, each in found.items():
        policies = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        # Not hook-failed: a failed Job is there to be read.
        assert set(policies) == {"before-hook-creation", "hook-succeeded"}, kind


def test_it_cleans_every_node_and_tries_again_while_plugins_still_end() -> None:
    job = hooks(timeout=120)["Job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    settings = read(PluginSettings, program="gpushare-device-plugin", argv=container["args"])

    assert settings.uninstall
    assert settings.all_nodes
    assert job["backoffLimit"] > 1
    assert job["activeDeadlineSeconds"] == 120
    assert job["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("memory", ["aliyun.com/gpu-mem", "example.com/vram"])
def test_it_takes_off_the_names_that_the_plugins_wrote(memory: str) -> None:
    release = render({"resource": {"memory": memory}})
    (container,) = release.one("Job", "gpushare-uninstall")["spec"]["template"]["spec"]["containers"]

    assert f"--resource={memory}" in container["args"]


def test_it_can_be_left_out() -> None:
    assert hooks(enabled=False) == {}
