"""Is the extender there, does it answer, and does anybody ask it?"""

from __future__ import annotations

import calendar
import time

from doctor.cluster import Answer, Cluster, Replica, Unseen
from doctor.findings import Verdict, counted, fail, ok, skip, some, unseen, warn
from doctor.objects import SeenPod

STANDBY = "standby"
"""What an extender that is ready and does not lead says of itself."""

PATIENCE = 60.0
"""Seconds a pod may wait before anybody asks why."""


def extender_running(cluster: Cluster) -> Verdict:
    """Whether the Deployment of the deciding component has ready pods."""
    found = cluster.deployment
    if isinstance(found, Unseen):
        return unseen(found)
    if found is None:
        return fail(
            f"no Deployment gpushare-scheduler or gpushare-extender in namespace {cluster.namespace}",
            remedy="install the chart, or name its namespace with --namespace",
        )
    installed = cluster.installations
    if not isinstance(installed, Unseen) and len(installed) > 1:
        return fail(
            f"gpushare is installed {len(installed)} times: each gives out the same cards",
            remedy="helm uninstall all but one",
            objects=[each.key for each in installed],
        )
    wanted, ready = found.spec.replicas or 0, found.status.ready_replicas or 0
    said = f"Deployment {found.key}: {ready} of {counted(wanted, 'replica')} ready"
    if not ready:
        return fail(said, remedy=_LOOK.format(found=found.key), objects=_pods(cluster))
    if ready < wanted:
        return warn(said, remedy=_LOOK.format(found=found.key), objects=_pods(cluster))
    return ok(said)


_LOOK = (
    "see why its pods do not run: kubectl describe and kubectl logs --all-containers of the pods of {found}"
)


def _pods(cluster: Cluster) -> list[str]:
    pods = cluster.component("scheduler", "extender")
    return (
        [] if isinstance(pods, Unseen) else [f"{pod.key}: {pod.trouble}" for pod in pods if not pod.is_ready]
    )


def extender_reachable(cluster: Cluster) -> Verdict:
    """Whether the view port answers from outside, as kubectl inspect and monitoring need it."""
    reached = cluster.extender.reached
    if isinstance(reached, Unseen):
        return unseen(reached)
    if reached.status:  # 503 is the extender's own word for not being ready
        return ok("the extender's view port answers")
    return fail(
        f"the extender's view port does not answer: {_sentence(reached)}",
        remedy="see whether its pods are ready, whether --view-listen is given, and whether a NetworkPolicy "
        "(networkPolicy.viewFrom) or a firewall between the API server and the pods is in the way",
    )


def extender_ready(cluster: Cluster) -> Verdict:
    """Whether somebody would answer kube-scheduler."""
    replicas = cluster.extender.replicas
    asked = [(each, each.ready) for each in replicas if isinstance(each.ready, Answer)]
    if not asked:
        return _nobody_asked(replicas)
    ready = [each.name for each, answer in asked if answer.status == 200]
    others = [f"{each.name}: {_sentence(answer)}" for each, answer in asked if answer.status != 200]
    standing_by = [each.name for each, answer in asked if answer.status == 200 and answer.text == STANDBY]
    if not ready:
        return fail(
            "no extender is ready: kube-scheduler's calls are refused", remedy=_UNREADY, objects=others
        )
    if ready == standing_by:
        return fail("no extender leads: kube-scheduler's calls are refused", remedy=_UNREADY, objects=ready)
    if others:
        return warn(f"{counted(len(others), 'extender')} not ready", remedy=_UNREADY, objects=others)
    said = f"ready: {some(ready)}"
    return ok(said + (f"; {len(standing_by)} of them to take over" if standing_by else ""))


_UNREADY = (
    "not synced: see its log for the API server's answer (rights, network); not the leader: see the Lease; "
    "a label that cannot be written: the Role; "
    "a minute after a start this passes by itself"
)


def _nobody_asked(replicas: tuple[Replica, ...]) -> Verdict:
    if not replicas:
        return skip("no pod of the extender is running, see extender-running")
    (first, *_) = [each.ready for each in replicas if isinstance(each.ready, Unseen)]
    return unseen(first)


def extender_called(cluster: Cluster) -> Verdict:
    """Whether kube-scheduler looks at pods that ask for memory, and asks the extender about them (I1)."""
    if isinstance(cluster.pods, Unseen):
        return unseen(cluster.pods)
    ours = [pod for pod in cluster.pods if _waits(pod, cluster=cluster)]
    broken = [f"{pod.key}: {said}" for pod in ours if (said := _breakdown(pod))]
    if broken:
        return fail(
            f"kube-scheduler cannot place {counted(len(broken), 'waiting pod')}: a call of it fails",
            remedy="where it names the extender: see extender-ready, and the URL and certificates in "
            "kube-scheduler's configuration (gpushare-extender scheduler-config)",
            objects=broken,
        )
    waiting = [pod for pod in ours if age_of(pod, now=cluster.now) > PATIENCE]
    if not waiting:
        return ok("no pod waits to be scheduled")
    ignored = [pod for pod in waiting if pod.condition("PodScheduled") is None]
    if ignored:
        named = some(sorted({pod.spec.scheduler_name for pod in ignored}))
        return fail(
            f"no kube-scheduler looks at schedulerName {named}: {counted(len(ignored), 'waiting pod')}",
            remedy="see scheduler-active and scheduler-config: a running kube-scheduler must have a "
            "profile of exactly this name",
            objects=[pod.key for pod in ignored],
        )
    calls = [each.calls for each in cluster.extender.replicas]
    known = [each for each in calls if isinstance(each, int)]
    if not known:
        return unseen(next((each for each in calls if isinstance(each, Unseen)), _NO_REPLICA))
    if sum(known):
        return ok(f"{sum(known)} filter calls so far; {counted(len(waiting), 'pod')} waiting")
    # A node that passes kube-scheduler's own checks would have been asked about, or the pod be bound: see
    # pods-without-card.
    return warn(
        f"the extender was never asked: kube-scheduler's own checks turn {counted(len(waiting), 'pod')} away",
        remedy="see node-capacity, node-slots, and what the pods ask for besides",
        objects=[f"{pod.key}: {_message(pod)}" for pod in waiting],
    )


_NO_REPLICA = Unseen(why="no pod of the extender is running, see extender-running")


def _waits(pod: SeenPod, *, cluster: Cluster) -> bool:
    mine = pod.spec.scheduler_name in cluster.schedulers
    scheduled = pod.condition("PodScheduled")
    gated = scheduled is not None and scheduled.reason == "SchedulingGated"
    return mine and not pod.node_name and not pod.is_terminal and not gated


def age_of(pod: SeenPod, *, now: float) -> float:
    """Seconds since the pod was created; 0 where that cannot be read."""
    try:
        made = time.strptime(pod.metadata.creation_timestamp or "", "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return 0.0
    return now - calendar.timegm(made)


def _breakdown(pod: SeenPod) -> str:
    """What kube-scheduler failed with, other than finding no node."""
    condition = pod.condition("PodScheduled")
    return condition.message[:200] if condition is not None and condition.reason == "SchedulerError" else ""


def _message(pod: SeenPod) -> str:
    condition = pod.condition("PodScheduled")
    return condition.message[:200] if condition is not None else ""


def _sentence(answer: Answer) -> str:
    return " ".join(answer.text.split())[:200]
