"""With the chart's profile it is the policy that decides between nodes which are otherwise equal.

Left to itself, kube-scheduler would spread by CPU, go where the image is, and pull the pods of a Deployment
apart (1.36). What users say outright still counts more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.build import NAMES
from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.pair import Pair
from tests.e2e.workload import NOBODY, add_node, container, place, pod

pytestmark = pytest.mark.usefixtures("clean")

SPREAD = {NAMES.policy: "spread"}
HOST = "kubernetes.io/hostname"


@pytest.fixture
def api(plane: ControlPlane, pair: Pair) -> Api:
    return plane.api


def pinned(name: str, node: str, memory: int | None, **more: Any) -> dict[str, Any]:
    """A pod that can only go to one node, by our scheduler."""
    described = container(memory=memory)
    described["resources"].update(more)
    return pod(name, containers=[described], nodeSelector={HOST: node})


def add_nodes(api: Api, *, images: tuple[str, ...] = ()) -> None:
    """n1 to n4, of which n3 has nearly no CPU left and a part of its card taken."""
    for name in ("n1", "n2", "n3", "n4"):
        on = images if name != "n3" else ()
        add_node(api, name, cards=[16000, 16000], labels={HOST: name}, images=on)
    place(api, pinned("cpu", "n3", None, requests={"cpu": "14", "memory": "50Gi"}))
    place(api, pinned("first", "n3", 4000))


def test_binpack_fills_a_node_whose_cpus_are_busy_and_which_lacks_the_image(api: Api) -> None:
    add_nodes(api, images=(NOBODY,))
    assert [place(api, pod(f"p{number}", 4000)) for number in range(3)] == [("n3", "0")] * 3
    assert [place(api, pod(f"q{number}", 8000)) for number in range(2)] == [("n3", "1")] * 2


def test_spread_leaves_the_node_with_the_most_taken_however_idle_its_cpus(api: Api) -> None:
    for name in ("n1", "n2"):
        add_node(api, name, cards=[16000], labels={HOST: name}, images=(NOBODY,) if name == "n1" else ())
    place(api, pinned("cpu", "n2", None, requests={"cpu": "14", "memory": "50Gi"}))
    place(api, pinned("first", "n1", 4000))
    assert place(api, pod("spread", 4000, annotations=SPREAD)) == ("n2", "0")


def test_binpack_keeps_the_replicas_of_one_service_together(api: Api) -> None:
    # kube-scheduler's built-in spreading goes by the Services and owners that select a pod.
    service = {"selector": {"app": "replicas"}, "ports": [{"port": 80}]}
    api.ensure({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "replicas"}, "spec": service})
    add_nodes(api)
    labels = {"app": "replicas"}
    placed = Counter(place(api, pod(f"r{number}", 4000, labels=labels)) for number in range(7))
    assert placed == {("n3", "0"): 3, ("n3", "1"): 4}


def test_preferred_node_affinity_outranks_the_policy(api: Api) -> None:
    add_nodes(api)
    wanted = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n2"]}]}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": wanted}]
        }
    }
    assert place(api, pod("fussy", 4000, affinity=affinity))[0] == "n2"


def test_a_soft_taint_outranks_the_policy(api: Api) -> None:
    add_nodes(api)
    taint = {"key": "e2e", "value": "x", "effect": "PreferNoSchedule"}
    api.merge("/api/v1/nodes/n3", {"spec": {"taints": [taint]}})
    assert place(api, pod("wary", 4000))[0] != "n3"


def test_preferred_topology_spread_outranks_the_policy(api: Api) -> None:
    add_nodes(api)
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "apart"}},
    }
    asked = [
        pod(f"s{number}", 4000, labels={"app": "apart"}, topologySpreadConstraints=[constraint])
        for number in range(4)
    ]
    assert {place(api, item)[0] for item in asked} == {"n1", "n2", "n3", "n4"}
