"""A real node: containerd and kubelet on a `Machine`, images that are made here, and our device plugin."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e import binaries
from tests.e2e.controlplane import ControlPlane
from tests.e2e.image import write_image
from tests.e2e.installation import Installation
from tests.e2e.machine import Machine, machine
from tests.e2e.programs import Line, Program, eventually, free_port, own

NODE = "real-node"
AGENT = "gpushare-device-plugin"
SAMPLES_IMAGE = "docker.io/library/busybox:1.37"
"""As the samples name it (`busybox:1.37`)."""
PAUSE_IMAGE = "docker.io/library/pause:1"
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"

# Gives every pod an address that leads nowhere: nothing here talks to a pod. containerd runs `loopback` too.
_NETWORK_PLUGIN = """#!/bin/sh
cat > /dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}' ;;
ADD) echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],
  "ips": [{"version": "4", "address": "198.51.100.1/24", "interface": 0}]}' ;;
esac
"""

_CONTAINERD = """
version = 2
root = "{folder}/containerd/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}/cni"
    conf_dir = "{folder}/cni"
"""


class RealNode:
    """The node `real-node`."""

    def __init__(self, plane: ControlPlane, inside: Machine) -> None:
        self.plane = plane
        self.machine = inside
        self.kubelet: Program | None = None
        self.view = ""
        """Where the device plugin's probes and metrics are."""

    def start_kubelet(self) -> None:
        """Start it, and return once the node is ready and free of taints."""
        command: Line = [
            binaries.require("kubelet"),
            f"--config={self._config()}",
            f"--kubeconfig={self._kubeconfig()}",
            f"--hostname-override={NODE}",
            "-v=2",
        ]
        self.kubelet = self.machine.start("kubelet", command)
        self.kubelet.until(self._is_ready, what="the node is ready", seconds=90)
        # Without kube-controller-manager's node lifecycle nobody else takes it off.
        self.plane.api.merge(f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}})

    def start_agent(self, installation: Installation, *, name: str = "device-plugin") -> Program:
        """Start our device plugin as the chart's DaemonSet does, with the token of a pod on this node."""
        stand_in = installation.agent_pod(NODE, image=SAMPLES_IMAGE)
        self.view = f"http://127.0.0.1:{free_port()}"
        instead = {
            "--kubeconfig": str(installation.kubeconfig(AGENT, pod=stand_in)),
            "--node-name": NODE,
            "--kubelet-dir": str(self.machine.kubelet_dir),
            "--metrics-listen": self.view.removeprefix("http://"),
        }
        command = installation.command(
            ("DaemonSet", AGENT), "device-plugin", folder=self.machine.folder, instead=instead
        )
        agent = Program(name, [own(AGENT), *command.arguments], folder=self.machine.folder)
        agent.until(self._agent_is_ready, what="the device plugin is ready")
        return agent

    def _agent_is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.view}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop_kubelet(self) -> None:
        """End it; its containers go on."""
        assert self.kubelet is not None
        self.machine.end(self.kubelet)

    def output(self, pod: dict[str, Any], container: str) -> str:
        """What a container has printed so far."""
        meta = pod["metadata"]
        folder = (
            self.machine.folder / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / container
        )
        lines = [line for path in sorted(folder.glob("*.log")) for line in path.read_text().splitlines()]
        # CRI log lines: time, stream, P or F, text.
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def environment(self, pod: dict[str, Any], container: str) -> dict[str, str]:
        """The variables that a container of the samples has printed."""
        asks = any(
            each["name"] == container and each["resources"].get("limits")
            for each in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        )
        eventually(
            lambda: self.output(pod, container) or not asks, what=f"{container} has printed what it was given"
        )
        lines = self.output(pod, container).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def slots(self, pod: dict[str, Any]) -> dict[str, set[str]]:
        """By kubelet's own record: the UUIDs of the cards whose slots each container of a pod holds."""
        record = json.loads((self.machine.kubelet_dir / CHECKPOINT).read_text())
        return {
            entry["ContainerName"]: {
                device.split("::")[0] for devices in entry["DeviceIDs"].values() for device in devices
            }
            for entry in record["Data"]["PodDeviceEntries"] or []
            if entry["PodUID"] == pod["metadata"]["uid"]
        }

    def _is_ready(self) -> bool:
        answer = self.plane.api.ask("GET", f"/api/v1/nodes/{NODE}")
        if answer.status_code != 200:
            return False
        conditions = answer.json()["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _kubeconfig(self) -> Path:
        path = self.plane.folder / "kubelet.kubeconfig"
        if path.exists():
            return path
        pair = self.plane.keys.issue("kubelet", user=f"system:node:{NODE}", group="system:nodes")
        return self.plane.kubeconfig(
            "kubelet", {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
        )

    def _config(self) -> Path:
        folder = self.machine.folder
        path = folder / "kubelet.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "address": "127.0.0.1",
                    "port": free_port(),
                    "healthzPort": 0,
                    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
                    "authorization": {"mode": "AlwaysAllow"},
                    "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
                    "podLogsDir": str(folder / "pods"),
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": self.machine.cgroup,
                    "failCgroupV1": False,
                    "failSwapOn": False,
                    "makeIPTablesUtilChains": False,
                    "imageGCHighThresholdPercent": 100,
                    "evictionHard": {
                        "memory.available": "1Mi",
                        "nodefs.available": "0%",
                        "imagefs.available": "0%",
                        "nodefs.inodesFree": "0%",
                        "imagefs.inodesFree": "0%",
                    },
                    "nodeStatusUpdateFrequency": "1s",
                    "registerWithTaints": [],
                    "maxPods": 250,
                }
            )
        )
        return path


@contextlib.contextmanager
def real_node(plane: ControlPlane) -> Iterator[RealNode]:
    """Start containerd and kubelet, and return once the node is ready; everything is gone afterwards."""
    folder = plane.folder / f"{plane.folder.name}-node"
    with machine(folder) as inside:
        (folder / "pods").mkdir()
        _network(folder / "cni")
        config = folder / "containerd.toml"
        config.write_text(_CONTAINERD.format(folder=folder, pause=PAUSE_IMAGE))
        containerd = inside.start("containerd", [binaries.require("containerd"), "--config", config])
        ctr: Line = [binaries.require("ctr"), "--address", folder / "containerd.sock"]
        containerd.until(lambda: _succeeds(*ctr, "version"), what="containerd answers")
        shell = binaries.static_shell()
        assert shell is not None
        for name, command in ((PAUSE_IMAGE, ["/bin/sleep", "86400"]), (SAMPLES_IMAGE, ["/bin/sh"])):
            archive = folder / "image.tar"
            write_image(archive, name=name, shell=shell, command=command)
            subprocess.run(
                [*ctr, "--namespace", "k8s.io", "images", "import", archive], check=True, capture_output=True
            )
        node = RealNode(plane, inside)
        try:
            node.start_kubelet()
            yield node
        except BaseException:
            print(containerd.tail(), node.kubelet.tail() if node.kubelet else "", sep="\n")
            raise
    shutil.rmtree(folder)


def _network(folder: Path) -> None:
    folder.mkdir()
    for name in ("loopback", "e2e"):
        plugin = folder / name
        plugin.write_text(_NETWORK_PLUGIN)
        plugin.chmod(0o755)
    (folder / "e2e.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "e2e", "plugins": [{"type": "e2e"}]})
    )


def _succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
