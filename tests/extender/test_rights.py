"""I4: the extender does its work with the rights that `rights.py` lists, and has no use for fewer."""

import asyncio
from typing import Any

import httpx

from extender.rights import ELECTION_RIGHTS, LABEL_RIGHTS, RIGHTS
from sandbox.apiserver import Rule
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.serving import free_address, served
from tests.rights import Guard, uses
from tests.waiting import DEADLINE, until

AGENT = "gpushare-extender"


class Extender:
    """A whole program, as kube-scheduler sees it."""

    def __init__(self, address: str) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://{address}")

    async def answers(self) -> bool:
        """Whether it is ready, and no standby."""
        return (await self._http.get("/readyz")).text == "ok"

    async def bind(self, pod: dict[str, Any], *, node: str) -> str:
        meta = pod["metadata"]
        names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        answer = await self._http.post(f"{PREFIX}/bind", json=names | {"Node": node})
        error: str = answer.json()["Error"]
        return error

    async def close(self) -> None:
        await self._http.aclose()


async def used(cluster: Cluster, *argv: str, guard: Guard) -> None:
    """Run the program through everything that it asks the API server for."""
    address = free_address()
    await cluster.node("n1", cards=[8000])
    async with served(cluster, f"--listen={address}", *argv):
        extender = Extender(address)
        async with asyncio.timeout(DEADLINE):
            while not await extender.answers():  # noqa: ASYNC110 — a probe has to be asked
                await asyncio.sleep(0.01)
        pod = await cluster.pod("a", 3000)
        lost = cluster.faults.add(
            Rule(action="drop", when="after", method="POST", path="/binding$", client=AGENT, count=1)
        )
        assert await extender.bind(pod, node="n1") == "", "what became of it is read from the pod"
        assert lost.hits == 1
        large = await cluster.pod("b", 9000)
        for times in (1, 2):
            assert "cannot take 9000 units" in await extender.bind(large, node="n1")
            await until(lambda: counts(cluster) == [times], what="the event")  # noqa: B023
        await extender.close()
    assert guard.refused == set()


def counts(cluster: Cluster) -> list[int]:
    return [event["count"] for event in cluster.api.objects("events")]


async def test_I4_the_extender_uses_its_rights_and_no_others(cluster: Cluster) -> None:
    guard = Guard(cluster.api, client=AGENT, rights=RIGHTS)
    await used(cluster, guard=guard)
    assert guard.used == guard.rights


async def test_I4_replicas_that_elect_a_leader_need_a_lease_besides(cluster: Cluster) -> None:
    guard = Guard(cluster.api, client=AGENT, rights=(*RIGHTS, *ELECTION_RIGHTS))
    await used(cluster, "--leader-elect", guard=guard)
    assert guard.used == guard.rights


async def test_I4_a_leader_that_is_found_by_its_label_patches_its_pod_besides(cluster: Cluster) -> None:
    guard = Guard(cluster.api, client=AGENT, rights=(*RIGHTS, *ELECTION_RIGHTS, *LABEL_RIGHTS))
    await cluster.pod("mine")
    label = ("--leader-label=gpushare/leader", "--pod-name=mine", "--pod-namespace=default")
    await used(cluster, "--leader-elect", *label, guard=guard)
    assert guard.used == guard.rights


def test_I4_no_right_is_to_all_and_pods_are_only_read_and_bound() -> None:
    for _, resource, verb in uses((*RIGHTS, *ELECTION_RIGHTS)):
        assert "*" not in (resource, verb)
        assert resource in ("pods/binding", "events", "leases") or verb in ("get", "list", "watch")
    (label,) = LABEL_RIGHTS
    assert (label.resource, label.verbs, label.scope) == ("pods", ("patch",), "namespace")
