"""The chart, installed: its objects applied as `helm install` does, its programs run here as it says.

A program gets the command line of its container, with the addresses and paths of this machine in place of
the pod's, and a token of its own service account: what the chart's roles lack, the program lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import NAMESPACE as RELEASE_NAMESPACE
from tests.chart.rendering import Release, render
from tests.e2e.api import Api, Object
from tests.e2e.controlplane import ControlPlane

CARDS = tuple({"uuid": f"GPU-e2e-{index}", "memory": 16276, "model": "Tesla T4"} for index in range(4))
"""What every node has, as the chart takes it: nobody needs a GPU here."""
VALUES = {"devicePlugin": {"simulatedCards": list(CARDS)}}
TOKEN_SECONDS = 3600
_HOOK = "helm.sh/hook"
# helm creates kinds in an order of its own; of it only this matters without controllers.
_FIRST = ("Namespace", "ServiceAccount", "ResourceQuota", "ConfigMap", "Secret")


@dataclass(frozen=True, kw_only=True)
class Command:
    """How one container of the chart is started, on this machine."""

    arguments: tuple[str, ...]
    files: Mapping[str, Path]
    """What the container mounts from ConfigMaps, by the path in the container."""


class Installation:
    """One release of the chart in the cluster."""

    def __init__(self, plane: ControlPlane, release: Release) -> None:
        self.plane = plane
        self.release = release
        self._tokens: dict[tuple[str, str], str] = {}

    def token(self, account: str, *, pod: str = "") -> str:
        """A token of a service account; one bound to a pod carries the pod's node, as kubelet's do."""
        if (account, pod) not in self._tokens:
            namespace = f"/api/v1/namespaces/{RELEASE_NAMESPACE}"
            spec: dict[str, Any] = {"expirationSeconds": TOKEN_SECONDS}
            if pod:
                uid = self.plane.api.pod(pod, namespace=RELEASE_NAMESPACE)["metadata"]["uid"]
                spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            answer = self.plane.api.ask("POST", f"{namespace}/serviceaccounts/{account}/token", request)
            assert answer.status_code == 201, answer.text
            self._tokens[account, pod] = answer.json()["status"]["token"]
        return self._tokens[account, pod]

    def kubeconfig(self, account: str, *, pod: str = "") -> Path:
        """A kubeconfig with such a token."""
        name = f"{account}-{pod}" if pod else account
        return self.plane.kubeconfig(name, {"token": self.token(account, pod=pod)})

    def api(self, account: str, *, pod: str = "") -> Api:
        """The API server as that service account sees it."""
        return Api(self.plane.url, ca=self.plane.keys.ca.cert, token=self.token(account, pod=pod))

    def agent_pod(self, node: str, *, image: str = "none") -> str:
        """Stands for the DaemonSet's pod on a node, whose name it returns: tokens are bound to it."""
        name = f"gpushare-device-plugin-{node}"
        self.plane.api.ensure(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": RELEASE_NAMESPACE},
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": "gpushare-device-plugin",
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "stand-in", "image": image, "command": ["sleep", "86400"]}],
                },
            }
        )
        return name

    def command(
        self, owner: tuple[str, str], container: str, *, folder: Path, instead: Mapping[str, str]
    ) -> Command:
        """The arguments of a container of an object (kind, name), with `instead` in place of flags' values.

        What it mounts from ConfigMaps is written below `folder`.
        """
        spec = self.release.one(*owner)["spec"]["template"]["spec"]
        described = next(each for each in spec["containers"] if each["name"] == container)
        files = dict(self._mounted(spec, described, folder=folder))
        written = [*described.get("command", [])[1:], *described.get("args", [])]
        arguments = []
        for argument in written:
            flag, _, value = argument.partition("=")
            assert flag.startswith("-"), f"{owner} {container}: {argument} is not --flag=value"
            value = instead.get(flag, str(files.get(value, value)))
            arguments.append(f"{flag}={value}" if "=" in argument else flag)
        arguments += [f"{flag}={value}" for flag, value in instead.items() if flag not in _flags(written)]
        return Command(arguments=tuple(arguments), files=files)

    def _mounted(self, spec: Object, container: Object, *, folder: Path) -> list[tuple[str, Path]]:
        volumes = {each["name"]: each.get("configMap", {}).get("name") for each in spec.get("volumes", [])}
        found = []
        for mount in container.get("volumeMounts", []):
            if not volumes.get(mount["name"]):
                continue
            for key, text in self.release.one("ConfigMap", volumes[mount["name"]])["data"].items():
                path = folder / f"{mount['name']}-{key}"
                path.write_text(text)
                found.append((f"{mount['mountPath'].rstrip('/')}/{key}", path))
        return found


def install(plane: ControlPlane, values: Mapping[str, Any]) -> Installation:
    """Render the chart for this cluster's version, and apply it as `helm install` does."""
    version = plane.api.get("/version")["gitVersion"]
    release = render(values, kubernetes=version.removeprefix("v"))
    api = plane.api
    # What kube-controller-manager makes in each namespace.
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE_NAMESPACE}})
    for namespace in ("default", RELEASE_NAMESPACE):
        api.create(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": namespace},
                "automountServiceAccountToken": False,
            }
        )
    for item in sorted(release.objects, key=lambda each: each["kind"] not in _FIRST):
        if _HOOK not in item["metadata"].get("annotations", {}):
            api.create(item, namespace=RELEASE_NAMESPACE)
    return Installation(plane, release)


def _flags(arguments: list[str]) -> set[str]:
    return {argument.partition("=")[0] for argument in arguments}


def read_yaml(path: Path) -> Object:
    """A file with one document."""
    document: Object = yaml.safe_load(path.read_text())
    return document
