"""A cluster in which all is well, as the doctor would have seen it, and ways to break a part of it.

What the chart installs is the chart's own text, so that a name that changes there fails here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from doctor.checks import CHECKS
from doctor.cluster import Admitted, Answer, Cluster, ExtenderSeen, Refused, Replica, Rule, Told
from doctor.findings import Verdict
from doctor.objects import (
    ConfigMap,
    FailedCreate,
    Lease,
    RuleObject,
    RuntimeClass,
    SeenNode,
    SeenPod,
    Workload,
)
from gpushare import __version__
from gpushare.cards import Card
from gpushare.objects import Pod
from tests import build
from tests.build import NAMES
from tests.chart.rendering import NAMESPACE, Release, render

T = TypeVar("T")

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BEFORE = "2026-01-01T11:00:00Z"
"""An hour ago."""

Object = Mapping[str, Any]


@functools.cache
def chart(part: str = "scheduler", *, mode: str = "pair") -> Release:
    """What the chart installs with one of its modes set."""
    return render({part: {"mode": mode}})


def decoded(kind: type[T], obj: object) -> T:
    return msgspec.convert(obj, type=kind, strict=False)


def node(
    name: str = "n1",
    *,
    cards: Sequence[int | Card] = (16000, 16000),
    capacity: Mapping[str, str | None] | None = None,
    allocatable: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    **options: Any,
) -> SeenNode:
    """A node with a plugin; what is given as `None` is taken away."""
    made = build.wire(build.node(name, cards=cards, **options))
    capacities = _with(made["status"]["capacity"], capacity)
    return decoded(
        SeenNode,
        {
            "metadata": made["metadata"]
            | {
                "labels": {"gpushare": "true"} if labels is None else labels,
                "annotations": _with(made["metadata"]["annotations"] or {}, annotations),
            },
            "status": {
                "capacity": capacities,
                "allocatable": _with(capacities, allocatable),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )


def _with(values: Mapping[str, Any], changes: Mapping[str, Any] | None) -> dict[str, Any]:
    merged = {**values, **(changes or {})}
    return {key: value for key, value in merged.items() if value is not None}


def pod(
    name: str = "a",
    *,
    scheduler: str = "gpushare-scheduler",
    scheduled: tuple[str, str, str] | None = None,
    reason: str = "",
    message: str = "",
    created: str = BEFORE,
    **options: Any,
) -> SeenPod:
    """As `tests.build.pod`; `scheduled` is status, reason and message of the condition PodScheduled."""
    options.setdefault("memory", 4000)
    return seen(
        build.pod(name, created=created, **options),
        scheduler=scheduler,
        scheduled=scheduled,
        reason=reason,
        message=message,
    )


def seen(
    made: Pod,
    *,
    scheduler: str = "gpushare-scheduler",
    scheduled: tuple[str, str, str] | None = None,
    reason: str = "",
    message: str = "",
) -> SeenPod:
    obj = msgspec.to_builtins(made)
    obj["spec"]["schedulerName"] = scheduler
    status = obj.get("status") or {}
    obj["status"] = status | {"reason": reason, "message": message}
    if scheduled is not None:
        keys = ("status", "reason", "message")
        obj["status"]["conditions"] = [
            {"type": "PodScheduled", **dict(zip(keys, scheduled, strict=True))},
        ]
    return decoded(SeenPod, obj)


def part(
    name: str,
    *,
    component: str,
    node: str = "n1",
    image: str = "gpushare:0.1.0",
    container: str = "device-plugin",
    ready: bool = True,
    waiting: str = "",
    labels: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
    args: Sequence[str] = (),
) -> SeenPod:
    """A pod of gpushare's own."""
    states = [{"name": container, "state": {"waiting": {"reason": waiting}}}] if waiting else []
    return decoded(
        SeenPod,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels or {"app.kubernetes.io/component": component},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": container, "image": image, "args": list(args)}],
            },
            "status": {
                "phase": "Running" if ready else "Pending",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": states,
            },
        },
    )


def replica(
    name: str = "s-0", *, ready: Answer | None = None, calls: int = 7, version: str = __version__
) -> Replica:
    return Replica(
        name=name,
        ready=ready or Answer(status=200, text="ok"),
        version=version,
        calls=calls,
    )


def lease(name: str = "gpushare-scheduler", *, renewed: str = "2026-01-01T11:59:58.123456Z") -> Lease:
    spec = {"holderIdentity": "s-0_1", "renewTime": renewed}
    return decoded(Lease, {"metadata": {"name": name}, "spec": spec})


