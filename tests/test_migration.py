"""What docs/migrate-from-gpushare.md promises: from the classic components to ours, running pods untouched.

The classic side is feigned by its traces: a node with totals and no annotation, one device per GiB named
`UUID-_-N`, pods with the classic annotations alone. Everything else is real: extender, device plugin, HTTP,
gRPC, and a kubelet stand-in that keeps its record as kubelet 1.36 does.
"""

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gpushare.names import VISIBLE_DEVICES
from gpushare.refusals import Reason
from tests.build import NAMES
from tests.chart.rendering import render
from tests.deviceplugin import cluster as node_side
from tests.deviceplugin.pods import C
from tests.extender import cluster as scheduler_side
from tests.extender.cluster import Scheduler
from tests.sandbox.fakeplugin import FakePlugin
from tests.waiting import until

NODE = "n1"
GIB_OF_A_CARD = 15
CARDS = ("GPU-0", "GPU-1")


class ClassicNode:
    """A node with the classic device plugin on it, and everybody who has to do with it."""

    def __init__(self, *, node: node_side.Cluster, api: scheduler_side.Cluster, scheduler: Scheduler) -> None:
        self.node = node
        self.api = api
        self.scheduler = scheduler

    @contextlib.asynccontextmanager
    async def classic_plugin(self) -> AsyncIterator[FakePlugin]:
        """The classic plugin: a device per GiB, and the number of cards as a plain capacity."""
        units = [f"{uuid}-_-{number}" for uuid in CARDS for number in range(GIB_OF_A_CARD)]
        plugin = FakePlugin(
            folder=self.node.folder / "device-plugins",
            ids=units,
            resource=NAMES.memory,
            endpoint="aliyungpushare.sock",
        )
        await plugin.serve()
        await plugin.register()
        await until(lambda: self.node.units_known()[1] == len(units), what="kubelet counts the units")
        await self.api.patch(
            f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {NAMES.count: str(len(CARDS))}}}
        )
        try:
            yield plugin
        finally:
            await plugin.stop()

    async def known(self, *, free: list[int]) -> None:
        """Wait until the extender sees the node with this much left per card."""
        await self.scheduler.seen_nodes(NODE)
        view = self.scheduler.extender.ledger.view
        await until(lambda: [card.free.memory for card in view(NODE).cards] == free, what=f"free is {free}")

    async def classic_pod(self, name: str, *, units: int, card: int) -> dict[str, Any]:
        """A running pod as the classic components leave it: patched, then bound."""
        pod = await self.node.create(name, C(memory=units, slots=0))
        annotations = {
            NAMES.index: str(card),
            NAMES.pod_memory: str(units),
            NAMES.card_memory: str(GIB_OF_A_CARD),
            NAMES.assigned: "true",
            NAMES.assume_time: "1795988600000000000",
        }
        await self.node.bind(pod, annotations=annotations)
        await self.node.environment(name)
        return pod

    async def new_pod(self, name: str, *, units: int) -> dict[str, str]:
        """A pod of our scheduler; its container's environment."""
        pod = await self.node.create(name, C(memory=units, slots=0))
        assert await self.scheduler.bind(pod, node=NODE) == ""
        return (await self.node.environment(name))["main"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gm-", dir="/tmp") as path:
        yield Path(path)


@pytest_asyncio.fixture
async def classic(folder: Path) -> AsyncIterator[ClassicNode]:
    async with node_side.cluster(folder) as node, httpx.AsyncClient() as http:
        node.write_cards(*({"uuid": uuid, "memory": GIB_OF_A_CARD} for uuid in CARDS))
        api = scheduler_side.Cluster(node.server, folder=folder, http=http)
        async with api.extender(unit="GiB") as scheduler:
            yield ClassicNode(node=node, api=api, scheduler=scheduler)


async def test_the_extender_serves_the_classic_plugins_nodes(classic: ClassicNode) -> None:
    async with classic.classic_plugin() as plugin:
        await classic.classic_pod("old-a", units=6, card=0)
        await classic.classic_pod("old-b", units=10, card=1)
        await classic.known(free=[9, 5])

        env = await classic.new_pod("new", units=5)

        assert env["OWN"] == "plugin", "the classic plugin has answered kubelet"
        assert await classic.api.card_of("new") == "1", "where it fits exactly"
        for key in (NAMES.index, NAMES.pod_memory, NAMES.card_memory, NAMES.assume_time):
            assert classic.node.annotation("new", key), f"the classic plugin looks for {key}"
        assert classic.node.annotation("new", NAMES.assigned) == "false", (
            "so that it takes the pod for one to serve"
        )
        await classic.known(free=[9, 0])
        assert plugin.folder.name == "device-plugins"


async def test_units_mode_takes_over_a_node_under_running_pods(classic: ClassicNode) -> None:
    async with classic.classic_plugin():
        await classic.classic_pod("old", units=10, card=1)
        await classic.known(free=[15, 5])
        between = await classic.new_pod("between", units=5)
        assert between["OWN"] == "plugin"
    before = {name: classic.node.recorded(name, resource=NAMES.memory) for name in ("old", "between")}

    async with classic.node.plugin(unit="GiB", mode="units"):
        await classic.known(free=[15, 0])
        cards = json.loads(classic.node.node_object()["metadata"]["annotations"][NAMES.cards])
        assert (cards["unit"], [card["uuid"] for card in cards["cards"]]) == ("GiB", list(CARDS))

        env = await classic.new_pod("new", units=15)

        assert env[VISIBLE_DEVICES] == "GPU-0", "a UUID, where the classic plugin gives an index"
        assert env[NAMES.card_memory] == str(GIB_OF_A_CARD)
        await classic.known(free=[0, 0])
        for name, record in before.items():
            assert classic.node.pod(name)["status"]["phase"] == "Running"
            assert classic.node.recorded(name, resource=NAMES.memory) == record, "kubelet replays it"
            assert classic.node.annotation(name, NAMES.index) == "1"


async def test_the_classic_plugin_can_take_the_node_back(classic: ClassicNode) -> None:
    async with classic.node.plugin(unit="GiB", mode="units"):
        await classic.known(free=[15, 15])
        await classic.new_pod("new", units=6)
    await classic.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {NAMES.cards: None}}})

    async with classic.classic_plugin():
        await classic.known(free=[9, 15])
        env = await classic.new_pod("newer", units=9)
        assert env["OWN"] == "plugin"
        assert classic.node.pod("new")["status"]["phase"] == "Running"
        await classic.known(free=[0, 15])


