"""A machine of its own for a kubelet: its own mounts and processes, its own part of the cgroups.

Device plugins register in /var/lib/kubelet/device-plugins whatever kubelet's --root-dir says (the path is a
constant, 1.36), and containerd and runc keep state in /run. So both get a mount namespace in which
/var/lib, /var/log and /run are empty, and whatever this machine's own kubelet has there stays untouched. And
a process namespace, whose first process takes everything with it: containers and shims too. What is
mounted inside is gone with the last process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.e2e import binaries
from tests.e2e.programs import Line, Program, eventually

KUBELET_DIR = Path("/var/lib/kubelet")
HIDDEN = ("/var/lib", "/var/log", "/run")

# kubelet sets these (1.36, cmd/kubelet and pkg/kubelet/cm): they are the whole machine's.
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class Machine:
    """The namespaces, held by a process that does nothing else."""

    def __init__(self, folder: Path, holder: Program) -> None:
        self.folder = folder
        self.kubelet_dir = folder / "kubelet"
        """kubelet's folder, seen from outside: the same files and sockets."""
        self.cgroup = f"/{folder.name}"
        """The cgroup below which all pods are."""
        self._holder = holder
        self._programs: list[Program] = []

    def start(self, name: str, command: Sequence[str | Path]) -> Program:
        """Start a program inside."""
        inside: Line = [binaries.require("nsenter"), f"--target={self._first}", "--mount", "--pid"]
        program = Program(name, [*inside, *command], folder=self.folder)
        self._programs.append(program)
        return program

    def end(self, program: Program) -> None:
        """End a program that was started inside: nsenter has a child, and does not pass signals on."""
        for child in _children(program.process.pid):
            os.kill(child, signal.SIGTERM)
        program.wait()

    def close(self) -> None:
        """End all that is inside, by its first process."""
        for process in _children(self._holder.process.pid):
            os.kill(process, signal.SIGKILL)
            self._holder.wait()  # until the kernel has ended all the others too
        for program in (self._holder, *self._programs):
            program.kill()

    @property
    def _first(self) -> int:
        """The first process of the namespaces, by its ID outside."""
        return _children(self._holder.process.pid)[0]


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Make the namespaces, and leave nothing behind."""
    kubelet_dir = folder / "kubelet"
    kubelet_dir.mkdir(parents=True)
    ready = folder / "ready"
    # The shell stays, as the first process has to: it also collects those whose parents have ended.
    script = "\n".join(
        [
            "set -e",
            *(f"mount -t tmpfs -o mode=755 tmpfs {path}" for path in HIDDEN),
            f"mkdir {KUBELET_DIR} /run/lock",
            f"mount --bind {kubelet_dir} {KUBELET_DIR}",
            f"mount --make-shared {KUBELET_DIR}",
            f": > {ready}",
            "while :; do sleep 3600 & wait; done",
        ]
    )
    namespaces = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")
    paths = [Path("/proc/sys") / name for name in _SYSCTLS]
    sysctls = {path: path.read_text() for path in paths if path.exists()}
    command: Line = [binaries.require("unshare"), *namespaces, "sh", "-c", script]
    holder = Program("machine", command, folder=folder)
    made = Machine(folder, holder)
    cgroups = [path / made.cgroup.lstrip("/") for path in binaries.cgroup_hierarchies()]
    try:
        for path in cgroups:
            path.mkdir()
        holder.until(ready.exists, what="its namespaces are there")
        yield made
    finally:
        made.close()
        for path in cgroups:
            _remove_cgroup(path)
        for path, text in sysctls.items():
            if path.read_text() != text:
                path.write_text(text)


def _children(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def _remove_cgroup(path: Path) -> None:
    """Remove it and what is below, once the last process in it is gone."""

    def removed() -> bool:
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not path.exists()

    eventually(removed, what=f"cgroup {path} is empty")
