"""What the extender knows of the cluster: the ledger, and the pods that wait for a card.

Two reflectors feed it. Everything here is owned by one event loop, and no method awaits: between choosing
a card and reserving it nothing else can run.
"""

from __future__ import annotations

from collections.abc import Callable

from gpushare.bookings import PodRef
from gpushare.demand import asks_for_memory
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.nominations import Nominations
from gpushare.objects import Node, Pod


class ClusterState:
    """The ledger, the waiting pods, and the nodes that some of them are nominated to."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.doubtful: Callable[[list[PodRef]], None] = lambda pods: None
        """Told of pods that may have gone unseen, whenever a whole list leaves that open."""
        self.waiting: dict[str, Pod] = {}
        """Unbound pods that ask for the memory resource, by UID."""
        self.nominations = Nominations(
            names=ledger.names, is_placed=lambda uid: ledger.claim(uid) is not None
        )
        self.pods = PodFeed(self)
        self.nodes = NodeFeed(self)

    @property
    def names(self) -> Names:
        return self.ledger.names


class PodFeed:
    """Where the pods' reflector writes (a `kubeapi.reflector.View`)."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._listed: set[str] = set()
        self._since = 0

    def begin(self) -> None:
        self._listed = set()
        self._since = self._state.ledger.mark()

    def put(self, pod: Pod) -> None:
        self._listed.add(pod.metadata.uid)
        self._state.ledger.set_pod(pod)
        unbound = not pod.node_name and not pod.is_terminal
        if unbound and asks_for_memory(pod.spec, self._state.names):
            self._state.waiting[pod.metadata.uid] = pod
            self._state.nominations.put(pod)
        else:
            self._placed(pod.metadata.uid)

    def end(self) -> None:
        doubtful = self._state.ledger.retain_pods(self._listed, since=self._since)
        for uid in self._state.waiting.keys() - self._listed:
            self._placed(uid)
        self._listed = set()
        self._state.doubtful(doubtful)

    def drop(self, pod: Pod) -> None:
        self._state.ledger.remove_pod(pod.metadata.uid)
        self._placed(pod.metadata.uid)

    def _placed(self, uid: str) -> None:
        """The pod waits no more, whatever the reason."""
        self._state.waiting.pop(uid, None)
        self._state.nominations.drop(uid)


class NodeFeed:
    """Where the nodes' reflector writes (a `kubeapi.reflector.View`)."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._listed: set[str] = set()

    def begin(self) -> None:
        self._listed = set()

    def put(self, node: Node) -> None:
        self._listed.add(node.name)
        self._state.ledger.set_node(node)

    def end(self) -> None:
        self._state.ledger.retain_nodes(self._listed)
        self._listed = set()

    def drop(self, node: Node) -> None:
        self._state.ledger.remove_node(node.name)
