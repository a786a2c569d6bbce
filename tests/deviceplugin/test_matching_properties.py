"""Random pods, orders, lags, outages and restarts: never the wrong card, and an error only with a cause.

The machine plays kubelet (serial, as the real one), the API server and a watch that lags as it likes. The
allocator under test sees them through its own edges; nothing else of it is replaced.
"""

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from deviceplugin.allocator import Allocator
from deviceplugin.errors import AllocateError
from deviceplugin.handover import DEFAULT_HANDOVER
from deviceplugin.inventory import Inventory
from deviceplugin.matching import Ask, Listed, asks_of
from deviceplugin.metrics import CallTimes
from deviceplugin.modes import Slots
from deviceplugin.podresources import KubeletSilent
from deviceplugin.pods import NodePod, NodePods, NodePodStatus
from deviceplugin.slots import slot_id
from gpushare.cards import NodeCards
from gpushare.names import VISIBLE_DEVICES
from kubeapi.errors import ApiUnreachable
from tests.deviceplugin.pods import NAMES, NODE, C, bound, card

CARDS = tuple(card(index, memory=10**6) for index in range(3))
SLOTS = frozenset(slot_id(each.uuid, number=number) for each in CARDS for number in range(64))

containers = st.lists(
    st.builds(
        C,
        name=st.just(""),
        memory=st.sampled_from([0, 2, 4]),
        slots=st.sampled_from([1, 1, 1, 2]),
        kind=st.sampled_from(["app", "app", "init", "sidecar"]),
    ),
    min_size=1,
    max_size=4,
).filter(lambda each: any(one.memory for one in each))


class Api:
    """The API server: what exists, and what has been told of it so far."""

    def __init__(self) -> None:
        self.is_up = True
        self.takes_marks = True
        self.pods: dict[str, NodePod] = {}
        self.events: list[tuple[bool, NodePod]] = []
        self.told = 0

    def put(self, pod: NodePod) -> None:
        self.pods[pod.key] = pod
        self.events.append((True, pod))

    def drop(self, pod: NodePod) -> None:
        del self.pods[pod.key]
        self.events.append((False, pod))

    def mark(self, pod: NodePod) -> None:
        now = self.pods.get(pod.key)
        if self.takes_marks and self.is_up and now is not None and now.metadata.uid == pod.metadata.uid:
            metadata = msgspec.structs.replace(
                now.metadata, annotations={**now.annotations, NAMES.assigned: "true"}
            )
            self.put(msgspec.structs.replace(now, metadata=metadata))

    def tell(self, view: NodePods, *, events: int) -> None:
        for is_put, pod in self.events[self.told : self.told + events]:
            (view.put if is_put else view.drop)(pod)
        self.told = min(len(self.events), self.told + events)

    async def read(self, *, namespace: str, name: str, timeout: float) -> NodePod | None:  # noqa: ASYNC109
        self._check()
        return self.pods.get(f"{namespace}/{name}")

    async def list(self, *, timeout: float) -> tuple[NodePod, ...]:  # noqa: ASYNC109
        self._check()
        return tuple(self.pods.values())

    def _check(self) -> None:
        if not self.is_up:
            raise ApiUnreachable("down")


