"""NVIDIA's cards, found through NVML."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pynvml

from deviceplugin.errors import SourceError
from gpushare.cards import UNITS, Card
from kubeapi.backoff import Backoff

log = logging.getLogger(__name__)

_PCI_DEVICES = Path("/sys/bus/pci/devices")


def discover(*, unit: str) -> tuple[Card, ...]:
    """Find the cards, with NVML's own indices; raises `SourceError` where the driver cannot be asked.

    A card that cannot be read is left out with a line in the log, and the others keep their indices.
    """
    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            found = [_card(index, unit=unit) for index in range(count)]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise SourceError(f"NVML does not answer: {error}") from error
    return tuple(card for card in found if card is not None)


def _card(index: int, *, unit: str) -> Card | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = _usable_bytes(handle) // UNITS[unit]
        if memory == 0:
            log.warning("card skipped index=%d reason='it has less than one %s'", index, unit)
            return None
        return Card(
            index=index,
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            memory=memory,
            model=_text(pynvml.nvmlDeviceGetName(handle)),
            numa=_numa_node(handle),
        )
    except pynvml.NVMLError as error:
        log.warning("card skipped index=%d reason=%r", index, str(error))
        return None


def _usable_bytes(handle: object) -> int:
    """All of the card's memory less what driver and firmware keep, where the driver tells (since 510)."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_ArgumentVersionMismatch,
    ):
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return int(memory.total) - int(memory.reserved)


def _numa_node(handle: object) -> int | None:
    """The NUMA node whose CPUs are near, from sysfs: NVML's own answer is about the card's memory."""
    try:
        bus = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()
        # NVML writes the PCI domain with 8 digits, the kernel with 4.
        node = int((_PCI_DEVICES / bus[-12:] / "numa_node").read_text())
    except (pynvml.NVMLError, OSError, ValueError):
        return None
    return node if node >= 0 else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class NvmlCards:
    """A `CardSource` over NVML; one that does not answer at start is asked again."""

    def __init__(self, *, unit: str, backoff: Backoff | None = None) -> None:
        self._unit = unit
        self._backoff = backoff or Backoff(first=1.0, longest=30.0)

    async def follow(self) -> AsyncIterator[tuple[Card, ...]]:
        """Yield the cards once the driver answers; what becomes of them later is not watched yet."""
        while True:
            try:
                # In a thread: loading the driver takes seconds on a machine with many cards.
                yield await asyncio.to_thread(discover, unit=self._unit)
                break
            except SourceError as error:
                delay = self._backoff.next()
                log.warning("no cards yet retry_in=%.1fs reason=%r", delay, str(error))
                await asyncio.sleep(delay)
        await asyncio.Event().wait()
