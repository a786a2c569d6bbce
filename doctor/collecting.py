"""Takes the snapshot: everything the doctor reads of a cluster is read here, and only read."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from doctor.cluster import (
    Answer,
    Cluster,
    ExtenderSeen,
    Replica,
    Rule,
    Told,
    Unseen,
    decides,
)
from doctor.objects import (
    ConfigMap,
    FailedCreate,
    Lease,
    RuleObject,
    RuntimeClass,
    SeenNode,
    SeenPod,
    Workload,
    missing_runtime_class,
)
from doctor.reading import Door, ProxyDoor, UrlDoor, got, listed, tried
from doctor.rights import ADMISSION_RULES
from gpushare.demand import asks_for_memory
from gpushare.names import Names
from gpushare.objects import UNDECODABLE
from gpushare.release import EXTERNAL, NAMESPACE, PAIR, PLUGIN, VIEW
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError

T = TypeVar("T")

VIEW_PORT = 39998
MOST_REPLICAS = 5
"""Extenders that are asked one by one."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_FILTER_CALLS = re.compile(
    r'^gpushare_request_duration_seconds_count\{[^}]*verb="filter"[^}]*\} ([0-9.e+]+)$', re.MULTILINE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """Which gpushare is looked at."""

    names: Names
    namespace: str | None
    """Of the release; `None`: wherever it is found, `NAMESPACE` if nowhere."""
    scheduler_name: str
    probe_namespace: str
    """Where the trial pods would be created."""
    extender_url: str | None = None
    """Of the extender's view port, where the API server's proxy does not reach it."""


async def collect(api: KubeApi, *, subject: Subject, clock: Callable[[], float] = time.time) -> Cluster:
    """Look at a cluster once. Raises `ApiError` if there is none, or it does not know who asks."""
    answer = await api.request("GET", "/version")
    version = str(_decoded(answer.checked().body).get("gitVersion", ""))
    names = subject.names
    deployments = await listed(api, "/apis/apps/v1/deployments", kind=Workload, what="deployments.apps")
    namespace = subject.namespace or _namespace_of(deployments)
    nodes, (pods, parts), daemonsets, rules, refused = await asyncio.gather(
        listed(api, "/api/v1/nodes", kind=SeenNode, what="nodes"),
        _pods(api, names=names, namespace=namespace),
        listed(api, "/apis/apps/v1/daemonsets", kind=Workload, what="daemonsets.apps"),
        _rules(api),
        _refused(api, names=names, namespace=namespace),
    )
    external = _is_external(deployments, namespace=namespace)
    lease, config, runtime_class, extender = await asyncio.gather(
        _lease(api, namespace=namespace, name=EXTERNAL if external else PAIR),
        _config(api, namespace=namespace),
        _runtime_class(api, daemonsets, namespace=namespace),
        _extender(
            names=names,
            doors=_doors(api, subject=subject, namespace=namespace, external=external, parts=parts),
            nodes=nodes,
            count=_some_wait(pods),
        ),
    )
    asks, asks_bytes = await asyncio.gather(
        tried(api, _trial_pod(names.memory, "1"), namespace=subject.probe_namespace),
        tried(api, _trial_pod(names.memory, "10Gi"), namespace=subject.probe_namespace),
    )
    return Cluster(
        names=names,
        namespace=namespace,
        scheduler_name=subject.scheduler_name,
        probe_namespace=subject.probe_namespace,
        now=clock(),
        version=version,
        nodes=nodes,
        pods=pods,
        parts=parts,
        deployments=deployments,
        daemonsets=daemonsets,
        runtime_class=runtime_class,
        refused=refused,
        config=config,
        lease=lease,
        extender=extender,
        rules=rules,
        asks=asks,
        asks_bytes=asks_bytes,
    )


Pods = tuple[SeenPod, ...] | Unseen


def _namespace_of(deployments: tuple[Workload, ...] | Unseen) -> str:
    found = () if isinstance(deployments, Unseen) else deployments
    return next((each.metadata.namespace for each in found if decides(each)), NAMESPACE)


