"""The chart's mode external: the control plane's own kube-scheduler, and extenders behind a Service.

Kubernetes' own controllers make the Deployment's pods and the Service's EndpointSlices. What kubelet and
kube-proxy do of it is here: a process for each pod, its probe and its end, and an address for the Service.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.chart.rendering import NAMESPACE as RELEASE_NAMESPACE
from tests.chart.rendering import noted_configuration
from tests.e2e import binaries
from tests.e2e.api import Object
from tests.e2e.controlplane import controllers
from tests.e2e.installation import Installation
from tests.e2e.programs import Line, Program, eventually, free_port, own
from tests.e2e.service import ServiceAddress

ACCOUNT = NAME = "gpushare-extender"
DEPLOYMENT = ("Deployment", NAME)
DEPLOYMENT_PATH = f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments/{NAME}"
LEADER = "gpushare/leader"
HOST = "control-plane"
"""The node that the extenders' pods are on."""
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "resourcequota-controller",
    "disruption-controller",
)
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/endpointslices"
_PODS = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods"
_TURN = 0.05


def secret(installation: Installation, name: str, *, folder: Path) -> dict[str, Path]:
    """The files of one of the chart's Secrets, by key, as kubelet or an administrator writes them."""
    folder.mkdir(exist_ok=True)
    files = {}
    for key, text in installation.release.one("Secret", name)["data"].items():
        files[key] = folder / key
        files[key].write_bytes(base64.b64decode(text))
    return files


class Replica:
    """A pod of the Deployment, and the process that runs in its place."""

    def __init__(self, installation: Installation, item: Object, *, address: str) -> None:
        self.name: str = item["metadata"]["name"]
        self.address = address
        """The pod's; nothing listens there."""
        self.verbs, self.view = free_port(), free_port()
        self.is_ready = False
        self.is_ending = False
        self.probed = 0.0
        folder = installation.plane.folder / self.name
        folder.mkdir()
        tls = secret(installation, "gpushare-extender-tls", folder=folder / "tls")
        command = installation.command(
            DEPLOYMENT,
            "extender",
            folder=folder,
            instead={
                "--listen": f"127.0.0.1:{self.verbs}",
                "--view-listen": f"127.0.0.1:{self.view}",
                "--kubeconfig": str(installation.kubeconfig(ACCOUNT, pod=self.name)),
                "--pod-name": self.name,
                "--tls-cert": str(tls["tls.crt"]),
                "--tls-key": str(tls["tls.key"]),
                "--client-ca": str(tls["ca.crt"]),
            },
        )
        self._line: Line = [own("gpushare-extender"), *command.arguments]
        self._folder = folder
        self.program = self._start()

    def _start(self) -> Program:
        return Program(self.name, self._line, folder=self._folder)

    def restart(self) -> None:
        self.program = self._start()

    def probe(self, period: float) -> bool:
        """Ask /readyz if it is time; say whether its answer is news."""
        was = self.is_ready
        if not self.program.alive:
            self.is_ready = False
        elif time.monotonic() - self.probed >= period:
            self.probed = time.monotonic()
            try:
                self.is_ready = (
                    httpx.get(f"http://127.0.0.1:{self.view}/readyz", timeout=3).status_code == 200
                )
            except httpx.TransportError:
                self.is_ready = False
        return self.is_ready is not was


