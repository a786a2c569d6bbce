"""A node's life as a set of moves, and what must hold after each: for generated histories and for soaking.

The test plays the scheduler (by the product's own ledger) and decides whom kubelet admits when; everything
else is real: the plugin over gRPC and HTTP, the sandbox's API server and kubelet. A move that would make no
sense now does nothing.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from deviceplugin.plugin import Plugin
from deviceplugin.pods import NodePod
from deviceplugin.slots import card_of_slot
from gpushare.allocation import decode_allocation
from gpushare.bookings import Booking, PodRef, claim_of
from gpushare.demand import demand_of
from gpushare.errors import NoRoomError
from gpushare.ledger import Ledger
from gpushare.names import VISIBLE_DEVICES
from gpushare.objects import Node
from gpushare.placement import Policy
from kubeapi.client import MERGE_PATCH
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, cluster, until
from tests.deviceplugin.pods import NAMES, NODE, C, binding_annotations

SIZES = (16000, 8000, 12000)
SLOTS = 6


class World:
    """One node, one plugin, and everything that may befall them."""

    def __init__(self, it: Cluster) -> None:
        self.it = it
        self.plugin: Plugin | None = None
        self.counts: Counter[str] = Counter()
        self.is_reachable = True
        """Whether the plugin reaches the API server."""
        self.bad: set[int] = set()
        """Cards out of order."""
        self._stack = contextlib.AsyncExitStack()
        self._running = contextlib.AsyncExitStack()
        self._given: dict[str, list[str]] = {}

    @classmethod
    async def open(cls, folder: Path) -> Self:
        """A node with its plugin ready, and nobody on it."""
        stack = contextlib.AsyncExitStack()
        world = cls(await stack.enter_async_context(cluster(folder)))
        world._stack = stack
        world.it.node.hold_admission()
        world._show_cards()
        await world._start_plugin(ready=True)
        return world

    async def close(self) -> None:
        await self._running.aclose()
        await self._stack.aclose()

    # Moves.

    async def bind(self, name: str, *containers: C, policy: Policy = Policy.BINPACK) -> None:
        """Create a pod and bind it to the cards that the ledger chooses, if there is room."""
        if name in self.pods():
            return
        created = await self.it.create(name, *containers)
        pod = msgspec.convert(created, NodePod)
        demand = demand_of(pod.spec, NAMES)
        assert demand is not None
        try:
            booking = self.ledger().reserve_cards(PodRef.of(pod), demand=demand, node=NODE, policy=policy)
        except NoRoomError:
            self.counts["no room"] += 1
            await self.it.delete(name)
            return
        cards = [
            next(card for card in self.it.cards if ref.names_card(card)) for ref in booking.allocation.cards
        ]
        await self.it.bind(created, annotations=binding_annotations(created, cards=cards))
        self._given[pod.metadata.uid] = [card.uuid for card in cards]
        self.counts["bound"] += 1

    async def replace(self, choice: int, *containers: C) -> None:
        """Behind a lagging watch a pod that waits makes way for another one by the same name."""
        waiting = self.waiting()
        if waiting and self.is_reachable:
            name = waiting[choice % len(waiting)].metadata.name
            await self.lag()
            await self.it.delete(name)
            await self._gone(name)
            await self.bind(name, *containers, policy=Policy.SPREAD)
            self.counts["replaced"] += 1

    async def admit(self, choice: int) -> None:
        """kubelet takes on one of those who wait; it is refused only for a reason."""
        waiting = self.waiting()
        if not waiting:
            return
        pod = waiting[choice % len(waiting)]
        may_fail = self._excuse(pod)
        await self.it.node.admit(name=pod.metadata.name)
        if self.it.key(pod.metadata.name) in self.it.node.containers:
            self.counts["admitted"] += 1
            return
        await until(lambda: self.pods()[pod.metadata.name].is_terminal, what=self._phases)
        message = self.it.pod(pod.metadata.name)["status"]["message"]
        assert may_fail, f"{pod.key} was refused without a cause: {message}"
        self.counts[f"refused: {may_fail}"] += 1

    def _excuse(self, pod: NodePod) -> str:
        """Why a pod may be refused now; empty if it must not be."""
        if self.plugin is None:
            return "no plugin"
        if not self.is_reachable:
            return "no API server"
        cards = {card.uuid for card in self.it.cards if card.index in self.bad}
        return "bad card" if cards & set(self._given[pod.metadata.uid]) else ""

    async def delete(self, choice: int) -> None:
        """A pod is deleted, whatever it is at."""
        names = sorted(self.pods())
        if names:
            name = names[choice % len(names)]
            await self.it.delete(name)
            await self._gone(name)
            self.counts["deleted"] += 1

    async def finish(self, choice: int, *, phase: str) -> None:
        """A pod's containers end."""
        names = sorted(name for _, name in self.it.node.containers if not self._is_waiting(name))
        if names:
            name = names[choice % len(names)]
            self.it.node.finish(name=name, phase=phase)
            await until(lambda: self.pods()[name].is_terminal, what=self._phases)
            self.counts["finished"] += 1

    async def restart_kubelet(self, *, reboot: bool) -> None:
        """kubelet or the whole machine restarts; kubelet then takes on again, in any order, who was there."""
        times = self.plugin.link.registrations if self.plugin else 0
        await self.it.node.restart(reboot=reboot)
        await self.it.node.ready()
        if self.plugin is not None:
            plugin = self.plugin
            await until(lambda: plugin.link.registrations > times, what=plugin.problems)
            await self._announced()
        self.counts["reboots" if reboot else "kubelet restarts"] += 1

    async def hang_up(self) -> None:
        """kubelet lets go of the device stream, and of nothing else."""
        if self.plugin is not None and NAMES.slot in self.it.node.kubelet._endpoints:
            plugin, times = self.plugin, self.plugin.link.registrations
            plugin.link._rest.reset()  # as if the registration had lasted: no reason for patience
            await self.it.node.kubelet._endpoints[NAMES.slot].close()
            await until(lambda: plugin.link.registrations > times, what=plugin.problems)
            await until(plugin.link.registered.is_set, what=plugin.problems)
            self.counts["streams lost"] += 1

    async def restart_plugin(self) -> None:
        """The plugin goes and comes back, with nothing but what kubelet and the API server know."""
        await self.stop_plugin()
        await self.start_plugin()

    async def stop_plugin(self) -> None:
        """The plugin goes."""
        if self.plugin is not None:
            await self._running.aclose()
            self.plugin = None
            await until(lambda: self.it.slots_known() == 0, what=self.it.slots_known)

    async def start_plugin(self) -> None:
        """The plugin comes."""
        if self.plugin is None:
            await self._start_plugin(ready=False)
            await self._announced()
            self.counts["plugin starts"] += 1

    async def outage(self, *, until_further_notice: bool) -> None:
        """The plugin does not reach the API server, or does again."""
        self.it.server.faults.clear()
        self.is_reachable = not until_further_notice
        if until_further_notice:
            self.it.server.faults.add(Rule(action="drop", client=AGENT))
            self.it.server.faults.cut_watches(client=AGENT)
            self.counts["outages"] += 1

    async def lag(self) -> None:
        """The plugin's watches fall silent, until the next quiet or outage."""
        if self.is_reachable:
            self.it.server.faults.add(Rule(action="freeze", client=AGENT))
            self.counts["lags"] += 1

    async def turn_card(self, index: int) -> None:
        """A card fails, or is in order again."""
        self.bad ^= {index}
        self._show_cards()
        if self.plugin is not None:
            await self._announced()
        self.counts["cards turned"] += 1

    async def reregister(self, *, recreate: bool) -> None:
        """The Node object loses what the plugin wrote."""
        await self.it.node.reregister(recreate=recreate)
        self.counts["node objects lost"] += 1

    async def meddle(self, choice: int) -> None:
        """Somebody takes a running pod's annotations off; the reconciler puts them back."""
        running = [pod for pod in self.pods().values() if pod.was_admitted and not pod.is_terminal]
        running = [pod for pod in running if not self._is_waiting(pod.metadata.name)]
        if not running or self.plugin is None or not self.is_reachable or self.bad:
            return
        pod, plugin = running[choice % len(running)], self.plugin
        if not any(each.limits for each in pod.spec.containers or ()):
            return  # kubelet's record shows nothing of plain init containers
        await self.outage(until_further_notice=False)
        body = {"metadata": {"annotations": dict.fromkeys((NAMES.index, NAMES.allocation))}}
        path = f"/api/v1/namespaces/default/pods/{pod.metadata.name}"
        (await self.it.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)).checked()
        await until(
            lambda: any(
                each.metadata.uid == pod.metadata.uid and NAMES.index not in each.annotations
                for each in plugin.view.all()
            ),
            what=plugin.view.all,
        )
        before = plugin.reconciler.corrections
        await plugin.reconciler.look()
        if plugin.reconciler.corrections > before:
            self.counts["corrected"] += 1
            return
        # The same pod too often, or cards of which kubelet's record does not tell the order: said, and left.
        assert pod.key in plugin.reconciler.differing, f"{pod.key} was neither corrected nor complained of"
        self.counts["not corrected"] += 1
        await self.it.delete(pod.metadata.name)
        await self._gone(pod.metadata.name)

    async def quiet(self) -> None:
        """Everything is in order again and everybody who waits is served; then all records must agree."""
        await self.outage(until_further_notice=False)
        for index in sorted(self.bad):
            await self.turn_card(index)
        await self.start_plugin()
        assert self.plugin is not None
        plugin = self.plugin
        await until(lambda: not plugin.problems(), what=plugin.problems, deadline=20)
        await until(lambda: self.ledger().view(NODE).problem is None, what=self.it.node_object, deadline=20)
        while self.waiting():
            await self.admit(0)
        async with asyncio.timeout(20):
            while not self._is_marked():  # the marks are written beside the work, and nobody announces them
                await plugin.reconciler.look()
                await asyncio.sleep(0.02)
        await plugin.reconciler.look()
        self.check()
        self._check_agreement()
        self.counts["quiets"] += 1

    # What must hold.

    def check(self) -> None:
        """A container's env names its pod's cards, and no card has handed out more than it has."""
        used: Counter[str] = Counter()
        pods = self.pods()
        for (_, name), containers in self.it.node.containers.items():
            pod = pods.get(name)
            if pod is None:
                continue  # deleted; its containers are being ended
            given = self._given[pod.metadata.uid]
            inits = {each.name for each in pod.spec.init_containers or () if each.restart_policy != "Always"}
            for container, env in containers.items():
                if VISIBLE_DEVICES not in env:
                    continue
                cards = env[VISIBLE_DEVICES].split(",")
                assert cards == given[: len(cards)], f"{pod.key}/{container}: {cards}, not of {given}"
                if container not in inits:
                    used.update(dict.fromkeys(cards, int(env[NAMES.container_memory])))
        for card in self.it.cards:
            assert used[card.uuid] <= card.memory, f"{card.uuid} has handed out {used[card.uuid]}"

    def _check_agreement(self) -> None:
        """kubelet's record, the annotations and the ledger say the same."""
        listed = {pod.name: pod for pod in self.it.node.kubelet.pod_resources()}
        for name, pod in self.pods().items():
            claim = claim_of(pod, NAMES)
            if pod.is_terminal:
                assert claim is None
                continue
            assert isinstance(claim, Booking), claim
            cards = decode_allocation(pod.annotations, node=NODE, demand=claim.demand, names=NAMES).cards
            assert {card.uuid for card in cards} == set(self._given[pod.metadata.uid]), pod.key
            held = [
                card_of_slot(slot)
                for container in listed[name].containers
                for devices in container.devices
                for slot in devices.device_ids
            ]
            assert set(held) <= {card.uuid for card in cards}, f"{pod.key} holds {held}"
        ledger = self.ledger()
        view = ledger.view(NODE)
        assert view.problem is None, view.problem
        assert all(card.booked.memory <= card.card.memory for card in view.cards), view.cards

    # Looking.

    def pods(self) -> dict[str, NodePod]:
        """The pods as the API has them, by name."""
        objects = self.it.server.objects("pods")
        return {obj["metadata"]["name"]: msgspec.convert(obj, NodePod) for obj in objects}

    def ledger(self) -> Ledger:
        """What the extender would know."""
        ledger = Ledger(names=NAMES, unit="MiB")
        ledger.set_node(msgspec.convert(self.it.node_object(), Node))
        for pod in self.pods().values():
            ledger.set_pod(pod)
        return ledger

    def waiting(self) -> list[NodePod]:
        """Whom kubelet has yet to take on."""
        return [pod for name, pod in sorted(self.pods().items()) if self._is_waiting(name)]

    def _is_waiting(self, name: str) -> bool:
        pod = self.pods()[name]
        return not pod.is_terminal and pod.metadata.uid not in self.it.node.kubelet.pods

    def _is_marked(self) -> bool:
        live = [pod for pod in self.pods().values() if not pod.is_terminal]
        return all(pod.was_admitted and pod.annotations.get(NAMES.assigned) == "true" for pod in live)

    def _phases(self) -> dict[str, object]:
        return {name: (pod.status and pod.status.phase, pod.annotations) for name, pod in self.pods().items()}

    # Doing.

    def _show_cards(self) -> None:
        self.it.write_cards(
            *(
                {"uuid": f"GPU-{index}", "memory": memory, "healthy": index not in self.bad}
                for index, memory in enumerate(SIZES)
            )
        )

    async def _start_plugin(self, *, ready: bool) -> None:
        self.plugin = await self._running.enter_async_context(self.it.plugin(ready=ready, slots=SLOTS))

    async def _announced(self) -> None:
        """Wait until kubelet knows the cards as they are."""
        slots = (len(SIZES) - len(self.bad)) * SLOTS
        await until(lambda: self.it.slots_known() == slots, what=self.it.slots_known)

    async def _gone(self, name: str) -> None:
        key = self.it.key(name)
        await until(
            lambda: name not in self.pods() and key not in self.it.node.containers,
            what=self._phases,
            deadline=10,
        )


def any_containers(draw: Sequence[tuple[int, int, str]]) -> list[C]:
    """Containers from (memory per card, slots, kind); one at least asks for memory."""
    return [
        C(name=f"c{place}", memory=memory * slots, slots=slots, kind=kind)
        for place, (memory, slots, kind) in enumerate(draw)
    ]
