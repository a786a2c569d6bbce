"""Workloads whose pods are never created, which no list of pods shows."""

from __future__ import annotations

from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, ok, unseen, warn
from doctor.objects import FailedCreate
from gpushare.release import PLUGIN

FRESH = 1800.0
"""Seconds that a refusal counts. Controllers try again within 17 minutes at most, and their events' count may
lag five more (workqueue's limit, and the recorder's of 25 events for an object and one in 300 s, 1.36)."""


def workloads_refused(cluster: Cluster) -> Verdict:
    """Whether pods that ask for memory are refused when their ReplicaSet, Job or StatefulSet makes them."""
    if isinstance(cluster.refused, Unseen):
        return unseen(cluster.refused)
    found = [
        f"{each.what}, {max(0.0, age) / 60:.0f} min ago: {each.sentence[:300]}"
        for each in _newest(cluster.refused)
        if each.what != f"DaemonSet {cluster.namespace}/{PLUGIN}"  # see plugin-running
        and (age := cluster.now - each.at) <= FRESH
    ]
    if found:
        return warn(
            f"no pods, since they are refused: {counted(len(found), 'workload')}",
            remedy="correct the pod template as the sentence says (a RuntimeClass that the template does not "
            "name: see admission-slot); half an hour after the last refusal this passes",
            objects=found,
        )
    return ok("no workload's pods were refused of late")


def _newest(events: tuple[FailedCreate, ...]) -> list[FailedCreate]:
    """One for each object: a StatefulSet has one for every pod that it tries to make."""
    newest = {each.what: each for each in sorted(events, key=lambda each: each.at)}
    return [newest[what] for what in sorted(newest)]
