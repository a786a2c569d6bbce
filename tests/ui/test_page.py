"""The page in a real browser, on the real program and the sandbox's API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.extender.cluster import PREFIX, Cluster
from tests.extender.serving import ask, free_address, served
from tests.ui.reader import Reader


class Program:
    """The extender as it runs beside a kube-scheduler, with its page."""

    def __init__(self, *, verbs: str, view: str) -> None:
        self._verbs = verbs
        self.url = f"http://{view}/ui/"

    async def bind(self, cluster: Cluster, name: str, memory: int, *, node: str) -> None:
        """Create a pod and bind it."""
        pod = await cluster.pod(name, memory)
        args = {"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": node}
        answer = await ask("POST", f"http://{self._verbs}{PREFIX}/bind", body=args)
        assert answer.json() == {"Error": ""}


@contextlib.asynccontextmanager
async def program(cluster: Cluster) -> AsyncIterator[Program]:
    verbs, view = free_address(), free_address()
    async with served(cluster, "--listen", verbs, "--view-listen", view, "--ui"):
        async with asyncio.timeout(10):
            while (await ask("GET", f"http://{verbs}/readyz")).status_code != 200:
                pass
        yield Program(verbs=verbs, view=view)


async def test_nodes_cards_and_pods_of_the_cluster_are_shown(cluster: Cluster, reader: Reader) -> None:
    await cluster.node("n1", cards=[8192, 8192])
    await cluster.node("n2", cards=[16384])
    async with program(cluster) as extender:
        await extender.bind(cluster, "a", 3000, node="n1")
        await extender.bind(cluster, "b", 6000, node="n1")
        await reader.open(extender.url)
        await reader.sees("#pod-count", "2")
        assert await reader.nodes() == ["n1", "n2"]
        assert await reader.text(".totals") == (
            "Allocated 27 % 9,000 of 32,768 MiB Largest free card 16,384 MiB of 23,768 MiB free in all "
            "Nodes 2 3 cards Pods on cards 2 none waiting"
        )
        assert await reader.text('[data-node="n1"]') == (
            "n1 54 % of 16,384 MiB 0 3,000 / 8,192 a 5,192 free 1 6,000 / 8,192 b 2,192 free"
        )
        await reader.sees("#live", "Live")
        await reader.pod("default/a").hover()
        details = await reader.text("#details")
        for words in ("Namespace default", "Node n1", "Holds 3,000 of 8,192 MiB", "main 3,000 MiB"):
            assert words in details
        assert "Since less than a minute" in details
        assert "State waiting for kubelet" in details


async def test_a_pod_that_comes_and_goes_is_seen_without_a_reload(cluster: Cluster, reader: Reader) -> None:
    await cluster.node("n1", cards=[8192])
    async with program(cluster) as extender:
        page = await reader.open(extender.url)
        await page.evaluate("() => { window.sameDocument = true; }")
        await extender.bind(cluster, "comes", 3000, node="n1")
        await reader.pod("default/comes").wait_for()
        await reader.sees("#allocated", "3,000 of 8,192 MiB")
        await cluster.delete("comes")
        await reader.pod("default/comes").wait_for(state="detached")
        await reader.sees("#allocated", "0 of 8,192 MiB")
        await cluster.node("n2", cards=[1024])
        await page.locator('[data-node="n2"]').wait_for()
        await cluster.request("DELETE", "/api/v1/nodes/n1")
        await page.locator('[data-node="n1"]').wait_for(state="detached")
        assert await page.evaluate("() => window.sameDocument")


async def test_what_waits_is_shown_with_its_reasons(cluster: Cluster, reader: Reader) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("n2", cards=[8192])
    await cluster.node("n3", cards=[4096])
    async with program(cluster) as extender:
        await extender.bind(cluster, "a", 6000, node="n1")
        await extender.bind(cluster, "b", 6000, node="n2")
        await cluster.pod("waits", 5000)
        await reader.open(extender.url)
        await reader.sees("#waiting", "1 pod waits default/waits 5,000 MiB")
        await reader.sees("#waiting", "2 nodes: no single GPU card has enough memory left")
        await reader.sees("#waiting", "1 node: GPU memory request is larger than any card of the node")
        await reader.sees("#waiting-count", "1 waiting")
        await cluster.delete("a")
        await reader.sees("#waiting", "1 node has room on a card")
        await cluster.delete("waits")
        await reader.page.locator("#waiting").wait_for(state="hidden")


async def test_a_node_that_is_closed_says_why(cluster: Cluster, reader: Reader) -> None:
    await cluster.node("n1", cards=[8192])
    async with program(cluster) as extender:
        await cluster.pod("smuggled", 1000, on="n1")
        await reader.open(extender.url)
        await reader.sees('[data-node="n1"] .problems', "Takes no new pods")
        await reader.sees('[data-node="n1"] .problems', "default/smuggled has no card allocation")
        await reader.sees("#card-count", "1 closed")
        await reader.sees("#free", "of 0 MiB free in all")
