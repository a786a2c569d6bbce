"""The device nodes of NVIDIA's driver: what a container needs of `/dev` to use a card.

NVIDIA's runtime finds them by itself. They are handed over by name only where something else takes a device
cgroup's word for what the container may use, such as kubelet's CPU manager (`--pass-device-specs`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Not of one card; which of them are there depends on the driver's modules."""
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
"""The driver's list of capabilities and the minor numbers of their nodes."""


def gpu_node(minor: int) -> str:
    """A whole card's node. The minor number is the driver's own and may differ from NVML's index."""
    return f"/dev/nvidia{minor}"


def mig_nodes(*, minor: int, gpu_instance: int, compute_instance: int, minors: str) -> tuple[str, ...]:
    """A MIG instance's nodes: its card's, and those of its two capabilities.

    `minor` is the card's, `minors` the text of `MIG_MINORS`. Nothing where the driver lists no such instance:
    half of its nodes would be a container that sees no card.
    """
    numbers = dict(line.split(" ", 1) for line in minors.splitlines() if " " in line)
    instance = f"gpu{minor}/gi{gpu_instance}"
    caps = [numbers.get(f"{instance}/access"), numbers.get(f"{instance}/ci{compute_instance}/access")]
    if None in caps:
        return ()
    return gpu_node(minor), *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps)


def common_nodes(exists: Callable[[str], bool] = os.path.exists) -> tuple[str, ...]:
    """Those of `COMMON_NODES` that this node has."""
    return tuple(node for node in COMMON_NODES if exists(node))
