"""What one look at NVML shows, as values: the cards that answered, and what is known of the others."""

from __future__ import annotations

from dataclasses import dataclass

from deviceplugin.health import Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a MIG instance lies on its GPU."""

    number: int
    """NVML's number of the instance on its GPU, as `nvidia-smi -L` counts devices."""
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A card that answered."""

    gpu: int
    """NVML's index of its GPU in this look."""
    gpu_uuid: str
    uuid: str
    """Its own UUID: that of the GPU, or of the MIG instance."""
    usable: int | None
    """Bytes, less what driver and firmware keep; `None` where NVML reports no memory."""
    used: int | None = None
    """Bytes in use now."""
    model: str = ""
    numa: int | None = None
    nodes: tuple[str, ...] = ()
    """Paths of its device nodes."""
    placement: Placement | None = None
    """For MIG instances."""
    fault: Fault | None = None
    """What the driver has against it, though it answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """A card, or a GPU with all its instances, that did not answer."""

    gpu: int
    uuid: str
    """UUID of the card or the GPU; empty where not even that could be read."""
    fault: Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at all GPUs."""

    cards: tuple[Sighting, ...] = ()
    silent: tuple[Silence, ...] = ()
    read: frozenset[str] = frozenset()
    """UUIDs of the GPUs that were read to the end: an instance that they no longer list was taken away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Xid:
    """An error of the driver's, on a GPU or on some of its instances."""

    gpu_uuid: str
    code: int
    gpu_instance: int | None = None
    """`None` where the whole GPU is concerned."""
    compute_instance: int | None = None

    def concerns(self, placement: Placement | None) -> bool:
        """Whether a card of this GPU is hit."""
        if placement is None:
            return True
        return self.gpu_instance in (None, placement.gpu_instance) and self.compute_instance in (
            None,
            placement.compute_instance,
        )