class Kubelet:
    """kubelet's list and what it has recorded."""

    def __init__(self) -> None:
        self.is_up = True
        self.lists_failed_pods = False
        """As kubelets before 1.34 did."""
        self.active: dict[str, NodePod] = {}
        self.held: dict[str, dict[str, frozenset[str]]] = {}

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        if not self.is_up:
            raise KubeletSilent("down")
        return tuple(
            Listed(
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                held={
                    ask.container: held
                    for ask in asks_of(pod, resource=NAMES.slot)
                    if ask.listed and (held := self.held.get(uid, {}).get(ask.container))
                },
            )
            for uid, pod in self.active.items()
        )

    def free(self) -> frozenset[str]:
        return SLOTS.difference(*(ids for held in self.held.values() for ids in held.values()))

    def forget(self, uid: str) -> None:
        self.active.pop(uid, None)
        self.held.pop(uid, None)


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.api = Api()
        self.kubelet = Kubelet()
        self.uids = itertools.count()
        self.waiting: list[NodePod] = []
        self.start_plugin()

    def teardown(self) -> None:
        self.runner.close()

    def start_plugin(self) -> None:
        inventory = Inventory()
        inventory.set(NodeCards(unit="MiB", slots=64, cards=CARDS))
        self.view = NodePods(changed=lambda: None, gone=lambda uid: self.plugin.forget(uid))
        self.plugin = Allocator(
            node=NODE,
            mode=Slots(names=NAMES, slots=64),
            inventory=inventory,
            view=self.view,
            is_synced=lambda: True,
            reader=self.api,
            kubelet=self.kubelet,
            answered=self.api.mark,
            times=CallTimes(node=NODE),
            hand_over=lambda found: DEFAULT_HANDOVER.response(
                found.answer, pod=found.pod, container=found.container, device_nodes=lambda uuid: ()
            ),
        )

    @rule(name=st.sampled_from("abcd"), shape=containers, cards=st.permutations(CARDS), marked=st.booleans())
    def bind(self, name: str, shape: list[C], cards: list, marked: bool) -> None:  # type: ignore[type-arg]  # noqa: FBT001
        if f"default/{name}" in self.api.pods:
            return
        named = [
            C(name=f"c{place}", memory=each.memory, slots=each.slots, kind=each.kind)
            for place, each in enumerate(shape)
        ]
        most = max(each.slots for each in named if each.memory)
        pod = bound(name, *named, cards=cards[:most], uid=f"uid-{next(self.uids)}")
        self.api.takes_marks = marked
        self.api.put(pod)
        self.waiting.append(pod)

    @rule(events=st.integers(min_value=1, max_value=6))
    def tell(self, events: int) -> None:
        if self.api.is_up:
            self.api.tell(self.view, events=events)

    @rule(data=st.data(), crash=st.booleans())
    @precondition(lambda self: self.waiting)
    def admit(self, data: st.DataObject, crash: bool) -> None:  # noqa: FBT001
        """kubelet takes on any pod; it may crash after an answer, before it has written that down."""
        pod = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(pod)
        if pod.key not in self.api.pods or self.api.pods[pod.key].metadata.uid != pod.metadata.uid:
            return  # deleted before kubelet looked
        uid = pod.metadata.uid
        self.kubelet.active[uid] = pod
        reusable: set[str] = set()
        for ask in asks_of(pod, resource=NAMES.slot):
            try:
                ids = self.ask(data, pod=pod, ask=ask, reusable=reusable)
                if crash:
                    crash = False
                    ids = self.ask(data, pod=pod, ask=ask, reusable=reusable)
            except AllocateError as error:
                self.check_cause(error)
                self.finish(pod, phase="Failed")
                return
            self.kubelet.held.setdefault(uid, {})[ask.container] = ids
            reusable = reusable - ids if ask.listed else reusable | ids
        self.finish(pod, phase="Running")

    def ask(self, data: st.DataObject, *, pod: NodePod, ask: Ask, reusable: set[str]) -> frozenset[str]:
        chosen = sorted(reusable)[: ask.size]
        if len(chosen) < ask.size:
            offered = [*sorted(self.kubelet.free()), *chosen]
            preferred = self.runner.run(
                self.plugin.prefer(available=offered, must_include=chosen, size=ask.size)
            )
            assert set(chosen) <= set(preferred)
            assert len(set(preferred)) == ask.size
            chosen = list(preferred)
        answer = self.runner.run(self.plugin.allocate(chosen))
        assert answer.envs[VISIBLE_DEVICES].split(",") == self.right_cards(pod, ask=ask)
        return frozenset(chosen)

    def right_cards(self, pod: NodePod, *, ask: Ask) -> Sequence[str]:
        written = msgspec.json.decode(pod.annotations[NAMES.allocation])
        return [each["uuid"] for each in written["cards"]][: ask.size]

    def check_cause(self, error: AllocateError) -> None:
        """With kubelet and the API server in reach every pod gets its card, however far the watch lags."""
        assert not (self.api.is_up and self.kubelet.is_up), error

    def finish(self, pod: NodePod, *, phase: str) -> None:
        if phase == "Failed":
            self.kubelet.held.pop(pod.metadata.uid, None)
            if not self.kubelet.lists_failed_pods:
                self.kubelet.forget(pod.metadata.uid)
        now = self.api.pods[pod.key]
        self.api.put(msgspec.structs.replace(now, status=NodePodStatus(phase=phase)))

    @rule(data=st.data())
    @precondition(lambda self: self.api.pods)
    def delete(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.api.pods.values(), key=lambda each: each.key)))
        self.kubelet.forget(pod.metadata.uid)
        self.api.drop(pod)

    @rule()
    def restart_plugin(self) -> None:
        self.start_plugin()
        for pod in self.api.pods.values():
            self.view.put(pod)
        self.api.told = len(self.api.events)

    @rule(api=st.booleans(), kubelet=st.booleans(), failed=st.booleans())
    def weather(self, api: bool, kubelet: bool, failed: bool) -> None:  # noqa: FBT001
        self.api.is_up, self.kubelet.is_up, self.kubelet.lists_failed_pods = api, kubelet, failed


TestNode = pytest.mark.timeout(60)(Node.TestCase)
TestNode.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