async def _pods(api: KubeApi, *, names: Names, namespace: str) -> tuple[Pods, Pods]:
    """Pods that ask for memory, and the parts of gpushare: from one list, of which little is kept."""

    def is_part(pod: SeenPod) -> bool:
        labels = pod.metadata.labels or {}
        if pod.metadata.namespace == namespace and labels.get("app.kubernetes.io/name") == "gpushare":
            return True
        return pod.metadata.namespace == "kube-system" and labels.get("component") == "kube-scheduler"

    def asks(pod: SeenPod) -> bool:
        return asks_for_memory(pod.spec, names)

    every = await listed(
        api,
        "/api/v1/pods",
        kind=SeenPod,
        what="pods",
        keep=lambda pod: asks(pod) or is_part(pod),
        selectors={"fieldSelector": "status.phase!=Succeeded"},
    )
    if isinstance(every, Unseen):
        return every, every
    return tuple(pod for pod in every if asks(pod)), tuple(pod for pod in every if is_part(pod))


async def _rules(api: KubeApi) -> tuple[Rule, ...] | Unseen:
    rules: list[Rule] = []
    for kind in ADMISSION_RULES:
        what = f"{kind}.admissionregistration.k8s.io"
        found = await listed(api, f"{_ADMISSION}/{kind}", kind=RuleObject, what=what, keep=_is_ours)
        if isinstance(found, Unseen):
            return found
        rules += [Rule(kind=kind, found=each) for each in found]
    return tuple(rules)


def _is_ours(found: RuleObject) -> bool:
    return found.metadata.name.startswith("gpushare-")


async def _refused(api: KubeApi, *, names: Names, namespace: str) -> tuple[FailedCreate, ...] | Unseen:
    """By events: only ReplicaSets have a condition for it, and those are many and large (1.36)."""
    plugin = f"DaemonSet {namespace}/{PLUGIN}"
    ours = (names.memory, names.slot, "gpushare-pods", "gpushare-admission.svc")

    def concerns_us(event: FailedCreate) -> bool:
        said = event.message
        return event.what == plugin or bool(missing_runtime_class(said)) or any(name in said for name in ours)

    return await listed(
        api,
        "/api/v1/events",
        kind=FailedCreate,
        what="events",
        keep=concerns_us,
        selectors={"fieldSelector": "reason=FailedCreate"},
    )


async def _runtime_class(
    api: KubeApi, daemonsets: tuple[Workload, ...] | Unseen, *, namespace: str
) -> RuntimeClass | Unseen | None:
    if isinstance(daemonsets, Unseen):
        return daemonsets
    named = [
        each.runtime_class
        for each in daemonsets
        if each.key == f"{namespace}/{PLUGIN}" and each.runtime_class
    ]
    path = "/apis/node.k8s.io/v1/runtimeclasses/"
    what = "runtimeclasses.node.k8s.io"
    return await got(api, path + named[0], kind=RuntimeClass, what=what) if named else None


def _is_external(deployments: tuple[Workload, ...] | Unseen, *, namespace: str) -> bool:
    if isinstance(deployments, Unseen):
        return False
    names = {each.metadata.name for each in deployments if each.metadata.namespace == namespace}
    return EXTERNAL in names and PAIR not in names


async def _lease(api: KubeApi, *, namespace: str, name: str) -> Lease | Unseen | None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    return await got(api, path, kind=Lease, what="leases.coordination.k8s.io")


async def _config(api: KubeApi, *, namespace: str) -> ConfigMap | Unseen | None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{PAIR}"
    return await got(api, path, kind=ConfigMap, what="configmaps")


def _doors(
    api: KubeApi, *, subject: Subject, namespace: str, external: bool, parts: Pods
) -> tuple[Door, list[Door]]:
    """Of the Service and of every replica by itself: the one that works may not be the one reached."""
    if subject.extender_url is not None:
        door = UrlDoor(subject.extender_url)
        return door, [door]
    target = f"{EXTERNAL if external else PAIR}:{VIEW}"
    service = ProxyDoor(api, namespace=namespace, kind="services", target=target)
    if isinstance(parts, Unseen):
        return service, [service]
    return service, [
        ProxyDoor(api, namespace=namespace, kind="pods", target=f"{pod.metadata.name}:{VIEW_PORT}")
        for pod in _deciding(parts, namespace=namespace)[:MOST_REPLICAS]
    ]


