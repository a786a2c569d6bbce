"""Which of the programs that a cluster is made of are on this machine."""

from __future__ import annotations

import os
import shutil
import struct
import sys
from pathlib import Path

VARIABLE = "KUBEBUILDER_ASSETS"
"""The folder with the Kubernetes binaries, by the name that the field's test environments use."""

CLUSTER = ("etcd", "kube-apiserver", "kube-scheduler", "openssl")
"""Without these there is no cluster at all."""

NODE = ("kubelet", "containerd", "ctr", "runc", "unshare", "nsenter", "mount")
"""What a node needs besides."""

STATIC_SHELLS = (Path("/bin/busybox"), Path("/usr/bin/busybox"))
_PT_INTERP = 3  # elf(5): a program header that names a dynamic loader


def find(name: str) -> Path | None:
    """The program in the folder of KUBEBUILDER_ASSETS, else in PATH."""
    folder = os.environ.get(VARIABLE)
    if folder and os.access(Path(folder) / name, os.X_OK):
        return (Path(folder) / name).resolve()
    found = shutil.which(name)
    return Path(found) if found else None


def require(name: str) -> Path:
    """The program, which an earlier check has found."""
    path = find(name)
    assert path is not None, f"{name} is neither in the folder of {VARIABLE} nor in PATH"
    return path


def missing(names: tuple[str, ...]) -> str:
    """A sentence naming the programs that are not there; empty if all are."""
    absent = [name for name in names if find(name) is None]
    return f"{', '.join(absent)} neither in the folder of {VARIABLE} nor in PATH" if absent else ""


def no_node() -> str:
    """Why no kubelet can run here; empty if one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a kubelet needs Linux and root"
    if absent := missing(NODE):
        return absent
    if not static_shell():
        return "no statically linked busybox in /bin, of which images for pods are made"
    hierarchies = cgroup_hierarchies()
    if not hierarchies or not all(os.access(path, os.W_OK) for path in hierarchies):
        return "cgroups cannot be written to here"
    return ""


def static_shell() -> Path | None:
    """A busybox that needs no library, so that an image of it alone works."""
    return next((path for path in STATIC_SHELLS if path.exists() and _is_static(path)), None)


def _is_static(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":  # 64 bit
            return False
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
    kinds = (struct.unpack_from("<I", table, start)[0] for start in range(0, len(table), size))
    return _PT_INTERP not in kinds


def cgroup_hierarchies() -> list[Path]:
    """Where cgroups are mounted: one place with version 2, one per controller with version 1."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(place) for _, place, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]
