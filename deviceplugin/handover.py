"""How a container gets its cards: the device list strategies, with NVIDIA's names and meanings.

The classic variables go to every container. How the runtime learns which cards to inject differs:

    envvar            NVIDIA_VISIBLE_DEVICES lists the UUIDs
    volume-mounts     /dev/null is mounted at …/nvidia-container-devices/UUID for each: unlike a variable, a
                      container without privileges cannot ask for more (the runtime has to be set to that)
    cdi-cri           CDI device names, in the CRI's own field
    cdi-annotations   CDI device names, in an annotation for runtimes without that field

Several may be chosen, for nodes with different runtimes. A CDI name only means something where a CDI spec
lists it: `nvidia-ctk cdi generate` makes one that knows cards and MIG instances by UUID.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from deviceplugin.answers import Answer, refusal
from deviceplugin.devicenodes import common_nodes
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.pods import NodePod
from gpushare.names import VISIBLE_DEVICES

MOUNTS = PurePosixPath("/var/run/nvidia-container-devices")
"""Where NVIDIA's runtime looks for mounts that name cards."""
NO_CARDS = "void"
"""The value of NVIDIA_VISIBLE_DEVICES with which NVIDIA's runtime injects nothing by itself. Images are built
with `all`, and CDI specs from before 2024 do not overwrite that."""
CDI_KIND = "nvidia.com/gpu"
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
DEV_ROOT = PurePosixPath("/")

_ANNOTATION_NAME = "gpushare-device-plugin"


class Strategy(enum.StrEnum):
    """One way to say which cards a container sees."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"

    @property
    def is_cdi(self) -> bool:
        return self in (Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """What was configured; `response` applies it to one container's answer."""

    strategies: frozenset[Strategy] = frozenset({Strategy.ENVVAR})
    pass_device_specs: bool = False
    """Whether the device nodes are named as well; with a strategy other than CDI, which brings its own."""
    cdi_kind: str = CDI_KIND
    cdi_annotation_prefix: str = CDI_ANNOTATION_PREFIX
    dev_root: PurePosixPath = DEV_ROOT
    """The host's folder with NVIDIA's `dev` in it: another than `/` where a container holds the driver."""
    common_nodes: Callable[[], tuple[str, ...]] = common_nodes

    def response(
        self,
        answer: Answer,
        *,
        pod: NodePod,
        container: str,
        device_nodes: Callable[[str], tuple[str, ...]],
    ) -> v1beta1.ContainerAllocateResponse:
        """Say to kubelet what the container gets; the same answer always gives the same response.

        `device_nodes` tells the nodes of a card by its UUID. Raises `PodError` where nodes are to be passed
        and those of a card are not known.
        """
        uuids = [card.uuid for card in answer.cards]
        response = v1beta1.ContainerAllocateResponse(envs={**answer.envs, VISIBLE_DEVICES: NO_CARDS})
        if Strategy.ENVVAR in self.strategies:
            response.envs[VISIBLE_DEVICES] = ",".join(uuids)
        if Strategy.VOLUME_MOUNTS in self.strategies:
            response.envs[VISIBLE_DEVICES] = str(MOUNTS)
            for uuid in uuids:
                response.mounts.add(host_path="/dev/null", container_path=str(MOUNTS / uuid))
        names = [f"{self.cdi_kind}={uuid}" for uuid in uuids]
        if Strategy.CDI_CRI in self.strategies:
            for name in names:
                response.cdi_devices.add(name=name)
        if Strategy.CDI_ANNOTATIONS in self.strategies:
            # The annotation is the container's, not the pod's; the UID keeps it apart from other plugins'.
            key = f"{self.cdi_annotation_prefix}{_ANNOTATION_NAME}_{pod.metadata.uid}"
            response.annotations[key] = ",".join(names)
        if self.pass_device_specs:
            nodes = list(self.common_nodes())
            for card in answer.cards:
                own = device_nodes(card.uuid)
                if not own:
                    problem = f"the device nodes of card {card.index} ({card.uuid}) are not known"
                    remedy = "run the device plugin without --pass-device-specs on this node"
                    raise refusal(pod, container=container, problem=problem, remedy=remedy)
                nodes += [node for node in own if node not in nodes]  # instances share their card's
            for node in nodes:
                host_path = str(self.dev_root / node.removeprefix("/"))
                response.devices.add(container_path=node, host_path=host_path, permissions="rw")
        return response


DEFAULT_HANDOVER = Handover()
