"""Pods that ask for memory: who schedules them, and what cards they have."""

from __future__ import annotations

from doctor.checks.extender import PATIENCE, age_of
from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, fail, ok, unseen, warn
from doctor.objects import SeenPod
from gpushare.bookings import Booking, Unread, Unreadable

SLOW = 120.0
"""Seconds that kubelet and the plugin may take, image pulls not included: cards are given before."""


def pods_scheduler(cluster: Cluster) -> Verdict:
    """Whether pods without a node name a scheduler that asks the extender."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    lost = [
        pod for pod in cluster.pods if not pod.node_name and not pod.is_terminal and _elsewhere(pod, cluster)
    ]
    if not lost:
        return ok("every waiting pod names the scheduler that asks the extender")
    found = [f"{pod.key}: schedulerName {pod.spec.scheduler_name}" for pod in lost]
    said = f"waiting for a scheduler that knows no cards: {counted(len(lost), 'pod')}"
    name = f"schedulerName {cluster.scheduler_name} (a pod's cannot be changed: delete and create)"
    if cluster.is_external:  # another profile of the same kube-scheduler also asks
        return warn(said, remedy=f"have pods name no scheduler, or {name}", objects=found)
    return fail(said, remedy=f"have pods name {name}, or set admission.setSchedulerName", objects=found)


def pods_without_card(cluster: Cluster) -> Verdict:
    """Whether live pods on nodes have been given a card (I1)."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    found = [
        f"{pod.key} on {pod.node_name}: {_why(pod, cluster)}"
        for pod, claim in cluster.claims
        if isinstance(claim, Unreadable) and claim.state is Unread.NO_ALLOCATION
    ]
    if found:
        return fail(
            f"on a node without a card, past the extender: {counted(len(found), 'pod')}",
            remedy="delete them, and have what makes them name the GPU scheduler and no node; until "
            "then their nodes take no GPU pods",
            objects=found,
        )
    return ok("every pod on a node has its card")


def _why(pod: SeenPod, cluster: Cluster) -> str:
    if _elsewhere(pod, cluster):
        return f"bound by {pod.spec.scheduler_name}, which does not ask the extender"
    # kubelet marks a pod as scheduled that nobody has scheduled: which of these it was cannot be seen (1.36).
    return (
        "its manifest names the node, or kube-scheduler bound it without the extender (see "
        "scheduler-config), "
        "or its annotations were removed"
    )


def pods_unreadable(cluster: Cluster) -> Verdict:
    """Whether what is written on pods can be read."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    found = [
        f"{claim.pod} on {claim.node}: {claim.problem}"
        for _, claim in cluster.claims
        if isinstance(claim, Unreadable) and claim.state is not Unread.NO_ALLOCATION
    ]
    if found:
        return fail(
            f"card not readable, which closes the node: {counted(len(found), 'pod')}",
            remedy="delete these pods; find who changes the annotations (only the extender and the "
            "device plugin may)",
            objects=found,
        )
    return ok("every card allocation can be read")


def pods_waiting_for_kubelet(cluster: Cluster) -> Verdict:
    """Whether kubelet has asked for the cards that were given."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    slow = [
        f"{claim.pod} on {claim.node}: for {cluster.now - claim.assumed:.0f} s"
        for pod, claim in cluster.claims
        if isinstance(claim, Booking)
        and not claim.assigned
        and claim.assumed is not None
        and cluster.now - claim.assumed > SLOW
        and (pod.status is None or pod.status.phase == "Pending")
    ]
    if slow:
        return warn(
            f"given a card and not taken up by kubelet: {counted(len(slow), 'pod')}",
            remedy="see whether the nodes are Ready and the plugin's and kubelet's logs there",
            objects=slow,
        )
    return ok("no pod waits for its kubelet")


def pods_refused_by_kubelet(cluster: Cluster) -> Verdict:
    """Whether kubelet, or the plugin, turned pods away."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    found = [
        f"{pod.key} on {pod.node_name}: {' '.join(pod.status.message.split())[:200]}"
        for pod in cluster.pods
        if pod.status is not None and pod.status.reason == "UnexpectedAdmissionError"
    ]
    if found:
        return warn(
            f"refused on the node (UnexpectedAdmissionError): {counted(len(found), 'pod')}",
            remedy="the message says why, docs/device-plugin.md what to do; the pods themselves can "
            "be deleted",
            objects=found,
        )
    return ok("no pod was refused on its node")


def pods_waiting_for_room(cluster: Cluster) -> Verdict:
    """Pods of ours that find no room: nothing is broken, and somebody should know."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    waiting = [
        f"{pod.key}: {condition.message[:300]}"
        for pod in cluster.pods
        if not pod.node_name
        and not pod.is_terminal
        and age_of(pod, now=cluster.now) > PATIENCE
        and (condition := pod.condition("PodScheduled"))
        and condition.reason == "Unschedulable"
    ]
    if waiting:
        return warn(
            f"no room: {counted(len(waiting), 'pod')}",
            remedy="the reasons are explained in docs/extender.md; kubectl inspect gpushare shows "
            "what is free",
            objects=waiting,
        )
    return ok("no pod waits for room")


def _elsewhere(pod: SeenPod, cluster: Cluster) -> bool:
    return pod.spec.scheduler_name not in cluster.schedulers
