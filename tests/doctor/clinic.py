"""A cluster with the real extender in it, for the doctor to look at through its own front door."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from doctor.checks import CHECKS
from doctor.collecting import Subject, collect
from doctor.findings import Verdict
from gpushare.release import EXTERNAL, PAIR
from kubeapi.client import KubeApi
from sandbox.apiserver.kinds import kind_of
from tests.build import NAMES
from tests.chart.rendering import NAMESPACE
from tests.doctor import snapshot
from tests.doctor.front import Front
from tests.extender.cluster import Cluster, Scheduler

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
APPS = "/apis/apps/v1"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpushare-scheduler"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
CONFIG = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpushare-scheduler"

_COUNTS = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2}


@dataclass
class Clinic:
    """The cluster, its extender, and what the doctor says of them."""

    cluster: Cluster
    scheduler: Scheduler
    front: Front
    kubeconfig: Path
    subject: Subject = field(
        default_factory=lambda: Subject(
            names=NAMES,
            namespace=NAMESPACE,
            scheduler_name="gpushare-scheduler",
            probe_namespace="default",
        )
    )

    async def examine(self, *, later: float = 0.0) -> dict[str, Verdict]:
        """Every verdict, `later` seconds from now."""
        now = datetime.now(UTC).timestamp() + later
        async with await KubeApi.connect_as_user(user_agent="doctor", kubeconfig=self.kubeconfig) as api:
            seen = await collect(api, subject=self.subject, clock=lambda: now)
        return {each.name: each.run(seen).verdict for each in CHECKS}

    def renew(self, *, later: float) -> None:
        """The active kube-scheduler goes on renewing its Lease."""
        at = datetime.fromtimestamp(datetime.now(UTC).timestamp() + later, UTC)
        spec = {"holderIdentity": "s-0_1", "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        self.front.objects[LEASE] = {"metadata": {"name": "gpushare-scheduler"}, "spec": spec}

    async def make_external(self) -> None:
        """The same cluster, whose control plane's own kube-scheduler is to ask the extender."""
        made = snapshot.chart("scheduler", mode="external").one("Deployment", EXTERNAL)
        self.front.lists[f"{APPS}/deployments"] = [made | {"status": {"readyReplicas": 2}}]
        del self.front.objects[CONFIG]
        self.front.objects[LEASE.replace(PAIR, EXTERNAL)] = self.front.objects.pop(LEASE)
        for node in ("n1", "n2"):
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/scheduler-{node}?gracePeriodSeconds=0"
            await self.cluster.request("DELETE", path)
        await _part(self, "extender-n1", component="extender", node="n1")
        container = {"name": "kube-scheduler", "image": "x", "args": ["--config=/etc/kubernetes/config.yaml"]}
        own = _named("Pod", "kube-scheduler-n1", labels={"component": "kube-scheduler"})
        own["spec"] = {"nodeName": "n1", "containers": [container]}
        await self.cluster.request("POST", "/api/v1/namespaces/kube-system/pods", own)


@contextlib.asynccontextmanager
async def open_clinic(cluster: Cluster, *, folder: Path) -> AsyncIterator[Clinic]:
    """Two nodes, the chart's objects with all replicas running, the extender behind admission."""
    front = Front(cluster.api.url)
    async with cluster.extender() as scheduler, front.serving():
        cluster.api.admission.mutating = f"{scheduler.url}/admission/mutate"
        cluster.api.admission.validating = f"{scheduler.url}/admission/validate"
        front.view = scheduler.url
        clinic = Clinic(
            cluster=cluster, scheduler=scheduler, front=front, kubeconfig=front.kubeconfig(folder)
        )
        await _install(clinic)
        clinic.renew(later=0)
        yield clinic


async def _install(clinic: Clinic) -> None:
    pair = snapshot.chart()
    deployment = pair.one("Deployment", "gpushare-scheduler") | {"status": {"readyReplicas": 2}}
    daemonset = pair.one("DaemonSet", "gpushare-device-plugin")
    lists = clinic.front.lists
    lists[f"{APPS}/deployments"] = [deployment]
    lists[f"{APPS}/daemonsets"] = [
        daemonset | {"status": _COUNTS},
    ]
    clinic.front.objects[RUNTIME] = {"metadata": {"name": "nvidia"}}
    clinic.front.objects[CONFIG] = pair.one("ConfigMap", "gpushare-scheduler")
    webhooks = snapshot.chart("admission", mode="webhook")
    for kind, plural in (
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    ):
        lists[f"{_ADMISSION}/{plural}"] = webhooks.of(kind)
    await clinic.cluster.request("POST", "/api/v1/namespaces", _named("Namespace", NAMESPACE))
    for node in ("n1", "n2"):
        await clinic.cluster.node(node, cards=[16000, 16000])
        await clinic.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"gpushare": "true"}}})
        live = await clinic.cluster.request("GET", f"/api/v1/nodes/{node}")
        status = {"status": {"allocatable": live["status"]["capacity"]}}
        await clinic.cluster.patch(f"/api/v1/nodes/{node}/status", status)
        await _part(clinic, f"plugin-{node}", component="device-plugin", node=node)
        await _part(clinic, f"scheduler-{node}", component="scheduler", node=node)
    await clinic.scheduler.seen_nodes("n1", "n2")


async def _part(clinic: Clinic, name: str, *, component: str, node: str) -> None:
    """A running pod of gpushare's own."""
    kind = "DaemonSet" if component == "device-plugin" else "Deployment"
    chart = snapshot.chart("scheduler", mode="external" if component == "extender" else "pair")
    owner = chart.one(kind, f"gpushare-{component}")["spec"]["template"]
    containers = [{"name": each["name"], "image": each["image"]} for each in owner["spec"]["containers"]]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    body = _named("Pod", name, labels=owner["metadata"]["labels"]) | {
        "spec": {"nodeName": node, "containers": containers}
    }
    await clinic.cluster.request("POST", path, body)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await clinic.cluster.patch(f"{path}/{name}/status", {"status": ready})


def _named(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    assert kind_of(f"{kind.lower()}s")
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}
