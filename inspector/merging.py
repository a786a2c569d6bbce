"""Answers about single nodes, put together to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpushare.inspection import Inspection, ReasonCount, WaitingPod


def merged(answers: Sequence[Inspection]) -> Inspection:
    """One answer over the nodes of all; there is at least one, and no node is in two.

    The waiting pods are those of the latest answer: one that an earlier answer did not know yet has fewer
    refusals than nodes, until the next look.
    """
    latest = answers[-1]
    if len(answers) == 1:
        return latest
    told: dict[str, list[WaitingPod]] = {}
    for answer in answers:
        for pod in answer.waiting:
            told.setdefault(pod.uid, []).append(pod)
    return latest.model_copy(
        update={
            "nodes": [node for answer in answers for node in answer.nodes],
            "waiting": [_summed(pod, told[pod.uid]) for pod in latest.waiting],
        }
    )


def _summed(pod: WaitingPod, told: Sequence[WaitingPod]) -> WaitingPod:
    if any(each.reasons is None or each.fitting is None for each in told):
        return pod.model_copy(update={"reasons": None, "fitting": None})
    counts: Counter[str] = Counter()
    for each in told:
        counts.update({reason.reason: reason.nodes for reason in each.reasons or ()})
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return pod.model_copy(
        update={
            "reasons": [ReasonCount(reason=reason, nodes=nodes) for reason, nodes in ordered],
            "fitting": sum(each.fitting or 0 for each in told),
        }
    )
