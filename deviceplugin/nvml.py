"""The calls to NVML: everything here blocks, and nothing else in the plugin imports `pynvml`.

NVML lists the GPUs when it is opened; one that comes later, or comes back from the dead, needs it to be
closed and opened again. Instances of GPUs in MIG mode are listed anew by every look.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from deviceplugin.devicenodes import MIG_MINORS, gpu_node, mig_nodes
from deviceplugin.errors import SourceError
from deviceplugin.health import Fault
from deviceplugin.nvmlsightings import Look, Placement, Sighting, Silence, Xid

log = logging.getLogger(__name__)

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_UNKNOWN = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
"""The part or the driver does not have what was asked for; no fault."""
_VERDICTS = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired)
_NO_INSTANCE = 0xFFFFFFFF
"""NVML_GPU_INSTANCE_ID_ANY and NVML_COMPUTE_INSTANCE_ID_ANY: the event is not about an instance."""
_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "draining peer-to-peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "draining and a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "a reset of the PCIe bus",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "a reboot of the system",
}
"""What the driver says a GPU needs before it may be used again (550 and later)."""
_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 cannot be loaded: install NVIDIA's driver on the "
    "node, and have the runtime mount it into this pod (runtimeClassName: nvidia with NVIDIA's container "
    "toolkit, NVIDIA_DRIVER_CAPABILITIES=utility), or mount the library yourself",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's kernel module is not loaded on the node: see lsmod and "
    "dmesg there; in a container /dev/nvidiactl may be missing (runtimeClassName: nvidia)",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was changed under its library: reboot the node, "
    "or load the new module and restart this pod",
    pynvml.NVML_ERROR_NO_PERMISSION: "this pod may not open /dev/nvidiactl: runtimeClassName: nvidia gives "
    "it the devices",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What does not change about a card while NVML is open: asked once, so that sizes do not flicker."""

    usable: int | None
    model: str
    numa: int | None
    nodes: tuple[str, ...]


class Nvml:
    """NVML, opened. Not for two threads at a time, but for `next_xid`, which may wait beside `look`."""

    def __init__(self) -> None:
        """Open NVML; raises `SourceError` that says what to do."""
        with _as_source_error():
            pynvml.nvmlInit()
        self.at: int | None = None
        """Index of the GPU that a look is at, for the time when it does not come back."""
        self._facts: dict[str, _Facts] = {}
        self._events: Any = None
        self._watched: dict[int, str] = {}
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("no XIDs from the driver reason=%r", str(error))

    def close(self) -> None:
        """Close NVML; nobody may be waiting in `next_xid`."""
        for call in (self._free_events, pynvml.nvmlShutdown):
            try:
                call()
            except pynvml.NVMLError as error:
                log.warning("NVML did not close reason=%r", str(error))

    def look(self) -> Look:
        """Ask every card; raises `SourceError` where NVML itself does not answer."""
        cards: list[Sighting] = []
        silent: list[Silence] = []
        read: set[str] = set()
        with _as_source_error():
            count = pynvml.nvmlDeviceGetCount()
        for index in range(count):
            self.at = index
            uuid = ""
            failures: list[Silence] = []
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
                self._watch(handle, uuid=uuid)
                if _is_split(handle):
                    found, failures = self._instances(handle, gpu=index, gpu_uuid=uuid)
                    cards += found
                else:
                    cards.append(self._sighting(handle, gpu=index, gpu_uuid=uuid, uuid=uuid))
            except pynvml.NVMLError as error:
                failures.append(Silence(gpu=index, uuid=uuid, fault=_fault(error)))
            if not failures:
                read.add(uuid)
            silent += failures
        self.at = None
        return Look(cards=tuple(cards), silent=tuple(silent), read=frozenset(read))

    def next_xid(self, *, seconds: float) -> Xid | None:
        """Wait for the next XID, so long at most; raises `SourceError` where waiting does not work."""
        try:
            with _as_source_error():
                event = pynvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except SourceError as error:
            if isinstance(error.__cause__, pynvml.NVMLError_Timeout):
                return None
            raise
        uuid = self._watched.get(_address(event.device))
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError or uuid is None:
            log.warning("event ignored type=%d value=%d card=%s", event.eventType, event.eventData, uuid)
            return None
        return Xid(
            gpu_uuid=uuid,
            code=int(event.eventData),
            gpu_instance=_instance(event.gpuInstanceId),
            compute_instance=_instance(event.computeInstanceId),
        )

    @property
    def has_events(self) -> bool:
        """Whether `next_xid` can be asked."""
        return self._events is not None

    def _free_events(self) -> None:
        if self._events is not None:
            pynvml.nvmlEventSetFree(self._events)

    def _watch(self, handle: Any, *, uuid: str) -> None:
        """Have the driver report XIDs of a GPU; where it cannot, the probes are all there is."""
        address = _address(handle)
        if address in self._watched or self._events is None:
            return
        self._watched[address] = uuid
        try:
            wanted = pynvml.nvmlEventTypeXidCriticalError & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
            pynvml.nvmlDeviceRegisterEvents(handle, wanted, self._events)
        except pynvml.NVMLError as error:
            log.warning("no XIDs from the driver card=%s reason=%r", uuid, str(error))

    def _instances(self, handle: Any, *, gpu: int, gpu_uuid: str) -> tuple[list[Sighting], list[Silence]]:
        """The MIG instances of a GPU: those that answer and those that do not."""
        found: list[Sighting] = []
        silent: list[Silence] = []
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            uuid = gpu_uuid
            try:
                instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                uuid = _text(pynvml.nvmlDeviceGetUUID(instance))
                placement = Placement(
                    number=number,
                    gpu_instance=pynvml.nvmlDeviceGetGpuInstanceId(instance),
                    compute_instance=pynvml.nvmlDeviceGetComputeInstanceId(instance),
                )
                found.append(
                    self._sighting(
                        handle, gpu=gpu, gpu_uuid=gpu_uuid, uuid=uuid, instance=instance, placement=placement
                    )
                )
            except pynvml.NVMLError_NotFound:
                continue  # fewer instances than there could be
            except pynvml.NVMLError as error:
                silent.append(Silence(gpu=gpu, uuid=uuid, fault=_fault(error)))
        return found, silent

    def _sighting(
        self,
        handle: Any,
        *,
        gpu: int,
        gpu_uuid: str,
        uuid: str,
        instance: Any = None,
        placement: Placement | None = None,
    ) -> Sighting:
        """Ask one card: a GPU by its handle, or an instance of it.

        Its memory is asked for every time: the cheap call that fails on a dead card.
        """
        usable, used = _memory(handle if instance is None else instance)
        facts = self._facts.get(uuid)
        if facts is None:
            model = _text(pynvml.nvmlDeviceGetName(handle if instance is None else instance))
            facts = self._facts[uuid] = _Facts(
                usable=usable,
                model=model,
                numa=_numa_node(handle),
                nodes=_device_nodes(handle, placement=placement),
            )
        return Sighting(
            gpu=gpu,
            gpu_uuid=gpu_uuid,
            uuid=uuid,
            usable=facts.usable,
            used=used,
            model=facts.model,
            numa=facts.numa,
            nodes=facts.nodes,
            placement=placement,
            fault=_ailment(handle),
        )


