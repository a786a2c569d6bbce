"""kube-scheduler's own checks of one node, before it asks an extender; pure.

The totals only: whether the amounts fit on one card is what kube-scheduler cannot see. Texts are those of
Kubernetes 1.36, since users read them in a pod's events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sandbox.apiserver.quantities import parse
from sandbox.scheduler.objects import Node, Pod

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint that stands for a cordoned node."""

Amounts = Mapping[str, Decimal]
ZERO = Decimal(0)


def requests_of(pod: Pod) -> Amounts:
    """What a pod asks of its node at its peak: the larger of start-up and run time, per resource.

    An init container runs beside the sidecars (`restartPolicy: Always`) started before it; sidecars never
    end (component-helpers `PodRequests`, 1.36).
    """
    running: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.get("initContainers") or ():
        together = _plus(running, _requests(container))
        if container.get("restartPolicy") == "Always":
            running = together
        peak = _larger(peak, together)
    for container in pod.spec.get("containers") or ():
        running = _plus(running, _requests(container))
    return _larger(peak, running)


def _requests(container: Mapping[str, Any]) -> Amounts:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {resource: parse(str(amount)).value for resource, amount in requests.items()}


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {key: one.get(key, ZERO) + other.get(key, ZERO) for key in one.keys() | other.keys()}


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {key: max(one.get(key, ZERO), other.get(key, ZERO)) for key in one.keys() | other.keys()}


def why_not(pod: Pod, *, node: Node, residents: Iterable[Pod]) -> list[str]:
    """Why the pod cannot go to the node where `residents` are; empty if it can.

    As in kube-scheduler the first check that fails speaks alone; too little room names every resource.
    """
    if node.spec.get("unschedulable") and not _tolerates(pod, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}):
        return ["node(s) were unschedulable"]
    taints = [taint for taint in node.spec.get("taints") or () if taint.get("effect") != "PreferNoSchedule"]
    if any(not _tolerates(pod, taint) for taint in taints):
        return ["node(s) had untolerated taint(s)"]
    selector = pod.spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _insufficient(pod, node=node, residents=residents)


def _insufficient(pod: Pod, *, node: Node, residents: Iterable[Pod]) -> list[str]:
    used: Amounts = {}
    count = 0
    for resident in residents:
        used = _plus(used, requests_of(resident))
        count += 1
    reasons = []
    if count + 1 > _amount(node.allocatable, "pods"):
        reasons.append("Too many pods")
    for resource, asked in requests_of(pod).items():
        # What is asked with 0 fits even where the node has too little already, or none of it.
        if asked and asked > _amount(node.allocatable, resource) - used.get(resource, ZERO):
            reasons.append(f"Insufficient {resource}")
    return reasons


def _amount(amounts: Mapping[str, str], resource: str) -> Decimal:
    return parse(str(amounts.get(resource, "0"))).value


def _tolerates(pod: Pod, taint: Mapping[str, str]) -> bool:
    """Kubernetes' `ToleratesTaint` (1.36), without its numeric operators."""
    for toleration in pod.spec.get("tolerations") or ():
        exists = toleration.get("operator") == "Exists"
        key, effect = toleration.get("key", ""), toleration.get("effect", "")
        if effect not in ("", taint.get("effect")) or (key and key != taint.get("key")):
            continue
        if exists or (key and toleration.get("value", "") == taint.get("value", "")):
            return True
    return False


def refusal_text(*, nodes: int, reasons: Iterable[Sequence[str]]) -> str:
    """kube-scheduler's sentence for a pod that fits nowhere (`FitError`, 1.36): equal reasons are counted.

    The part on preemption that may follow is left out: nothing here preempts.
    """
    if nodes == 0:
        return "no nodes available to schedule pods"
    counts = Counter(reason for node in reasons for reason in node)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{nodes} nodes are available: {listed}."