async def test_L9_L10_classic_pods_without_a_readable_card_close_their_node(classic: ClassicNode) -> None:
    async with classic.classic_plugin():
        await classic.known(free=[15, 15])
        pod = await classic.node.create("poisoned", C(memory=3, slots=0))
        await classic.node.bind(pod, annotations={NAMES.index: "-1", NAMES.pod_memory: "3"})
        await classic.scheduler.shut(NODE)
        answer = await classic.scheduler.filter(
            await classic.node.create("new", C(memory=3, slots=0)), nodes=[NODE]
        )
        assert "default/poisoned" in answer["FailedNodes"][NODE]


async def test_a_cluster_of_both_plugins_and_units_says_which_node_counts_otherwise(folder: Path) -> None:
    """Classic nodes count in the cluster's unit, whatever that is: only ours can tell that they do not."""
    async with node_side.cluster(folder) as node, httpx.AsyncClient() as http:
        api = scheduler_side.Cluster(node.server, folder=folder, http=http)
        await api.node("classic", cards=[15, 15], classic=True)
        await api.node("ours", cards=[15], unit="GiB")
        await api.node("in-mib", cards=[15360], unit="MiB")
        nodes = ["classic", "in-mib", "ours"]
        async with api.extender(unit="GiB") as scheduler:
            await scheduler.seen_nodes(*nodes)
            answer = await scheduler.filter(await api.pod("new", 10), nodes=nodes)
            assert sorted(answer["NodeNames"]) == ["classic", "ours"]
            assert answer["FailedAndUnresolvableNodes"] == {"in-mib": Reason.UNIT_MISMATCH}


async def test_slots_mode_takes_no_pods_while_classic_units_are_held(classic: ClassicNode) -> None:
    """kubelet fails every pod that asks for the memory while a container holds some of it as a device."""
    async with classic.classic_plugin():
        await classic.classic_pod("old", units=10, card=1)
        await classic.known(free=[15, 5])

    async with classic.node.plugin(unit="GiB", mode="slots", ready=False) as plugin:
        await until(lambda: not plugin.problems(), what="ready")
        await classic.known(free=[0, 0])
        answer = await classic.scheduler.filter(await classic.node.create("new", C(memory=3)), nodes=[NODE])
        assert answer["FailedAndUnresolvableNodes"] == {NODE: Reason.UNHEALTHY}, "nobody is evicted for it"
        annotations = classic.node.node_object()["metadata"]["annotations"]
        (reason,) = {card["reason"] for card in json.loads(annotations[NAMES.cards])["cards"]}
        assert "default/old" in reason
        assert classic.node.slots_known() == 0
        assert classic.node.pod("old")["status"]["phase"] == "Running"
        events = classic.node.server.objects
        await until(
            lambda: any(event["reason"] == "UnitsStillHeld" for event in events("events")), what="an event"
        )

        await classic.node.delete("old")

        await classic.known(free=[15, 15])
        await until(lambda: classic.node.slots_known() == 8, what="kubelet has the slots")


CLASSIC_OBJECTS = {
    # Cluster-scoped objects, and those in kube-system, of the classic components' manifests.
    ("ClusterRole", "gpushare-schd-extender"),
    ("ClusterRole", "gpushare-device-plugin"),
    ("ClusterRoleBinding", "gpushare-schd-extender"),
    ("ClusterRoleBinding", "gpushare-device-plugin"),
    ("Deployment", "gpushare-schd-extender"),
    ("Service", "gpushare-schd-extender"),
    ("DaemonSet", "gpushare-device-plugin-ds"),
}


@pytest.mark.parametrize("mode", ["pair", "external"])
def test_nothing_that_the_chart_installs_is_called_as_a_classic_object(mode: str) -> None:
    """Helm refuses to install over objects that it did not make."""
    release = render({"scheduler": {"mode": mode}, "resource": {"unit": "GiB"}})
    assert {(each["kind"], each["metadata"]["name"]) for each in release.objects} & CLASSIC_OBJECTS == set()


async def test_a_card_can_be_written_down_for_a_pod_that_nobody_scheduled(classic: ClassicNode) -> None:
    async with classic.classic_plugin():
        await classic.known(free=[15, 15])
        pod = await classic.node.create("unseen", C(memory=3, slots=0))
        await classic.node.bind(pod)
        await classic.scheduler.shut(NODE)
        await classic.api.patch(
            "/api/v1/namespaces/default/pods/unseen", {"metadata": {"annotations": {NAMES.index: "0"}}}
        )
        await classic.known(free=[12, 15])
