"""What `scheduler-config --beside-default` prints, as a control plane's kube-scheduler takes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from extender.schedulerconfig import CONTROL_PLANES_KUBECONFIG
from tests.e2e import binaries
from tests.e2e.controlplane import ControlPlane
from tests.e2e.programs import Line, Program, free_port, own

USER = "system:kube-scheduler"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


def test_I2_a_control_planes_kube_scheduler_starts_with_it_and_leads(
    plane: ControlPlane, tmp_path: Path
) -> None:
    pair = plane.keys.issue("scheduler", user=USER)
    kubeconfig = plane.kubeconfig(
        "scheduler", {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    )
    printed = _printed(plane, cert=pair.cert, key=pair.key)
    assert yaml.safe_load(printed)["clientConnection"] == {"kubeconfig": CONTROL_PLANES_KUBECONFIG}
    config = tmp_path / "config.yaml"
    config.write_text(printed.replace(CONTROL_PLANES_KUBECONFIG, str(kubeconfig)))
    with Program("kube-scheduler", _as_kubeadm(kubeconfig, config=config), folder=tmp_path) as scheduler:
        scheduler.until(
            lambda: "successfully acquired lease" in scheduler.text().lower(),
            what="it leads",
            seconds=60,
        )
        holder = plane.api.get(LEASE)["spec"]["holderIdentity"]
    assert holder


def _printed(plane: ControlPlane, *, cert: Path, key: Path) -> str:
    command: Line = [
        own("gpushare-extender"),
        *("scheduler-config", "--beside-default"),
        *("--url", f"https://127.0.0.1:{free_port()}/gpushare-scheduler"),
        *("--ca-file", plane.keys.ca.cert),
        *("--cert-file", cert),
        *("--key-file", key),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _as_kubeadm(kubeconfig: Path, *, config: Path) -> Line:
    """The flags of kubeadm's manifest (1.36), and --config."""
    return [
        binaries.require("kube-scheduler"),
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=true",
        f"--config={config}",
        f"--secure-port={free_port()}",
    ]