async def _extender(
    *,
    names: Names,
    doors: tuple[Door, list[Door]],
    nodes: tuple[SeenNode, ...] | Unseen,
    count: bool,
) -> ExtenderSeen:
    service, replicas = doors
    reached = await service.get("/readyz")
    seen = tuple([await _replica(door, count=count) for door in replicas])
    ready = (
        door
        for door, each in zip(replicas, seen, strict=True)
        if isinstance(each.ready, Answer) and each.ready.status == 200
    )
    told = await _told(next(ready, service), node=_some_node(nodes, names=names))
    return ExtenderSeen(reached=reached, replicas=seen, told=told)


def _deciding(parts: tuple[SeenPod, ...], *, namespace: str) -> list[SeenPod]:
    return [
        pod
        for pod in parts
        if pod.metadata.namespace == namespace
        and (pod.metadata.labels or {}).get("app.kubernetes.io/component") in ("scheduler", "extender")
        and pod.status is not None
        and pod.status.phase == "Running"
    ]


def _some_wait(pods: Pods) -> bool:
    return not isinstance(pods, Unseen) and any(not pod.node_name for pod in pods)


async def _replica(door: Door, *, count: bool) -> Replica:
    """Ask one extender; for its metrics, megabytes in a large cluster, only where calls are to `count`."""
    ready = await door.get("/readyz")
    if isinstance(ready, Unseen):
        return Replica(name=door.name, ready=ready, version=ready, calls=ready)
    version = await door.get("/version")
    metrics = await door.get("/metrics") if count else Unseen(why="nobody waits to be scheduled")
    return Replica(
        name=door.name,
        ready=ready,
        version=_read(version, "version", lambda text: str(_decoded(text.encode())["version"])),
        calls=_read(metrics, "metrics", calls_of),
    )


def calls_of(metrics: str) -> int:
    """filter requests in Prometheus' text."""
    return int(sum(float(count) for count in _FILTER_CALLS.findall(metrics)))


async def _told(door: Door, *, node: str | None) -> Told | Unseen:
    answer = await door.get("/gpushare-scheduler/inspect" + (f"/{node}" if node else ""))

    def told(text: str) -> Told:
        decoded = _decoded(text.encode())
        return Told(resource=str(decoded["resource"]), unit=str(decoded["unit"]))

    return _read(answer, "inspect", told)


def _some_node(nodes: tuple[SeenNode, ...] | Unseen, *, names: Names) -> str | None:
    """One node is enough to be told the unit, and costs little in a cluster of thousands."""
    if isinstance(nodes, Unseen):
        return None
    return next((node.name for node in nodes if names.cards in node.annotations), None)


def _read(answer: Answer | Unseen, what: str, read: Callable[[str], T]) -> T | Unseen:
    if isinstance(answer, Unseen):
        return answer
    said = " ".join(answer.text.split())[:200]
    if answer.status != 200:
        status = f"{answer.status} " if answer.status else ""  # 0: no answer of the extender's
        return Unseen(why=f"the extender's {what} is not to be seen: {status}{said}")
    try:
        return read(answer.text)
    except (KeyError, ValueError, *UNDECODABLE):
        return Unseen(why=f"the extender's {what} cannot be read: {said}")


def _decoded(body: bytes) -> Mapping[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise ApiError(f"this is no Kubernetes API server: {error}") from error
    return decoded if isinstance(decoded, dict) else {}


def _trial_pod(resource: str, amount: str) -> Mapping[str, Any]:
    """A pod that passes the strictest Pod Security level, so that only admission of ours has a say."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "gpushare-doctor-"},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "trial",
                    "image": "registry.k8s.io/pause:3.10",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "resources": {"limits": {resource: amount, "cpu": "1m", "memory": "1Mi"}},
                }
            ],
        },
    }
