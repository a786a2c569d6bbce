"""Is a kube-scheduler active, of the right version, and told to ask the extender?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import yaml

from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, fail, ok, skip, some, unseen, warn
from doctor.objects import Lease, SeenPod

STALE = 120.0
"""Seconds after which a Lease that is renewed every 2 s counts as abandoned, clocks a little apart."""

_FLAGS = "gpushare-extender scheduler-config prints the right one; helm upgrade writes it"


def scheduler_active(cluster: Cluster) -> Verdict:
    """Whether the Lease by which one replica works is held and renewed."""
    lease = cluster.lease
    if isinstance(lease, Unseen):
        return unseen(lease)
    what = "extender" if cluster.is_external else "kube-scheduler"
    if lease is None:
        return fail(
            f"no {what} has ever been active: its Lease does not exist in namespace {cluster.namespace}",
            remedy=f"see the log of the {what}: it needs a Role that lets it create leases there",
        )
    age = _age(lease, now=cluster.now)
    if age is None or not lease.spec.holder_identity:
        return fail(
            f"Lease {cluster.namespace}/{lease.metadata.name} is held by nobody",
            remedy=f"see whether a pod of the {what} is running and what it logs",
        )
    if age > STALE:
        return fail(
            f"Lease {cluster.namespace}/{lease.metadata.name} was renewed {age:.0f} s ago, by "
            f"{lease.spec.holder_identity}: no {what} is active",
            remedy=f"see whether a pod of the {what} is running and what it logs (and this machine's clock)",
        )
    return ok(f"active: {lease.spec.holder_identity}")


def _age(lease: Lease, *, now: float) -> float | None:
    try:
        renewed = datetime.fromisoformat(lease.spec.renew_time or "")
    except ValueError:
        return None
    return now - renewed.timestamp()


def scheduler_config(cluster: Cluster) -> Verdict:
    """Whether kube-scheduler is told to ask the extender, about exactly our resource, and to heed it."""
    if cluster.is_external:
        return _external_config(cluster)
    config = cluster.config
    if isinstance(config, Unseen):
        return unseen(config)
    if config is None:
        return fail(
            f"ConfigMap {cluster.namespace}/gpushare-scheduler does not exist",
            remedy="install the chart, or name its namespace with --namespace",
        )
    text = next((text for text in (config.data or {}).values() if "KubeSchedulerConfiguration" in text), "")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return fail(
            f"kube-scheduler's configuration is no YAML: {' '.join(str(error).split())[:200]}", remedy=_FLAGS
        )
    if not isinstance(document, dict) or not document:
        return fail(
            f"ConfigMap {cluster.namespace}/gpushare-scheduler holds no KubeSchedulerConfiguration",
            remedy=_FLAGS,
        )
    faults = list(_config_faults(document, cluster=cluster))
    if faults:
        return fail("kube-scheduler is told the wrong things", remedy=_FLAGS, objects=faults)
    share = document.get("percentageOfNodesToScore")
    if share != 100:
        return warn(
            f"percentageOfNodesToScore is {share}: in a large cluster kube-scheduler looks at a "
            "sample of the nodes, and the one card with room may be on none of them",
            remedy=_FLAGS,
        )
    return ok(f"profile {cluster.scheduler_name}, manages {cluster.names.memory}, not ignorable")


def _config_faults(document: Mapping[str, Any], *, cluster: Cluster) -> Iterator[str]:
    profiles = [each.get("schedulerName") for each in _mappings(document.get("profiles"))]
    if cluster.scheduler_name not in profiles:
        said = some([str(each) for each in profiles]) or "none"
        yield f"no profile is called {cluster.scheduler_name} (profiles: {said})"
    extenders = list(_mappings(document.get("extenders")))
    ours = [each for each in extenders if "gpushare" in str(each.get("urlPrefix", ""))] or extenders
    if not ours:
        yield "no extender is listed"
    for each in ours:
        managed = [item.get("name") for item in _mappings(each.get("managedResources"))]
        if managed != [cluster.names.memory]:
            said = some([str(item) for item in managed]) or "none, so that every pod is sent"
            yield f"managedResources must be exactly {cluster.names.memory} (are: {said})"
        if each.get("ignorable"):
            yield "ignorable is true: pods are bound without a card while the extender is away"
        yield from (f"{verb} is missing" for verb in ("filterVerb", "bindVerb") if not each.get(verb))


def _external_config(cluster: Cluster) -> Verdict:
    compare = (
        "compare its --config file on each control-plane node with what helm's NOTES print (helm get "
        "notes), or gpushare-extender scheduler-config --beside-default --url …"
    )
    if isinstance(cluster.parts, Unseen):
        return unseen(cluster.parts)
    schedulers = [pod for pod in cluster.parts if is_control_planes(pod)]
    if not schedulers:
        return skip("the control plane's kube-scheduler is not visible as a pod", remedy=compare)
    without = [pod.key for pod in schedulers if not _has_config(pod)]
    if without:
        return fail(
            "the control plane's kube-scheduler runs without --config, and so asks no extender",
            remedy=compare,
            objects=without,
        )
    return skip(
        "the control plane's kube-scheduler has a --config file, which cannot be read", remedy=compare
    )


def _has_config(pod: SeenPod) -> bool:
    return any(
        re.match(r"--config(=|$)", word)
        for each in pod.containers
        for text in each.words
        for word in text.split()
    )


def is_control_planes(pod: SeenPod) -> bool:
    """Whether it is the control plane's own kube-scheduler (kubeadm's label)."""
    labels = pod.metadata.labels or {}
    return pod.metadata.namespace == "kube-system" and labels.get("component") == "kube-scheduler"


def scheduler_version(cluster: Cluster) -> Verdict:
    """kube-scheduler may not be newer than the API server, nor older by more than one minor version."""
    if isinstance(cluster.parts, Unseen):
        return unseen(cluster.parts)
    server = minor_of(cluster.version)
    pods = cluster.component("scheduler")
    assert not isinstance(pods, Unseen)
    images = sorted({each.image for pod in pods for each in pod.containers if each.name == "kube-scheduler"})
    versions = {image: minor_of(image.rpartition(":")[2]) for image in images}
    known = {image: version for image, version in versions.items() if version is not None}
    if not known or server is None:
        return skip(
            "the version of the pair's kube-scheduler is not to be seen (no pod, or an image by digest)"
        )
    newer = [image for image, version in known.items() if version > server]
    if newer:
        return fail(
            f"kube-scheduler is newer than the API server ({cluster.version})",
            remedy="helm upgrade, which follows the cluster's version unless scheduler.image.tag is set",
            objects=newer,
        )
    older = [image for image, version in known.items() if version < server - 1]
    if older:
        return warn(
            f"kube-scheduler is more than one minor version older than the API server ({cluster.version})",
            remedy="helm upgrade, which follows the cluster's version unless scheduler.image.tag is set",
            objects=older,
        )
    return ok(f"{some(sorted(known))} beside an API server {cluster.version}")


def minor_of(version: str) -> int | None:
    """The minor version of `v1.36.2` or `1.30.5-gke.100`."""
    match = re.match(r"v?1\.(\d+)", version)
    return int(match[1]) if match else None


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict))
