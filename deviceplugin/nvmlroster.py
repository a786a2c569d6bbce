"""Every card that was ever seen on this node since the start, its index and its health: decisions only.

A card keeps its index as long as the plugin runs, whatever NVML renumbers, and it stays on the roster when
it dies: pods hold it still. A GPU has NVML's index (PCI bus order). The instances of a GPU in MIG mode get
`(index of the GPU + 1) × 100 + number of the instance`: instance 3 of GPU 0 is 103, of GPU 1 it is 203. So
they never take a GPU's number, the other GPUs keep theirs, and a person can read it.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from deviceplugin.counts import CardCounts
from deviceplugin.health import Fault, Health, Thresholds
from deviceplugin.healthxids import HealthSwitches
from deviceplugin.nvmlsightings import Look, Placement, Sighting, Xid
from deviceplugin.sharing import Sharing
from gpushare.cards import Card

log = logging.getLogger(__name__)

INSTANCES = 100
"""Indices set aside for the instances of one GPU."""
_GONE = Fault(text="the driver no longer finds it", is_verdict=True)


@dataclass(kw_only=True, slots=True)
class _Entry:
    """A card, shared or left out."""

    index: int
    gpu: int
    """NVML's index of its GPU when last seen."""
    gpu_uuid: str
    placement: Placement | None
    card: Card | None
    """As announced but for its health; `None` for one that is left out or has no size."""
    nodes: tuple[str, ...] = ()
    health: Health = field(default_factory=Health)


