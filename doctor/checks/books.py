"""The books, by the extender's own arithmetic from nodes and pods: who is shut, what is over."""

from __future__ import annotations

from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, fail, ok, unseen, warn
from gpushare.refusals import Reason


def nodes_closed(cluster: Cluster) -> Verdict:
    """Whether nodes that share cards take pods."""
    if isinstance(cluster.views, Unseen):
        return unseen(cluster.views)
    shut = [
        f"{view.name}: {view.problem.explain()}"
        for view in cluster.views
        if view.problem is not None and view.problem.reason is not Reason.NOT_SHARED
    ]
    if shut:
        return fail(
            f"closed for GPU pods: {counted(len(shut), 'node')}",
            remedy="the reason names the pod (delete it, or repair its annotation) or what is wrong "
            "with the node",
            objects=shut,
        )
    return ok("every node that shares cards takes pods")


def cards_overcommitted(cluster: Cluster) -> Verdict:
    """Whether more is booked on a card than it has."""
    if isinstance(cluster.views, Unseen):
        return unseen(cluster.views)
    over = [
        f"{view.name} card {card.card.index}: {card.booked.memory} of {card.size.memory} {view.unit} ("
        + ", ".join(str(holding.booking.pod) for holding in card.holdings[:5])
        + ")"
        for view in cluster.views
        for card in view.cards
        if card.over_commit
    ]
    if over:
        return fail(
            f"{counted(len(over), 'card')} with more booked than there is",
            remedy="delete pods until it fits; two schedulers that bind at once, or a card that "
            "shrank, do this: one "
            "kube-scheduler at a time may ask the extender",
            objects=over,
        )
    return ok("no card has more booked than it has")


def cards_missing(cluster: Cluster) -> Verdict:
    """Whether pods hold cards that their node no longer lists."""
    if isinstance(cluster.views, Unseen):
        return unseen(cluster.views)
    gone = [
        f"{holding.booking.pod} on {view.name}: card {holding.booking.allocation.indices}"
        for view in cluster.views
        for holding in view.missing
    ]
    if gone:
        return warn(
            f"{counted(len(gone), 'booking')} on cards that the node no longer lists",
            remedy="see nvidia-smi and the plugin's log on the node (a card lost, excluded, or other "
            "MIG instances); delete the pods if the card does not come back",
            objects=gone,
        )
    return ok("every booked card is there")
