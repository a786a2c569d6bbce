"""etcd and kube-apiserver."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import binaries
from tests.e2e.api import Api
from tests.e2e.certificates import Keys
from tests.e2e.programs import Line, Program, free_port

ADMINISTRATORS = "system:masters"
ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """Where the cluster is, and how to get in."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder = folder
        self.keys = keys
        self.url = f"https://127.0.0.1:{free_port()}"
        self.admin = keys.issue("admin", user="admin", group=ADMINISTRATORS)
        self.api = Api(self.url, ca=keys.ca.cert, pair=self.admin)

    def kubeconfig(self, name: str, user: dict[str, Any]) -> Path:
        """A kubeconfig of this cluster for one user (`token`, or client certificate files)."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.keys.ca.cert)}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "e2e", "cluster": cluster}],
                    "users": [{"name": name, "user": user}],
                    "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
                    "current-context": "e2e",
                }
            )
        )
        return path

    def admin_kubeconfig(self) -> Path:
        return self.kubeconfig(
            "admin", {"client-certificate": str(self.admin.cert), "client-key": str(self.admin.key)}
        )


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Start etcd and kube-apiserver in a folder of their own; end both, and nothing of them is left."""
    with tempfile.TemporaryDirectory(prefix="gpushare-e2e-") as folder, _started(Path(folder)) as plane:
        yield plane


@contextlib.contextmanager
def _started(folder: Path) -> Iterator[ControlPlane]:
    keys = Keys(folder / "pki")
    plane = ControlPlane(folder, keys)
    serving = keys.issue("apiserver", user="kube-apiserver")
    kubelet_client = keys.issue("apiserver-kubelet", user="apiserver-kubelet", group=ADMINISTRATORS)
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd_command: Line = [
        binaries.require("etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={store}",
        f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]
    server_command: Line = [
        binaries.require("kube-apiserver"),
        f"--etcd-servers={store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.url.rpartition(':')[2]}",
        f"--cert-dir={folder / 'apiserver'}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={keys.ca.cert}",
        # For aggregated API servers, of which there are none; kube-scheduler waits for it all the same.
        f"--requestheader-client-ca-file={keys.ca.cert}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--service-account-key-file={keys.accounts.cert}",
        f"--service-account-signing-key-file={keys.accounts.key}",
        f"--service-account-issuer={ISSUER}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        f"--kubelet-client-certificate={kubelet_client.cert}",
        f"--kubelet-client-key={kubelet_client.key}",
    ]
    with contextlib.ExitStack() as running:
        etcd = running.enter_context(Program("etcd", etcd_command, folder=folder))
        # What others are refused is in its log too; each of them is checked by its own.
        server = Program("kube-apiserver", server_command, folder=folder)
        running.callback(server.kill)  # told to end, it waits a minute for its watches
        server.until(lambda: etcd.alive and plane.api.is_ready(), what="kube-apiserver is ready", seconds=90)
        yield plane
        plane.api.close()


@contextlib.contextmanager
def controllers(
    plane: ControlPlane, *names: str, may_be_denied: Sequence[str] = (), logs: Path | None = None
) -> Iterator[Program]:
    """Run some of kube-controller-manager's controllers.

    Those that may be denied something need a log of their own, in the folder `logs`: the cluster's is checked
    by whoever runs controllers later. Never all: its node lifecycle would taint the nodes without a kubelet.
    """
    command: Line = [
        binaries.require("kube-controller-manager"),
        f"--kubeconfig={plane.admin_kubeconfig()}",
        f"--controllers={','.join(names)}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={plane.folder / 'controllers'}",
    ]
    with Program(
        "kube-controller-manager", command, folder=logs or plane.folder, may_be_denied=may_be_denied
    ) as program:
        yield program
