"""What nodes publish: cards, capacities, units; and who else hands out the same cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from doctor.checks.plugin import shared_nodes
from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, fail, ok, skip, some, unseen, warn
from doctor.objects import SeenNode
from gpushare.cards import UNLIMITED_SLOTS, NodeCards
from gpushare.errors import CardsError, QuantityError
from gpushare.quantities import parse_units
from gpushare.rivals import rivals_of

_NO_NODES = "no node shares cards, or is labelled to: see plugin-running"


def node_cards(cluster: Cluster) -> Verdict:
    """Whether the cards are published and can be read."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    nodes = shared_nodes(cluster)
    if not nodes:
        return skip(_NO_NODES)
    faults = [f"{node.name}: {fault}" for node in nodes if (fault := _cards_fault(node, cluster=cluster))]
    if faults:
        return fail(
            f"{counted(len(faults), 'node')} without readable cards",
            remedy="kubectl logs of the device plugin there: driver, MIG without instances, "
            "--exclude, rights. An "
            "unreadable annotation is written again when the plugin restarts",
            objects=faults,
        )
    cards = [each for node in nodes if isinstance(each := cluster.cards[node.name], NodeCards)]
    return ok(f"{counted(sum(len(each.cards) for each in cards), 'card')} on {counted(len(nodes), 'node')}")


def _cards_fault(node: SeenNode, *, cluster: Cluster) -> str:
    cards = cluster.cards[node.name]
    if isinstance(cards, CardsError):
        return f"{cluster.names.cards} cannot be read: {cards}"
    if cards is None:
        return f"publishes no {cluster.names.cards}"
    return "" if cards.cards else "publishes no card"


def node_capacity(cluster: Cluster) -> Verdict:
    """Whether memory and number of cards stand in the node's capacity and are allocatable."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    nodes = [node for node in shared_nodes(cluster) if _readable(node, cluster=cluster)]
    if not nodes:
        return skip(_NO_NODES)
    faults = [(node.name, fault) for node in nodes for fault in _capacity_faults(node, cluster=cluster)]
    if faults:
        return fail(
            f"capacities that do not fit the cards: {counted(len({node for node, _ in faults}), 'node')}",
            remedy="the plugin writes them within seconds and kubelet follows within 10 s: look "
            "again, then at the "
            "plugin's log (right to patch nodes/status) and at kubelet's",
            objects=[f"{node}: {fault}" for node, fault in faults],
        )
    return ok(
        f"{cluster.names.memory} and {cluster.names.count} of {counted(len(nodes), 'node')} agree "
        "with the cards"
    )


def _capacity_faults(node: SeenNode, *, cluster: Cluster) -> Iterator[str]:
    names, cards = cluster.names, cluster.cards[node.name]
    assert isinstance(cards, NodeCards)
    count, memory = _units(node, names.count), _units(node, names.memory)
    if count != len(cards.cards):
        yield f"{names.count} is {_said(count)}, and {len(cards.cards)} cards are published"
    healthy = sum(card.memory for card in cards.cards if card.healthy)
    classic = not cards.unit  # an even split of the total: what is left over is nobody's
    if memory is None or (not classic and memory < healthy):
        yield f"{names.memory} is {_said(memory)}, and healthy cards have {healthy}"
    elif memory and _units(node, names.memory, allocatable=True) is None:
        yield f"{names.memory} is {memory} and not allocatable"


def node_slots(cluster: Cluster) -> Verdict:
    """Whether kubelet has the plugin's devices: without them it refuses every pod."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    nodes = [node for node in shared_nodes(cluster) if _readable(node, cluster=cluster)]
    if not nodes:
        return skip(_NO_NODES)
    gone = [name for node in nodes if (name := _deviceless(node, cluster=cluster))]
    if gone:
        return fail(
            f"kubelet of {counted(len(gone), 'node')} has no device of the plugin's",
            remedy="see whether the plugin runs there and is registered (its /readyz, metrics, log); "
            "folders of kubelet: devicePlugin.kubeletDir",
            objects=gone,
        )
    return ok(f"kubelet of {counted(len(nodes), 'node')} has the plugin's devices")


