"""Programs that run beside the tests, each with a log of its own, and never outlive them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.demo.processes import dies_with

Line = list[str | Path]
"""A program and its arguments."""

DEADLINE = 30.0
_PATIENCE = 15.0
_TAIL = 30
DENIED = ("forbidden", "Forbidden", "Unauthorized")


def eventually(condition: Callable[[], object], *, what: str, seconds: float = DEADLINE) -> None:
    """Return once `condition()` is true; fail naming `what` when `seconds` have passed."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def own(program: str) -> Path:
    """One of this project's programs, as installed."""
    return Path(sysconfig.get_path("scripts")) / program


class Program:
    """A running program. Leaving the context ends it, and fails if the API server refused it anything."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, folder: Path, may_be_denied: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._may_be_denied = tuple(may_be_denied)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            assert self.denied() == [], f"{self.name} lacks rights"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return "\n".join([f"--- {self.name}", *self.text().splitlines()[-_TAIL:]])

    def denied(self) -> list[str]:
        """Lines of its log that say that the API server refused it something."""
        return [
            line
            for line in self.text().splitlines()
            if any(word in line for word in DENIED) and not any(word in line for word in self._may_be_denied)
        ]

    def until(self, condition: Callable[[], object], *, what: str, seconds: float = DEADLINE) -> None:
        """As `eventually`, but fails at once, with its log, if the program has ended."""

        def holds() -> object:
            assert self.alive, f"{self.name} ended with code {self.process.returncode}\n{self.tail()}"
            return condition()

        try:
            eventually(holds, what=what, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from error

    def terminate(self) -> None:
        """Tell it to end, without waiting."""
        self.process.terminate()

    def wait(self, seconds: float = _PATIENCE) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, gently first."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE)
        self.kill()
