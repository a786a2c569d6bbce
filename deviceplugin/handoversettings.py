"""Settings about what kubelet counts and how containers get their cards."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from deviceplugin.handover import CDI_ANNOTATION_PREFIX, CDI_KIND, DEV_ROOT, Handover, Strategy
from deviceplugin.modes import DEFAULT_MOST_DEVICES, DEFAULT_SLOTS
from gpushare.errors import quoted
from kubeapi.settings import Settings

MOST_SLOTS = 1024
"""Per card. More containers than that on one card is a typo, and every slot costs kubelet."""

# Vendor and class of a CDI kind, by the CDI specification 0.8; Kubernetes' rule for an annotation's prefix.
_CDI_KIND = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/")


class HandoverSettings(Settings):
    """The part of the device plugin's settings that kubelet's answers depend on."""

    mode: Literal["slots", "units"] = "slots"
    """what kubelet counts: a few slots per card, or every unit of memory (for GiB, and for clusters where
    nothing may be added to pods)"""
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] = DEFAULT_SLOTS
    """how many containers may see one card, in slots mode"""
    max_devices: Annotated[int, Field(ge=1)] = DEFAULT_MOST_DEVICES
    """devices that kubelet may be given; its work grows with their square"""
    device_list_strategy: Annotated[tuple[str, ...], NoDecode] = (Strategy.ENVVAR.value,)
    """how containers get their cards: envvar, volume-mounts, cdi-cri, cdi-annotations; several with commas"""
    device_id_strategy: str = "uuid"
    """how cards are named to the runtime: uuid"""
    pass_device_specs: bool = False
    """name the device nodes too, which kubelet's CPU manager needs (not with CDI alone)"""
    nvidia_dev_root: PurePosixPath = DEV_ROOT
    """the host's folder whose dev has NVIDIA's device nodes; another where a container holds the driver"""
    cdi_kind: str = CDI_KIND
    """vendor and class of the CDI names, as the node's CDI spec has them: KIND=UUID is a card"""
    cdi_annotation_prefix: str = CDI_ANNOTATION_PREFIX
    """what the keys of cdi-annotations begin with, as the runtime expects it"""

    @field_validator("device_list_strategy", mode="before")
    @classmethod
    def _are_strategies(cls, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple):
            return value
        strategies = [name.strip() for text in texts for name in str(text).split(",") if name.strip()]
        known = [strategy.value for strategy in Strategy]
        unknown = [name for name in strategies if name not in known]
        if unknown or not strategies:
            raise ValueError(f"{quoted(unknown[0] if unknown else '')} is none of {', '.join(known)}")
        return tuple(strategies)

    @field_validator("device_id_strategy")
    @classmethod
    def _is_uuid(cls, value: str) -> str:
        if value == "index":
            raise ValueError(
                "cards are named by UUID here: an index shifts when a card goes, and kubelet gives restarted "
                "containers the answer it recorded"
            )
        if value != "uuid":
            raise ValueError("the only strategy is uuid")
        return value

    @field_validator("cdi_kind")
    @classmethod
    def _is_kind(cls, value: str) -> str:
        if not _CDI_KIND.fullmatch(value):
            raise ValueError("a CDI kind reads vendor/class, for example nvidia.com/gpu")
        return value

    @field_validator("cdi_annotation_prefix")
    @classmethod
    def _is_prefix(cls, value: str) -> str:
        if not _PREFIX.fullmatch(value) or len(value) > 254:
            raise ValueError("a prefix is a domain and a slash, for example cdi.k8s.io/")
        return value

    @field_validator("nvidia_dev_root")
    @classmethod
    def _is_absolute(cls, value: PurePosixPath) -> PurePosixPath:
        if not value.is_absolute():
            raise ValueError("the folder is named from the host's root, for example /run/nvidia/driver")
        return value

    @model_validator(mode="after")
    def _has_use_for_nodes(self) -> HandoverSettings:
        if self.pass_device_specs and all(Strategy(name).is_cdi for name in self.device_list_strategy):
            raise ValueError(
                "--pass-device-specs is of no use with CDI alone, which brings the device nodes itself: "
                "leave it out, or add envvar or volume-mounts to --device-list-strategy"
            )
        return self

    @property
    def handover(self) -> Handover:
        return Handover(
            strategies=frozenset(Strategy(name) for name in self.device_list_strategy),
            pass_device_specs=self.pass_device_specs,
            cdi_kind=self.cdi_kind,
            cdi_annotation_prefix=self.cdi_annotation_prefix,
            dev_root=self.nvidia_dev_root,
        )
