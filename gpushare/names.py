"""Every name that gpushare reads or writes in Kubernetes, derived from the memory resource.

`aliyun.com/gpu-mem` gives the domain `aliyun.com` (annotations and companion resources) and the prefix
`ALIYUN_COM_GPU_MEM` (the classic pod annotations and container environment, which existing applications
read). No other module spells one of these names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpushare.errors import ResourceNameError, quoted

DEFAULT_MEMORY_RESOURCE = "aliyun.com/gpu-mem"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""The environment variable by which NVIDIA's container runtime learns which cards to inject."""

# An extended resource's name: a DNS-1123 sub-domain, a slash, a qualified name (Kubernetes validation, 1.36).
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_EXTENDED_RESOURCE = re.compile(
    rf"{_DNS_LABEL}(\.{_DNS_LABEL})*/[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
)
# The classic annotations have no domain, and Kubernetes allows a name 63 characters.
_LONGEST_SUFFIX = "_ASSUME_TIME"
_LONGEST_RESOURCE = 63 - len(_LONGEST_SUFFIX)
_TAKEN = {"k8s.io": "Kubernetes' own", "nvidia.com": "whole cards, announced by NVIDIA's own device plugin"}
_COMPANIONS = frozenset({"gpu-slot", "gpu-count"})  # the other resources of the domain


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """One profile of names. Build it with `Names.of(resource)`."""

    domain: str
    """Owner of the annotations and companion resources, `aliyun.com`."""
    memory: str
    """Resource: units of card memory a container may use, in total over its cards."""
    slot: str
    """Resource: how many cards a container sees."""
    count: str
    """Resource: number of cards of a node."""
    cards: str
    """Node annotation: the node's cards as JSON (`gpushare.cards`)."""
    allocation: str
    """Pod annotation: node, cards and amounts of a bound pod as JSON (`gpushare.allocation`)."""
    policy: str
    """Pod annotation, by the user: `binpack` or `spread` for this pod."""
    index: str
    """Pod annotation and container env: card index, `1` or `0,2`."""
    pod_memory: str
    """Pod annotation and container env: the pod's demand on a card."""
    container_memory: str
    """Container env: the container's units on a card."""
    card_memory: str
    """Pod annotation and container env: the card's size."""
    assume_time: str
    """Pod annotation: when the card was chosen, nanoseconds since the epoch."""
    assigned: str
    """Pod annotation: `false` at bind, `true` once kubelet was answered."""

    @classmethod
    def of(cls, memory: str = DEFAULT_MEMORY_RESOURCE) -> Names:
        """Derive every name from the memory resource; raises `ResourceNameError` for an impossible one."""
        if not _EXTENDED_RESOURCE.fullmatch(memory):
            raise ResourceNameError(
                f"resource {quoted(memory)} is not an extended resource's name: it must read domain/name, "
                f"for example {DEFAULT_MEMORY_RESOURCE}"
            )
        if len(memory) > _LONGEST_RESOURCE:
            raise ResourceNameError(
                f"resource {quoted(memory)} is longer than {_LONGEST_RESOURCE} characters: Kubernetes would "
                f"refuse the annotations named after it"
            )
        domain, _, name = memory.partition("/")
        # Kubernetes' own rule (IsExtendedResourceName) goes by the text, not by whole labels.
        if domain.endswith("kubernetes.io") or memory.startswith("requests."):
            raise ResourceNameError(
                f"resource {quoted(memory)}: Kubernetes keeps names with kubernetes.io/ in them, "
                f"and those that start with requests., for itself"
            )
        owner = next((each for each in _TAKEN if domain == each or domain.endswith(f".{each}")), None)
        if owner:
            raise ResourceNameError(
                f"resource {quoted(memory)}: resources of {owner} are {_TAKEN[owner]}: take "
                f"{DEFAULT_MEMORY_RESOURCE}, or a name of your own domain"
            )
        if name in _COMPANIONS:
            raise ResourceNameError(f"resource {quoted(memory)}: gpushare gives this name another meaning")
        prefix = re.sub(r"[^A-Z0-9]", "_", memory.upper())
        return cls(
            domain=domain,
            memory=memory,
            slot=f"{domain}/gpu-slot",
            count=f"{domain}/gpu-count",
            cards=f"{domain}/gpu-cards",
            allocation=f"{domain}/gpu-allocation",
            policy=f"{domain}/gpu-policy",
            index=f"{prefix}_IDX",
            pod_memory=f"{prefix}_POD",
            container_memory=f"{prefix}_CONTAINER",
            card_memory=f"{prefix}_DEV",
            assume_time=f"{prefix}{_LONGEST_SUFFIX}",
            assigned=f"{prefix}_ASSIGNED",
        )
