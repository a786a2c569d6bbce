"""What a test says of the node's hardware, for the stub of NVML to read."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("stub.c")
LIBRARY = "libnvidia-ml.so.1"
"""The name by which `pynvml` asks the loader for it."""

MIB = 2**20
LOST = 15
NO_DRIVER = 9
UNKNOWN = 999
"""NVML's codes: GPU is lost, driver not loaded, unknown error."""


def build(folder: Path) -> Path:
    """Build the library; skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the stub of NVML with")
    library = folder / LIBRARY
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}")
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


class Board:
    """The GPUs, MIG instances and orders; every change is seen by the next call into the library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cards: dict[str, str] = {}
        self._orders: dict[tuple[str, str], str] = {}
        self._xids: list[str] = []
        path.with_name(f"{path.name}.calls").touch()
        self._write()

    def gpu(self, uuid: str, *, memory: int | None = 16384, **keys: int | str) -> None:
        """Add or change a GPU; memory in MiB, as `reserved` and `used`, `None` where NVML reports none."""
        self._cards[uuid] = f"gpu {uuid} {_keys(memory, keys)}"
        self._write()

    def instance(self, uuid: str, *, of: str, memory: int | None = 4096, **keys: int | str) -> None:
        """Add or change a MIG instance."""
        self._cards[uuid] = f"mig {of} {uuid} {_keys(memory, keys)}"
        self._write()

    def remove(self, *uuids: str) -> None:
        """Take cards out."""
        for uuid in uuids:
            del self._cards[uuid]
        self._write()

    def insert(self, uuid: str, *, before: str) -> None:
        """Move a card in front of another: NVML numbers them anew when it is opened next."""
        order = [each for each in self._cards if each != uuid]
        order.insert(order.index(before), uuid)
        self._cards = {each: self._cards[each] for each in order}
        self._write()

    def fail(self, call: str, code: int, *, uuid: str = "*") -> None:
        """Have a call fail, for one card or for all, until `mend`."""
        self._orders[call, uuid] = f"fail {call} {uuid} {code}"
        self._write()

    def hang(self, call: str, *, uuid: str = "*") -> None:
        """Have a call not come back until `mend`."""
        self._orders[call, uuid] = f"hang {call} {uuid}"
        self._write()

    def mend(self) -> None:
        """Everything answers again."""
        self._orders.clear()
        self._write()

    def xid(self, uuid: str, code: int, *, place: tuple[int, int] | None = None) -> None:
        """Report an XID once, on a GPU or on one of its instances."""
        self._xids.append(f"xid {uuid} {code} {' '.join(map(str, place or ()))}")
        self._write()

    @property
    def calls(self) -> list[str]:
        """What was opened and closed, in order."""
        return self.path.with_name(f"{self.path.name}.calls").read_text().split()

    def _write(self) -> None:
        lines = (*self._cards.values(), *self._orders.values(), *self._xids, "")
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(lines))
        new.replace(self.path)


def _keys(memory: int | None, keys: dict[str, int | str]) -> str:
    sizes = {"memory": memory, "reserved": keys.pop("reserved", None), "used": keys.pop("used", None)}
    bytes_ = {key: int(size) * MIB for key, size in sizes.items() if size is not None}
    return " ".join(f"{key}={str(value).replace(' ', '_')}" for key, value in {**bytes_, **keys}.items())
