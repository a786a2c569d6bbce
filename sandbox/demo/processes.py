"""Child processes that never outlive the demo, however it ends.

Each is ended on the way out; should the demo itself be killed, the kernel kills them. What they print goes
to one file each, whose end is shown when something goes wrong.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from gpushare.errors import GpuShareError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PATIENCE_SECONDS = 2.0
_TAIL_LINES = 12


class DemoError(GpuShareError):
    """The demo cannot go on; a sentence for whoever started it."""


class Processes:
    """The children. A context manager: leaving it ends all of them."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, program: str, *arguments: str) -> None:
        """Start one of this project's programs under a name; raises `DemoError` if it is not installed."""
        script = Path(sysconfig.get_path("scripts")) / program
        if not script.exists():
            raise DemoError(f"{script} is missing: install the project first (make demo does)")
        with (self._logs / f"{name}.log").open("wb") as log:
            # A session of its own: Ctrl-C in the terminal reaches the demo alone, which then ends the others.
            self._running[name] = subprocess.Popen(
                [script, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),
            )

    def ids(self) -> dict[str, int]:
        """The process IDs of the children by name."""
        return {name: process.pid for name, process in self._running.items()}

    def check(self) -> None:
        """Raise `DemoError` if one has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise DemoError(f"{name} ended with code {process.returncode}")

    def stop(self) -> None:
        """End all, gently first. Does not await, so that nothing can interrupt it."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def tails(self) -> str:
        """The last lines of every child's output, for a report of a failure."""
        texts = []
        for path in sorted(self._logs.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            texts.append("\n".join([f"--- {path.stem}", *lines]))
        return "\n".join(texts)


def dies_with(parent: int) -> Callable[[], None] | None:
    """What a child does before it becomes its program: ask the kernel to be killed with its parent."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before we could ask
            os._exit(1)

    return ask