def rules(mode: str = "policy") -> tuple[Rule, ...]:
    """The admission objects that the chart installs in this mode."""
    release = chart("admission", mode=mode)
    kinds = {
        "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
        "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
        "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    }
    return tuple(
        Rule(kind=kinds[each["kind"]], found=decoded(RuleObject, each))
        for each in release.objects
        if each["kind"] in kinds
    )


def admitted(
    *, slots: str | None = "1", scheduler: str = "gpushare-scheduler", memory: str = "1"
) -> Admitted:
    limits = {NAMES.memory: memory} | ({NAMES.slot: slots} if slots else {})
    return Admitted(
        pod={"spec": {"schedulerName": scheduler, "containers": [{"resources": {"limits": limits}}]}}
    )


def deployment(*, external: bool = False, ready: int = 2) -> Workload:
    mode, name = ("external", "gpushare-extender") if external else ("pair", "gpushare-scheduler")
    made = chart("scheduler", mode=mode).one("Deployment", name)
    return decoded(Workload, made | {"status": {"readyReplicas": ready}})


def daemonset(*, wanted: int = 2, ready: int = 2, made: int | None = None) -> Workload:
    """The chart's, of whose pods so many are there (all of them) and are ready."""
    owner = chart().one("DaemonSet", "gpushare-device-plugin")
    counts = {"desiredNumberScheduled": wanted, "numberReady": ready}
    status = counts | {"currentNumberScheduled": wanted if made is None else made}
    return decoded(Workload, owner | {"status": status})


def refusal(
    what: str = "ReplicaSet default/web-1",
    *,
    at: str = "2026-01-01T11:58:00Z",
    message: str = "pods \"web-1-\" is forbidden: ValidatingAdmissionPolicy 'gpushare-pods' with "
    "binding 'gpushare-pods' denied request: container 'main': aliyun.com/gpu-mem: '10Gi' counts MiB",
) -> FailedCreate:
    """An event of the controller that makes the pods."""
    kind, _, key = what.partition(" ")
    namespace, _, name = key.partition("/")
    involved = {"kind": kind, "namespace": namespace, "name": name}
    return decoded(FailedCreate, {"involvedObject": involved, "message": message, "lastTimestamp": at})


def classic(name: str, *, image: str, selector: Mapping[str, str] | None = None) -> Workload:
    spec = {"containers": [{"name": "x", "image": image}], "nodeSelector": dict(selector or {})}
    return decoded(
        Workload,
        {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"template": {"spec": spec}}},
    )


def config(*changes: tuple[str, str]) -> ConfigMap:
    """The chart's, with parts of its text replaced."""
    made = decoded(ConfigMap, chart().one("ConfigMap", "gpushare-scheduler"))
    text = (made.data or {})["config.yaml"]
    for before, after in changes:
        assert before in text, f"{before!r} is not in the chart's configuration"
        text = text.replace(before, after)
    return ConfigMap(metadata=made.metadata, data={"config.yaml": text})


@functools.cache
def healthy() -> Cluster:
    """Two nodes of two cards, a pod on one of them, the chart's pair."""
    scheduler = functools.partial(
        part,
        component="scheduler",
        image="registry.k8s.io/kube-scheduler:v1.36.2",
        container="kube-scheduler",
    )
    return Cluster(
        names=NAMES,
        namespace=NAMESPACE,
        scheduler_name="gpushare-scheduler",
        probe_namespace="default",
        now=NOW.timestamp(),
        version="v1.36.2",
        nodes=(node("n1"), node("n2")),
        pods=(pod("a", on="n1", cards=[0], phase="Running"),),
        parts=(
            scheduler("s-0"),
            scheduler("s-1", node="n2"),
            part("p-1", component="device-plugin"),
            part("p-2", component="device-plugin", node="n2"),
        ),
        deployments=(deployment(),),
        daemonsets=(daemonset(),),
        runtime_class=decoded(RuntimeClass, {"metadata": {"name": "nvidia"}}),
        refused=(),
        config=config(),
        lease=lease(),
        extender=ExtenderSeen(
            reached=Answer(status=200, text="ok"),
            replicas=(replica("s-0"), replica("s-1")),
            told=Told(resource=NAMES.memory, unit="MiB"),
        ),
        rules=rules(),
        asks=admitted(),
        asks_bytes=Refused(status=422, message="'10Gi' counts MiB: did you mean 10240?"),
    )


def external(**changes: Any) -> Cluster:
    """The same, with the extender behind a Service for the control plane's own kube-scheduler."""
    own = part(
        "kube-scheduler-cp",
        component="",
        namespace="kube-system",
        labels={"component": "kube-scheduler"},
        container="kube-scheduler",
        args=["--config=/etc/kubernetes/gpushare/config.yaml"],
    )
    standby = Answer(status=200, text="standby")
    seen_extender = replace(
        healthy().extender, replicas=(replica("e-0"), replica("e-1", ready=standby, calls=0))
    )
    made = replace(
        healthy(),
        pods=(pod("a", on="n1", cards=[0], phase="Running", scheduler="default-scheduler"),),
        asks=admitted(scheduler="default-scheduler"),
        deployments=(deployment(external=True),),
        lease=lease("gpushare-extender"),
        config=None,
        extender=seen_extender,
        parts=(
            own,
            *(part(name, component="extender", container="extender") for name in ("e-0", "e-1")),
            part("p-1", component="device-plugin"),
            part("p-2", component="device-plugin", node="n2"),
        ),
    )
    return replace(made, **changes)


def broken(**changes: Any) -> Cluster:
    """`healthy`, with other parts."""
    return replace(healthy(), **changes)


def verdict(check: str, cluster: Cluster) -> Verdict:
    """What one check says."""
    (found,) = [each for each in CHECKS if each.name == check]
    return found.run(cluster).verdict