def _deviceless(node: SeenNode, *, cluster: Cluster) -> str:
    cards = cluster.cards[node.name]
    assert isinstance(cards, NodeCards)
    if not any(card.healthy for card in cards.cards):
        return ""  # see cards-healthy
    resource = cluster.names.memory if cards.slots == UNLIMITED_SLOTS else cluster.names.slot
    left = _units(node, resource, allocatable=True)
    return "" if left else f"{node.name}: allocatable {resource} is {_said(left)}"


def cards_healthy(cluster: Cluster) -> Verdict:
    """Whether every card takes pods."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    sick = [
        f"{name} card {card.index}: {card.reason or 'not healthy'}"
        for name, cards in cluster.cards.items()
        if isinstance(cards, NodeCards)
        for card in cards.cards
        if not card.healthy
    ]
    if sick:
        return warn(
            f"{counted(len(sick), 'card')} not healthy: no new pods there, those on it run on",
            remedy="nvidia-smi and the kernel's log (Xid) on the node; the card is back after three "
            "good probes",
            objects=sick,
        )
    return ok("every card is healthy")


def unit(cluster: Cluster) -> Verdict:
    """Whether everybody counts the same resource in the same unit."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    by_unit = defaultdict(list)
    for name, cards in cluster.cards.items():
        if isinstance(cards, NodeCards) and cards.unit:
            by_unit[cards.unit].append(name)
    told = cluster.extender.told
    if not isinstance(told, Unseen):
        if told.resource != cluster.names.memory:
            return fail(
                f"the extender counts {told.resource}, the doctor was asked about {cluster.names.memory}",
                remedy=f"give the doctor --resource {told.resource}, or the release resource.memory",
            )
        others = {unit: names for unit, names in by_unit.items() if unit != told.unit}
        if others:
            names = [f"{name}: {unit}" for unit, names in others.items() for name in names]
            return fail(
                f"another unit than the extender's ({told.unit}), and so no pods: "
                f"{counted(len(names), 'node')}",
                remedy="give all programs one resource.unit (helm upgrade) and restart the device plugin",
                objects=names,
            )
    if len(by_unit) > 1:
        return fail(
            f"nodes count in {' and '.join(sorted(by_unit))}",
            remedy="give all programs one resource.unit (helm upgrade) and restart the device plugin",
            objects=[f"{name}: {unit}" for unit, names in by_unit.items() for name in names],
        )
    if isinstance(told, Unseen):
        return skip(
            f"the extender's unit is not known ({told.why}); nodes count {some(sorted(by_unit)) or 'nothing'}"
        )
    return ok(f"{told.resource} counts {told.unit} everywhere")


def rival_plugins(cluster: Cluster) -> Verdict:
    """Whether NVIDIA's own plugin hands out the same cards."""
    if isinstance(cluster.nodes, Unseen):
        return unseen(cluster.nodes)
    found = [
        f"{node.name}: {', '.join(f'{name} {count}' for name, count in sorted(rivals.items()))}"
        for node in shared_nodes(cluster)
        if (rivals := rivals_of(node))
    ]
    if found:
        return fail(
            f"the same cards are also announced whole, and handed out twice: {counted(len(found), 'node')}",
            remedy="keep the two device plugins on different nodes, by the node selectors of their "
            "DaemonSets",
            objects=found,
        )
    return ok("nobody else announces these cards")


def _readable(node: SeenNode, *, cluster: Cluster) -> bool:
    cards = cluster.cards[node.name]
    return isinstance(cards, NodeCards) and bool(cards.cards)


def _units(node: SeenNode, resource: str, *, allocatable: bool = False) -> int | None:
    amounts = node.allocatable if allocatable else node.capacity
    try:
        return parse_units(str(amounts[resource])) if resource in amounts else None
    except QuantityError:
        return None


def _said(amount: int | None) -> str:
    return "missing" if amount is None else str(amount)
