"""What the device plugin is told at start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from deviceplugin.cardsettings import CardSettings
from deviceplugin.modes import DEFAULT_SLOTS

MOST_SLOTS = 1024
"""Per card. More containers than that on one card is a typo, and every slot costs kubelet."""


class PluginSettings(CardSettings):
    """Flags before environment before defaults; see `kubeapi.settings`."""

    node_name: Annotated[
        str, Field(default_factory=lambda: os.environ.get("NODE_NAME", ""), validate_default=True)
    ]
    """name of the node this runs on; also read from NODE_NAME"""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    """kubelet's folder: sockets are in device-plugins and pod-resources below it"""
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] = DEFAULT_SLOTS
    """how many containers may see one card"""

    @field_validator("node_name")
    @classmethod
    def _is_given(cls, value: str) -> str:
        if not value:
            raise ValueError("the node's name is needed")
        return value
