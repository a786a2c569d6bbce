"""Versions that go together, and what an earlier gpushare left."""

from __future__ import annotations

from doctor.checks.scheduler import minor_of
from doctor.cluster import Cluster, Unseen
from doctor.findings import Verdict, counted, fail, ok, skip, some, unseen, warn
from doctor.objects import SeenContainer, Workload
from gpushare import __version__

OLDEST = 23
"""Before it kube-scheduler reads no KubeSchedulerConfiguration that has what is needed."""
CHART_SINCE = 25

_CLASSIC_NAMES = ("gpushare-schd-extender", "gpushare-device-plugin-ds")
_CLASSIC_IMAGES = ("k8s-gpushare-schd-extender", "k8s-gpushare-plugin")
"""Of the project whose resource names gpushare keeps."""


def kubernetes_version(cluster: Cluster) -> Verdict:
    """Whether the API server is one that gpushare works with."""
    minor = minor_of(cluster.version)
    if minor is None:
        return skip(
            f"API server {cluster.version or 'without a version'}: not a version that can be compared"
        )
    if minor < OLDEST:
        return warn(
            f"Kubernetes {cluster.version} is older than 1.{CHART_SINCE}, which the chart needs",
            remedy="use scheduler-policy.json (gpushare-extender scheduler-config --policy-json), or upgrade",
        )
    return ok(f"Kubernetes {cluster.version}")


def versions(cluster: Cluster) -> Verdict:
    """Whether extender, plugins and this doctor are of one version."""
    found = {each.name: each.version for each in cluster.extender.replicas if isinstance(each.version, str)}
    pods = cluster.component("device-plugin")
    images = () if isinstance(pods, Unseen) else {_image(pod.containers) for pod in pods}
    plugins = sorted({image for image in images if image})
    differing = [f"{name}: {version}" for name, version in found.items() if version != __version__]
    if len(plugins) > 1:
        return warn(
            f"device plugins of {len(plugins)} images",
            remedy="a rollout that is under way or stuck: kubectl rollout status daemonset "
            "gpushare-device-plugin",
            objects=plugins,
        )
    if differing:
        return warn(
            f"this is gpushare-doctor {__version__}, and the extender is of another version",
            remedy="run the doctor of the same version: its checks may not fit",
            objects=differing,
        )
    if not found:
        where = "extender-ready" if cluster.extender.replicas else "extender-running"
        return skip(f"the extender's version is not to be seen, see {where}")
    return ok(f"gpushare {__version__}" + (f", device plugin {some(plugins)}" if plugins else ""))


def _image(containers: tuple[SeenContainer, ...]) -> str:
    return next((each.image for each in containers if each.name == "device-plugin"), "")


def classic_components(cluster: Cluster) -> Verdict:
    """Whether parts of the classic gpushare still run beside ours."""
    deployments, daemonsets = cluster.deployments, cluster.daemonsets
    if isinstance(deployments, Unseen):
        return unseen(deployments)
    if isinstance(daemonsets, Unseen):
        return unseen(daemonsets)
    plugins = [each for each in daemonsets if _is_classic(each)]
    left = [each for each in deployments if _is_classic(each)] + plugins
    if not left:
        return ok("nothing of the classic gpushare is left")
    said = f"{counted(len(left), 'part')} of the classic gpushare still there"
    remedy = (
        "follow docs/migrate-from-gpushare.md: take the classic scheduler extender out of kube-scheduler's "
        "configuration, then delete these; never let both device plugins run on one node"
    )
    names = [each.key for each in left]
    if plugins and isinstance(cluster.daemonset, Workload) and _meet(plugins, cluster.daemonset, cluster):
        return fail(f"{said}, and its device plugin runs on our nodes", remedy=remedy, objects=names)
    return warn(said, remedy=remedy, objects=names)


def _is_classic(workload: Workload) -> bool:
    images = " ".join(each.image for each in workload.containers)
    return workload.metadata.name in _CLASSIC_NAMES or any(name in images for name in _CLASSIC_IMAGES)


def _meet(classic: list[Workload], ours: Workload, cluster: Cluster) -> bool:
    """Whether some node is selected by a classic plugin and by ours."""
    if isinstance(cluster.nodes, Unseen):
        return False
    return any(
        ours.node_selector.items() <= node.labels.items()
        and each.node_selector.items() <= node.labels.items()
        for node in cluster.nodes
        for each in classic
    )
