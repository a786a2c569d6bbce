"""The tools that people look at a cluster with, against a real one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.pair import Pair
from tests.e2e.programs import eventually, own
from tests.e2e.workload import add_node, place, placement, pod, refused

pytestmark = pytest.mark.usefixtures("clean")

NOT_RUN = {"extender-running", "plugin-running", "plugin-on-nodes"}
"""What the doctor is right to miss here: no controller makes the pods of the chart."""


@pytest.fixture
def api(plane: ControlPlane, pair: Pair) -> Api:
    return plane.api


@pytest.fixture
def kubeconfig(plane: ControlPlane) -> Path:
    return plane.admin_kubeconfig()


def bypass(api: Api, name: str, *, node: str) -> None:
    """Bind a pod that asks for memory as any scheduler would, without a card."""
    api.create(pod(name, 1000, schedulerName="nobody"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    answer = api.ask("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)
    assert answer.status_code == 201, answer.text


def inspect(kubeconfig: Path, *arguments: str) -> str:
    done = subprocess.run(
        [own("kubectl-inspect-gpushare"), "--kubeconfig", kubeconfig, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def diagnose(kubeconfig: Path, pair: Pair) -> dict[str, Any]:
    """The doctor's findings that are no success, by check; those of `NOT_RUN` are left out."""
    done = subprocess.run(
        [own("gpushare-doctor"), "--kubeconfig", kubeconfig, "--extender-url", pair.view, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # for what is not run
    findings = {each["check"]: each for each in json.loads(done.stdout)}
    assert findings.keys() > NOT_RUN
    return {
        name: each
        for name, each in findings.items()
        if name not in NOT_RUN and each["status"] not in ("OK", "SKIP")
    }


def test_inspect_says_from_the_objects_what_the_extender_says(api: Api, pair: Pair, kubeconfig: Path) -> None:
    add_node(api, "n1", cards=[16000, 8000])
    add_node(api, "n2", cards=[16000])
    place(api, pod("a", 3000))
    place(api, pod("b", 9000))
    bypass(api, "stranger", node="n2")
    refused(api, pod("large", 17000), because="larger than any card")
    eventually(
        lambda: pair.inspect() == json.loads(inspect(kubeconfig, "--output", "json")), what="they agree"
    )
    table = inspect(kubeconfig)
    assert "3000/8000" in table
    assert table.split("In Cluster:")[1].split()[0] == "13000/40000"


def test_the_doctor_finds_nothing_where_nothing_is_wrong(api: Api, pair: Pair, kubeconfig: Path) -> None:
    add_node(api, "n1", cards=[16000, 8000], labels={"gpushare": "true"})
    place(api, pod("a", 3000))
    assert diagnose(kubeconfig, pair) == {}


def test_I1_L10_a_pod_that_bypassed_the_scheduler_is_named_and_closes_its_node(
    api: Api, pair: Pair, kubeconfig: Path
) -> None:
    add_node(api, "n1", cards=[16000], labels={"gpushare": "true"})
    bypass(api, "stranger", node="n1")
    refused(api, pod("next", 1000), because="until one of its pods is gone: default/stranger")
    found = diagnose(kubeconfig, pair)
    assert {"pods-without-card", "nodes-closed"} <= found.keys()
    assert "default/stranger" in json.dumps(found["pods-without-card"])
    api.delete("/api/v1/namespaces/default/pods/stranger", gracePeriodSeconds="0")
    eventually(lambda: placement(api.pod("next")) == ("n1", "0"), what="the node takes pods again")