class External:
    """Everything of the mode; its thread is kubelet and kube-proxy."""

    def __init__(self, installation: Installation, service: ServiceAddress) -> None:
        self.installation = installation
        self.api = installation.plane.api
        self.service = service
        self.replicas: dict[str, Replica] = {}
        spec = installation.release.one(*DEPLOYMENT)["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        self._period = float(container["readinessProbe"]["periodSeconds"])
        self._addresses = (f"10.9.0.{last}" for last in range(1, 255))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._fault: BaseException | None = None
        self.least_ready: int | None = None
        """The smallest number of ready replicas since this was set to `None`."""
        self.gaps: list[float] = []
        """Seconds for which the Service had no endpoint, one by one; the last may go on."""
        self._empty_since: float | None = None
        self._ever = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        for each in self.replicas.values():
            each.program.terminate()
        for each in self.replicas.values():
            each.program.stop()
        assert self._fault is None, self._fault

    @property
    def leaders(self) -> list[str]:
        """Pods with the leader's label, as the API server has them."""
        return [
            each["metadata"]["name"]
            for each in self.api.pods(namespace=RELEASE_NAMESPACE, labelSelector=f"{LEADER}=true")
        ]

    @property
    def leader(self) -> Replica:
        """The one that the Service leads to."""
        (port,) = {port for _, port in self.service.endpoints}
        return next(each for each in self.replicas.values() if each.verbs == port)

    @property
    def is_settled(self) -> bool:
        """Whether `kubectl rollout status` would end, and the Service has a leader."""
        found = self.api.get(DEPLOYMENT_PATH)
        wanted, status = found["spec"]["replicas"], found["status"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return seen and counts == [wanted] * 3 and len(self.service.endpoints) == 1

    def settle(self, *, seconds: float = 60.0) -> None:
        """Return once `is_settled`."""

        def settled() -> bool:
            assert self._fault is None, self._fault
            return self.is_settled

        eventually(settled, what="all replicas are ready, one is the leader", seconds=seconds)

    def _run(self) -> None:
        try:
            while not self._ending.wait(_TURN):
                self._be_kubelet()
                self._be_kube_proxy()
        except BaseException as error:  # of a thread that nobody waits for
            self._fault = error
            raise

    def _be_kubelet(self) -> None:
        items = self.api.pods(
            namespace=RELEASE_NAMESPACE, labelSelector="app.kubernetes.io/component=extender"
        )
        for item in items:
            if not item["spec"].get("nodeName"):
                continue
            name = item["metadata"]["name"]
            if name not in self.replicas:
                self.replicas[name] = Replica(self.installation, item, address=next(self._addresses))
                self._report(self.replicas[name])
            self._tend(self.replicas[name], is_deleted="deletionTimestamp" in item["metadata"])
        ready = sum(each.is_ready and not each.is_ending for each in self.replicas.values())
        self.least_ready = ready if self.least_ready is None else min(self.least_ready, ready)

    def _tend(self, replica: Replica, *, is_deleted: bool) -> None:
        if is_deleted and not replica.is_ending:
            replica.is_ending = True
            replica.program.terminate()
        if replica.probe(self._period):
            self._report(replica)
        if not replica.program.alive:
            if replica.is_ending:
                self.api.delete(f"{_PODS}/{replica.name}", gracePeriodSeconds="0")
                del self.replicas[replica.name]
            else:
                replica.restart()

    def _report(self, replica: Replica) -> None:
        ready = "True" if replica.is_ready else "False"
        conditions = [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")]
        addresses = {"podIP": replica.address, "podIPs": [{"ip": replica.address}]}
        status = {"phase": "Running", "conditions": conditions, **addresses}
        self.api.merge(f"{_PODS}/{replica.name}/status", {"status": status})

    def _be_kube_proxy(self) -> None:
        ports = {each.address: each.verbs for each in self.replicas.values()}
        slices = self.api.get(_SLICES, labelSelector=f"kubernetes.io/service-name={NAME}")["items"]
        found = {
            address
            for each in slices
            for endpoint in each["endpoints"] or ()
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        }
        self.service.endpoints = [("127.0.0.1", ports[address]) for address in found if address in ports]
        self._note_gap()

    def _note_gap(self) -> None:
        now = time.monotonic()
        if self.service.endpoints:
            self._ever, self._empty_since = True, None
        elif self._ever and self._empty_since is None:
            self._empty_since = now
            self.gaps.append(0.0)
        if self._empty_since is not None:
            self.gaps[-1] = now - self._empty_since


def kube_scheduler(installation: Installation, service: ServiceAddress) -> Program:
    """The control plane's own, told what the notes of the release say."""
    plane = installation.plane
    folder = plane.folder / "own-kube-scheduler"
    pair = plane.keys.issue("kube-scheduler", user="system:kube-scheduler")
    user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    kubeconfig = plane.kubeconfig("kube-scheduler", user)
    files = secret(installation, "gpushare-scheduler-client", folder=folder)
    document = noted_configuration(installation.release)
    document["clientConnection"]["kubeconfig"] = str(kubeconfig)
    (extender,) = document["extenders"]
    cluster_ip = installation.release.one("Service", NAME)["spec"]["clusterIP"]
    assert f"https://{cluster_ip}:39999/" in extender["urlPrefix"]
    extender["urlPrefix"] = extender["urlPrefix"].replace(f"{cluster_ip}:39999", service.host_and_port)
    extender["tlsConfig"] = {key: _here(value, files) for key, value in extender["tlsConfig"].items()}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(document))
    line: Line = [
        binaries.require("kube-scheduler"),
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
    return Program("own-kube-scheduler", line, folder=folder)


def _here(value: Any, files: Mapping[str, Path]) -> Any:
    """A path on the control plane's machine as it is here; anything else as it is."""
    is_path = isinstance(value, str) and value.startswith("/")
    return str(files[Path(value).name]) if is_path else value


@contextlib.contextmanager
def running_external(installation: Installation) -> Iterator[External]:
    """Start all of it; yields once the Deployment is rolled out."""
    with (
        ServiceAddress() as service,
        controllers(installation.plane, *CONTROLLERS),
        kube_scheduler(installation, service) as scheduler,
    ):
        external = External(installation, service)
        external.start()
        try:
            external.settle()
            yield external
        except BaseException:
            for each in (scheduler, *(replica.program for replica in external.replicas.values())):
                print(each.tail())
            raise
        finally:
            external.stop()
        for replica in external.replicas.values():
            assert replica.program.denied() == [], "rights are missing"
