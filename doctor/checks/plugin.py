"""Does a device plugin run on every node that is to share its cards?"""

from __future__ import annotations

from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, fail, ok, skip, unseen, warn
from doctor.objects import SeenNode, SeenPod, Workload
from gpushare.bookings import Booking
from gpushare.cards import NodeCards
from gpushare.release import PLUGIN


def plugin_running(cluster: Cluster) -> Verdict:
    """Whether the DaemonSet has all its pods ready."""
    found = cluster.daemonset
    if isinstance(found, Unseen):
        return unseen(found)
    if found is None:
        return fail(
            f"no DaemonSet {PLUGIN} in namespace {cluster.namespace}",
            remedy="set devicePlugin.enabled, or name the release's namespace with --namespace",
        )
    wanted, ready = found.status.desired_number_scheduled or 0, found.status.number_ready or 0
    if not wanted:
        labelled = [] if isinstance(cluster.nodes, Unseen) else _labelled(found, cluster.nodes)
        if labelled:
            return fail(
                f"DaemonSet {found.key} has counted no node, and {counted(len(labelled), 'node')} "
                f"{'has' if len(labelled) == 1 else 'have'} {_selector(found)}",
                remedy="it has not looked at them yet (run this again), or its tolerations or affinity leave "
                "them out: compare with the nodes' taints, devicePlugin.tolerations and .affinity",
                objects=[node.name for node in labelled],
            )
        return fail(
            f"DaemonSet {found.key} finds no node with {_selector(found)}",
            remedy=f"label the nodes with GPUs: kubectl label node NODE {_selector(found)}",
        )
    made = found.status.current_number_scheduled
    if made is not None and made < wanted:
        return _not_made(found, missing=wanted - made, cluster=cluster)
    if ready < wanted:
        pods = cluster.component("device-plugin")
        troubled = () if isinstance(pods, Unseen) else tuple(pod for pod in pods if not pod.is_ready)
        return fail(
            f"DaemonSet {found.key}: {ready} of {counted(wanted, 'pod')} ready",
            remedy="kubectl logs of these pods says what they wait for: driver, kubelet, or rights; "
            "RunContainerError or no runtime: see devicePlugin.runtimeClassName",
            objects=[f"{pod.spec.node_name or pod.key}: {pod.trouble}" for pod in troubled],
        )
    said = f"DaemonSet {found.key}: {ready} of {counted(wanted, 'pod')} ready"
    elsewhere = _without_class(cluster) if found.runtime_class else 0
    if elsewhere:  # no fault: whether it is the nodes' default runtime the API server does not know
        return ok(
            f"{said}; unlike them, {counted(elsewhere, 'pod')} with a card and no runtimeClassName: right "
            f"where {found.runtime_class} is the nodes' default runtime"
        )
    return ok(said)


def _without_class(cluster: Cluster) -> int:
    """Live pods with a card that run with their node's default runtime."""
    return sum(
        isinstance(claim, Booking) and not pod.spec.runtime_class_name for pod, claim in cluster.claims
    )


def _not_made(found: Workload, *, missing: int, cluster: Cluster) -> Verdict:
    """Pods that do not exist have no log and no status."""
    said = f"DaemonSet {found.key}: for {counted(missing, 'node')} no pod could be created"
    if found.runtime_class and cluster.runtime_class is None:
        return fail(
            f"{said}, for there is no RuntimeClass {found.runtime_class}",
            remedy="have NVIDIA's GPU Operator make it, or make it yourself where NVIDIA's Container Toolkit "
            f"has set the runtime up (handler {found.runtime_class}); where NVIDIA's runtime is the nodes' "
            "default: --set devicePlugin.runtimeClassName= (empty)",
        )
    refused = () if isinstance(cluster.refused, Unseen) else cluster.refused
    return fail(
        said,
        remedy=f"kubectl -n {cluster.namespace} describe daemonset {found.metadata.name}: its events "
        "(FailedCreate) say why: Pod Security (the namespace needs the level privileged), a quota, a webhook",
        objects=sorted({each.sentence[:300] for each in refused if each.what == f"DaemonSet {found.key}"}),
    )


def plugin_on_nodes(cluster: Cluster) -> Verdict:
    """Whether the nodes with the label have a plugin's pod, and no others publish cards."""
    found = cluster.daemonset
    for part in (found, cluster.nodes, cluster.parts):
        if isinstance(part, Unseen):
            return unseen(part)
    assert not isinstance(cluster.nodes, Unseen)
    pods = cluster.component("device-plugin")
    assert not isinstance(pods, Unseen)
    if not isinstance(found, Workload):
        return skip("there is no DaemonSet, see plugin-running")
    running = {pod.node_name for pod in pods if _runs(pod)}
    labelled = _labelled(found, cluster.nodes)
    bare = [node.name for node in labelled if node.name not in running]
    if bare:
        return fail(
            f"{counted(len(bare), 'node')} with {_selector(found)} and no running plugin",
            remedy="kubectl describe daemonset and node: taints the plugin does not tolerate, or no room; "
            "devicePlugin.tolerations",
            objects=bare,
        )
    names = {node.name for node in labelled}
    strays = [name for name, cards in cluster.cards.items() if _publishes(cards) and name not in names]
    if strays:
        return warn(
            f"cards published without {_selector(found)}, where no plugin answers kubelet: "
            f"{counted(len(strays), 'node')}",
            remedy=f"label them ({_selector(found)}), or take the cards off: gpushare-device-plugin "
            "--uninstall --node-name NODE",
            objects=strays,
        )
    return ok(f"a plugin on each of {counted(len(labelled), 'node')} with {_selector(found)}")


def _publishes(cards: object) -> bool:
    return isinstance(cards, NodeCards) and bool(cards.unit)  # the classic plugin's have none


def _runs(pod: SeenPod) -> bool:
    return pod.status is not None and pod.status.phase == "Running"


def _selects(daemonset: Workload, node: SeenNode) -> bool:
    return all(node.labels.get(key) == value for key, value in daemonset.node_selector.items())


def _labelled(daemonset: Workload, nodes: tuple[SeenNode, ...]) -> list[SeenNode]:
    return [node for node in nodes if _selects(daemonset, node)]


def _selector(daemonset: Workload) -> str:
    return ",".join(f"{key}={value}" for key, value in daemonset.node_selector.items()) or "any label"


def shared_nodes(cluster: Cluster) -> list[SeenNode]:
    """Nodes that the plugin runs on, or should: those the checks of nodes are about."""
    if isinstance(cluster.nodes, Unseen):
        return []
    found = cluster.daemonset
    return [
        node
        for node in cluster.nodes
        if cluster.cards[node.name] is not None
        or (isinstance(found, Workload) and found.node_selector and _selects(found, node))
    ]