def _fault(error: pynvml.NVMLError) -> Fault:
    return Fault(text=str(error), is_verdict=isinstance(error, _VERDICTS))


@contextlib.contextmanager
def _as_source_error() -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        advice = _ADVICE.get(error.value)
        raise SourceError(f"NVML does not answer: {error}{f': {advice}' if advice else ''}") from error


def _is_split(handle: Any) -> bool:
    """Whether a GPU is in MIG mode, and so not usable as a whole."""
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except _UNKNOWN:
        return False


def _ailment(handle: Any) -> Fault | None:
    """What the driver wants done with a GPU: until then new work on it fails, though everything answers.

    Drivers that do not know the question say so in several ways, none of which speaks against the card.
    """
    try:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    except _VERDICTS:
        raise
    except pynvml.NVMLError:
        return None
    if value.nvmlReturn != pynvml.NVML_SUCCESS or value.value.uiVal not in _ACTIONS:
        return None
    return Fault(text=f"the driver asks for {_ACTIONS[value.value.uiVal]}", is_verdict=True)


def _memory(handle: Any) -> tuple[int | None, int | None]:
    """Usable and used bytes: all memory less what driver and firmware keep, where the driver tells (510).

    `None` for both where the part reports none.
    """
    try:
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            kept = int(memory.reserved)
        except (*_UNKNOWN, pynvml.NVMLError_ArgumentVersionMismatch):
            memory, kept = pynvml.nvmlDeviceGetMemoryInfo(handle), 0
    except _UNKNOWN:
        return None, None
    if memory.total == 0:
        return None, None
    return int(memory.total) - kept, int(memory.used)


def _numa_node(handle: Any) -> int | None:
    """The NUMA node whose CPUs are near, from sysfs: NVML's own answer is about the card's memory."""
    try:
        bus = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()
        # NVML writes the PCI domain with 8 digits, the kernel with 4.
        node = int((_PCI_DEVICES / bus[-12:] / "numa_node").read_text())
    except (pynvml.NVMLError, OSError, ValueError):
        return None
    return node if node >= 0 else None


def _device_nodes(handle: Any, *, placement: Placement | None) -> tuple[str, ...]:
    """The nodes of a card, none where the driver does not tell."""
    try:
        minor = int(pynvml.nvmlDeviceGetMinorNumber(handle))
        if placement is None:
            return (gpu_node(minor),)
        return mig_nodes(
            minor=minor,
            gpu_instance=placement.gpu_instance,
            compute_instance=placement.compute_instance,
            minors=Path(MIG_MINORS).read_text(),
        )
    except (pynvml.NVMLError, OSError):
        return ()


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else int(number)


def _address(handle: Any) -> int:
    """What makes a handle the same as another: NVML hands out pointers to its own records."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
