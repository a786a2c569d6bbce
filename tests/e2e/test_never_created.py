"""Pods that are never created: the doctor names them by what their controllers leave in a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.build import NAMES
from tests.chart.rendering import NAMESPACE
from tests.e2e.api import Object
from tests.e2e.controlplane import ControlPlane, controllers
from tests.e2e.programs import eventually, own
from tests.e2e.workload import add_node, pod

DAEMONSET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-device-plugin"
PODS = "/api/v1/namespaces/default/pods"
CONTROLLERS = ("replicaset-controller", "statefulset-controller", "job-controller")
LABELS = {"app": "refused"}

pytestmark = pytest.mark.usefixtures("installation", "clean")


def diagnose(kubeconfig: Path, check: str) -> dict[str, Any]:
    done = subprocess.run(
        [own("gpushare-doctor"), "--kubeconfig", kubeconfig, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr
    (found,) = [each for each in json.loads(done.stdout) if each["check"] == check]
    return dict(found)


def workload(kind: str) -> Object:
    """One whose pods admission refuses."""
    container = {"name": "main", "image": "x", "resources": {"limits": {NAMES.memory: "10Gi"}}}
    template: Object = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    meta = {"name": kind.lower()}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        return {"apiVersion": "batch/v1", "kind": kind, "metadata": meta, "spec": {"template": template}}
    spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


def is_refused(plane: ControlPlane) -> bool:
    wrong = pod("wrong", "10Gi")
    return plane.api.ask("POST", PODS, wrong, params={"dryRun": "All"}).status_code == 422


def test_refused_pods_of_every_kind_of_workload_are_named_with_the_sentence(
    plane: ControlPlane, tmp_path: Path
) -> None:
    # The API server takes a moment to read the policy; a Job whose pod it let in before makes no other.
    eventually(lambda: is_refused(plane), what="the policy is in force")
    made = [workload(kind) for kind in ("ReplicaSet", "StatefulSet", "Job")]
    for item in made:
        plane.api.create(item)
    kubeconfig = plane.admin_kubeconfig()
    named: list[str] = []

    def all_named() -> bool:
        named[:] = diagnose(kubeconfig, "workloads-refused")["objects"]
        return len(named) == len(made)

    try:
        with controllers(plane, *CONTROLLERS, may_be_denied=("'gpushare-pods'",), logs=tmp_path):
            eventually(all_named, what="the doctor names all three")
    finally:
        for item in made:
            name = item["metadata"]["name"]
            plane.api.delete(f"{plane.api.collection(item)}/{name}", propagationPolicy="Background")
        plane.api.delete("/api/v1/namespaces/default/events", fieldSelector="reason=FailedCreate")
    sentence = f"container 'main': {NAMES.memory}: '10Gi' counts MiB: did you mean 10240?"
    assert [each.partition(",")[0] for each in named] == [
        "Job default/job",
        "ReplicaSet default/replicaset",
        "StatefulSet default/statefulset",
    ]
    for each in named:
        assert each.endswith(f" min ago: {sentence}"), each


def test_a_device_plugin_whose_runtime_class_is_missing_has_no_pods_and_that_is_said(
    plane: ControlPlane, tmp_path: Path
) -> None:
    add_node(plane.api, "n1", cards=[16000], labels={"gpushare": "true"})
    kubeconfig = plane.admin_kubeconfig()
    found: dict[str, Any] = {}

    def not_created() -> bool:
        found.update(diagnose(kubeconfig, "plugin-running"))
        return "could be created" in found["message"]

    name_class(plane, "nvidia")
    try:
        with controllers(plane, "daemonset-controller", may_be_denied=("RuntimeClass",), logs=tmp_path):
            eventually(not_created, what="the doctor sees that no pod can be created")
    finally:
        name_class(plane, None)
    assert "for 1 node no pod could be created, for there is no RuntimeClass nvidia" in found["message"]


def name_class(plane: ControlPlane, name: str | None) -> None:
    plane.api.merge(DAEMONSET, {"spec": {"template": {"spec": {"runtimeClassName": name}}}})