class Roster:
    """The cards of one node."""

    def __init__(
        self,
        *,
        sharing: Sharing,
        switches: HealthSwitches,
        thresholds: Thresholds,
        counts: CardCounts,
    ) -> None:
        self._sharing = sharing
        self._switches = switches
        self._thresholds = thresholds
        self._counts = counts
        self._entries: dict[str, _Entry] = {}
        self._gpus: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._has_looked = False
        self.has_missing = False
        """Whether a GPU is gone or did not answer in the last look: opening NVML anew may bring it back."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """The shared cards as they are now, by index."""
        shared = ((entry, entry.card) for entry in self._entries.values() if entry.card)
        cards = (_with_health(card, health=entry.health) for entry, card in shared)
        return tuple(sorted(cards, key=lambda card: card.index))

    def device_nodes(self, uuid: str) -> tuple[str, ...]:
        """Paths in `/dev` of a card's own nodes."""
        entry = self._entries.get(uuid)
        return entry.nodes if entry else ()

    def take(self, look: Look) -> None:
        """Learn from a look: new cards, good probes, failed ones, cards that are gone."""
        seen = {sighting.uuid for sighting in look.cards}
        for uuid, entry in list(self._entries.items()):
            # Listed to the end and without it: MIG was reconfigured. Taken away on purpose, not broken.
            if uuid not in seen and entry.gpu_uuid in look.read:
                self._forget(uuid)
        homes = {uuid: _home(each.gpu_uuid, each.placement) for uuid, each in self._entries.items()}
        homes |= {each.uuid: _home(each.gpu_uuid, each.placement) for each in look.cards}
        sharers = Counter(homes.values())
        for sighting in look.cards:
            self._see(sighting, sharers=sharers[homes[sighting.uuid]])
        for uuid in self._entries.keys() - seen:
            self._counts.used.pop(uuid, None)
            self._probe_failed(uuid, fault=_fault_of(uuid, entry=self._entries[uuid], look=look))
        missed = [each for each in look.silent if not self._sharing.excludes((each.uuid, str(each.gpu)))]
        for silence in missed:
            self._say(f"gpu {silence.gpu}", silence.uuid, f"does not answer: {silence.fault.text}")
        for uuid in look.read.difference(sighting.gpu_uuid for sighting in look.cards):
            self._say("gpu", uuid, "is in MIG mode and has no instances: nothing of it is shared")
        shared = {uuid for uuid, entry in self._entries.items() if entry.card}
        self.has_missing = bool(missed) or not seen.issuperset(shared)
        if not self._has_looked:
            self._has_looked = True
            silent = {name for each in look.silent for name in (each.uuid, str(each.gpu))}
            self._sharing.tell_of_unknown(silent.union(look.read, *map(self._names, look.cards)))

    def fail(self, fault: Fault, *, gpu: int | None = None) -> None:
        """A look did not succeed; `gpu` is NVML's index of the one that is to blame, if it is one."""
        for uuid, entry in self._entries.items():
            if gpu in (None, entry.gpu):
                self._probe_failed(uuid, fault=fault)

    def hit(self, xid: Xid) -> None:
        """Learn of an XID."""
        fault = Fault(text=f"XID {xid.code}", is_verdict=True)
        counts = self._switches.counts(xid.code)
        for uuid, entry in self._entries.items():
            if entry.gpu_uuid == xid.gpu_uuid and xid.concerns(entry.placement):
                self._counts.xids[uuid, xid.code] += 1
                log.warning("xid card=%s index=%d code=%d counts=%s", uuid, entry.index, xid.code, counts)
                if counts:
                    self._set(uuid, entry.health.after_fault(fault, limits=self._thresholds))

    def _see(self, sighting: Sighting, *, sharers: int) -> None:
        entry = self._entries.get(sighting.uuid)
        if entry is None:
            entry = self._entries[sighting.uuid] = _Entry(
                index=self._new_index(sighting),
                gpu=sighting.gpu,
                gpu_uuid=sighting.gpu_uuid,
                placement=sighting.placement,
                card=None,
            )
        entry.gpu, entry.placement = sighting.gpu, sighting.placement
        entry.nodes = sighting.nodes
        entry.card = self._card(sighting, index=entry.index, sharers=sharers)
        if sighting.used is not None:
            self._counts.used[sighting.uuid] = sighting.used
        if sighting.fault is None:
            self._set(sighting.uuid, entry.health.after_success(self._thresholds))
        else:
            self._probe_failed(sighting.uuid, fault=sighting.fault)

    def _card(self, sighting: Sighting, *, index: int, sharers: int) -> Card | None:
        """What is announced of a card that answers, if anything."""
        names = self._names(sighting)
        if self._sharing.excludes(names):
            return None
        # Compute instances of one GPU instance have its memory in common, silent ones too.
        usable = None if sighting.usable is None else sighting.usable // sharers
        units = self._sharing.units(usable, names=names[:2])
        if units is None:
            self._say("card", sighting.uuid, "skipped: it reports no memory; give it a size with --memory-of")
        elif units == 0:
            self._say("card", sighting.uuid, f"skipped: less than one {self._sharing.unit} is left of it")
        if not units:
            return None
        return Card(index=index, uuid=sighting.uuid, memory=units, model=sighting.model, numa=sighting.numa)

    def _names(self, sighting: Sighting) -> tuple[str, ...]:
        """What a card goes by in settings: its own UUID and index, and those of its GPU."""
        index, gpu = self._entries[sighting.uuid].index, self._gpus[sighting.gpu_uuid]
        return sighting.uuid, str(index), sighting.gpu_uuid, str(gpu)

    def _new_index(self, sighting: Sighting) -> int:
        if sighting.gpu_uuid not in self._gpus:
            self._gpus[sighting.gpu_uuid] = _free(sighting.gpu, taken=self._gpus.values())
        gpu = self._gpus[sighting.gpu_uuid]
        if sighting.placement is None:
            return gpu
        natural = (gpu + 1) * INSTANCES + sighting.placement.number
        return _free(natural, taken=[entry.index for entry in self._entries.values()])

    def _probe_failed(self, uuid: str, *, fault: Fault) -> None:
        entry = self._entries[uuid]
        if entry.card is None:
            return
        self._counts.failed_probes[uuid] += 1
        if self._switches.probes:
            self._set(uuid, entry.health.after_fault(fault, limits=self._thresholds))

    def _set(self, uuid: str, health: Health) -> None:
        entry = self._entries[uuid]
        if health.is_healthy != entry.health.is_healthy:
            reason = health.reason or "answers again"
            log.warning(
                "health index=%d uuid=%s healthy=%s reason=%r", entry.index, uuid, health.is_healthy, reason
            )
        entry.health = health

    def _forget(self, uuid: str) -> None:
        log.warning("card taken away index=%d uuid=%s", self._entries.pop(uuid).index, uuid)
        self._counts.used.pop(uuid, None)

    def _say(self, what: str, uuid: str, text: str) -> None:
        """Log a complaint once, and again when it is another."""
        key = f"{what} {uuid}"
        if self._said.get(key) != text:
            self._said[key] = text
            log.warning("%s uuid=%s %s", what, uuid, text)


def _fault_of(uuid: str, *, entry: _Entry, look: Look) -> Fault:
    """What is known of a card that a look does not show."""
    for silence in look.silent:
        if silence.uuid in (uuid, entry.gpu_uuid) or (not silence.uuid and silence.gpu == entry.gpu):
            return silence.fault
    return _GONE


def _home(gpu_uuid: str, placement: Placement | None) -> tuple[str, int | None]:
    """What a card's memory belongs to: a GPU, or a GPU instance of it."""
    return gpu_uuid, placement.gpu_instance if placement else None


def _free(wanted: int, *, taken: Collection[int]) -> int:
    return next(index for index in itertools.count(wanted) if index not in taken)


def _with_health(card: Card, *, health: Health) -> Card:
    if health.is_healthy:
        return card
    return msgspec.structs.replace(card, healthy=False, reason=health.reason)
