"""The device arithmetic of kubelet's device manager: what there is, what is taken, what is written down.

No I/O but the checkpoint file. Errors have the words of Kubernetes 1.36, since users read them in a pod's
status.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1

CHECKPOINT = "kubelet_internal_checkpoint"
"""File name in the device-plugins folder, as kubelet's (1.36)."""
HEALTHY = "Healthy"


class AllocationError(Exception):
    """Why a container cannot have its devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """What one container holds of one resource, and what the plugin answered."""

    pod_uid: str
    container: str
    resource: str
    device_ids: frozenset[str]
    answer: v1beta1.ContainerAllocateResponse


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """A resource's numbers in the node's status."""

    capacity: int
    allocatable: int


class Devices:
    """Every resource's devices and every container's allocations."""

    def __init__(self) -> None:
        self._health: dict[str, dict[str, bool]] = {}
        self._numa: dict[str, dict[str, tuple[int, ...]]] = {}
        self._removed: set[str] = set()
        self._allocations: dict[tuple[str, str, str], Allocation] = {}
        self._in_flight: dict[str, set[str]] = {}

    # What plugins announce.

    def announce(self, *, resource: str, devices: Iterable[v1beta1.Device]) -> None:
        """Replace a resource's devices by a new list."""
        listed = list(devices)
        self._removed.discard(resource)
        self._health[resource] = {device.ID: device.health == HEALTHY for device in listed}
        self._numa[resource] = {device.ID: tuple(n.ID for n in device.topology.nodes) for device in listed}

    def disconnect(self, resource: str) -> None:
        """The plugin went away: all of its devices are unhealthy, and still there."""
        self._health[resource] = dict.fromkeys(self._health.get(resource, {}), False)

    def remove(self, resource: str) -> None:
        """The plugin stayed away for too long: the resource's capacity is zero from now on."""
        self._health.pop(resource, None)
        self._removed.add(resource)

    def is_plugin_resource(self, resource: str) -> bool:
        """Whether a plugin announced it, or a container holds some of it."""
        return resource in self._health or any(key[2] == resource for key in self._allocations)

    def healthy(self, resource: str) -> set[str]:
        """The IDs that may be handed out."""
        return {device for device, good in self._health.get(resource, {}).items() if good}

    def numa(self, *, resource: str, device: str) -> tuple[int, ...]:
        """The NUMA nodes that the plugin named for a device."""
        return self._numa.get(resource, {}).get(device, ())

    def resources(self) -> list[str]:
        """The resources that plugins announced."""
        return list(self._health)

    def counts(self) -> dict[str, Count]:
        """The numbers for the node's status: capacity counts all devices, allocatable the healthy ones."""
        counts = {
            resource: Count(capacity=len(health), allocatable=sum(health.values()))
            for resource, health in self._health.items()
        }
        return counts | {resource: Count(capacity=0, allocatable=0) for resource in self._removed}

    # What containers hold.

    def allocation(self, *, pod_uid: str, container: str, resource: str) -> Allocation | None:
        """What a container holds of a resource, or None."""
        return self._allocations.get((pod_uid, container, resource))

    def allocations(self, *, pod_uid: str, container: str) -> list[Allocation]:
        """What a container holds, over all resources."""
        return [held for key, held in self._allocations.items() if key[:2] == (pod_uid, container)]

    def in_use(self, resource: str) -> set[str]:
        """IDs that containers hold, and IDs of calls under way."""
        held = (held.device_ids for key, held in self._allocations.items() if key[2] == resource)
        return self._in_flight.get(resource, set()).union(*held)

    def require(self, *, pod_uid: str, container: str, resource: str, needed: int) -> int:
        """How many devices are still to be found, 0 if the container holds them; raises `AllocationError`."""
        held = self.allocation(pod_uid=pod_uid, container=container, resource=resource)
        if held and len(held.device_ids) != needed:
            raise AllocationError(
                f'pod "{pod_uid}" container "{container}" changed request for resource "{resource}" '
                f"from {len(held.device_ids)} to {needed}"
            )
        healthy = self.healthy(resource)
        if resource not in self._health:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held and not healthy >= held.device_ids:
            raise AllocationError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}"
            )
        return 0 if held else needed

    def available(self, *, resource: str, needed: int) -> set[str]:
        """The healthy IDs that nobody holds; raises `AllocationError` if they are fewer than needed."""
        free = self.healthy(resource) - self.in_use(resource)
        if len(free) < needed:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(free)}"
            )
        return free

    def mark(self, *, resource: str, device_ids: Iterable[str]) -> None:
        """Keep IDs from being chosen again while the call for them is under way."""
        self._in_flight.setdefault(resource, set()).update(device_ids)

    def recompute(self) -> None:
        """Forget the marks: only what is committed counts as taken.

        kubelet does so after a failure, and since 1.36 whenever PodResources is listed: with allocations
        under way at the same time an ID can go out twice.
        """
        self._in_flight.clear()

    def commit(self, allocation: Allocation) -> None:
        """A container got its devices."""
        self._allocations[allocation.pod_uid, allocation.container, allocation.resource] = allocation
        self._in_flight.get(allocation.resource, set()).difference_update(allocation.device_ids)

    def holders(self) -> set[str]:
        """The UIDs of the pods that hold devices."""
        return {key[0] for key in self._allocations}

    def free(self, pod_uids: Iterable[str]) -> bool:
        """Release everything these pods hold; says whether they held anything."""
        freed = set(pod_uids)
        keys = [key for key in self._allocations if key[0] in freed]
        for key in keys:
            del self._allocations[key]
        return bool(keys)

    # What survives a restart.

    def save(self, path: Path) -> None:
        """Write the checkpoint, atomically, with kubelet's keys (without its checksum)."""
        entries = [
            {
                "PodUID": held.pod_uid,
                "ContainerName": held.container,
                "ResourceName": held.resource,
                "DeviceIDs": self._by_numa(held),
                "AllocResp": base64.b64encode(held.answer.SerializeToString()).decode(),
            }
            for held in self._allocations.values()
        ]
        registered = {resource: sorted(self.healthy(resource)) for resource in self._health}
        checkpoint = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}}
        draft = path.with_name(path.name + ".new")
        draft.write_text(json.dumps(checkpoint))
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Devices":
        """Read a checkpoint: the allocations, and the resources, without devices until they register."""
        devices = cls()
        if not path.exists():
            return devices
        checkpoint = json.loads(path.read_text())["Data"]
        for entry in checkpoint["PodDeviceEntries"]:
            answer = v1beta1.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
            devices.commit(
                Allocation(
                    pod_uid=entry["PodUID"],
                    container=entry["ContainerName"],
                    resource=entry["ResourceName"],
                    device_ids=frozenset().union(*entry["DeviceIDs"].values()),
                    answer=answer,
                )
            )
        devices._health = {resource: {} for resource in checkpoint["RegisteredDevices"]}
        return devices

    def _by_numa(self, held: Allocation) -> Mapping[str, list[str]]:
        by_numa: dict[str, list[str]] = {}
        for device in sorted(held.device_ids):
            for node in self.numa(resource=held.resource, device=device) or (-1,):
                by_numa.setdefault(str(node), []).append(device)
        return by_numa
