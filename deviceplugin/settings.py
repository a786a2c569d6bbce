"""What the device plugin is told at start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from deviceplugin.cardsettings import CardSettings
from deviceplugin.handoversettings import HandoverSettings
from kubeapi.listen import split_address


def variable_node_name() -> str:
    """NODE_NAME, as the downward API is commonly wired."""
    return os.environ.get("NODE_NAME", "")


class PluginSettings(CardSettings, HandoverSettings):
    """Makes exactly the cards that a pod was given visible in its containers.

    Every flag is also an environment variable (GPUSHARE_SLOTS) and a key of the --config file (slots).
    """

    node_name: Annotated[str, Field(default_factory=variable_node_name, validate_default=True)]
    """name of the node this runs on; also read from NODE_NAME"""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    """kubelet's folder: sockets are in device-plugins and pod-resources below it"""
    metrics_listen: str = ""
    """HOST:PORT for /metrics, /healthz and /readyz, in a pod '[::]:9449'; not served without it"""
    uninstall: bool = False
    """take annotation and capacities off the node, and end; after the DaemonSet was deleted"""
    all_nodes: bool = False
    """with --uninstall: off every node that carries the annotation"""

    @field_validator("metrics_listen")
    @classmethod
    def _has_host_and_port(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @model_validator(mode="after")
    def _names_a_node(self) -> PluginSettings:
        if self.all_nodes and not self.uninstall:
            raise ValueError("--all-nodes is for --uninstall")
        if (
            self.all_nodes and self.node_name and "node_name" in self.model_fields_set
        ):  # NODE_NAME is not asked
            raise ValueError(
                f"--all-nodes and --node-name {self.node_name} (or GPUSHARE_NODE_NAME) contradict: give one"
            )
        if not self.node_name and not self.all_nodes:
            raise ValueError("--node-name (or GPUSHARE_NODE_NAME): the node's name is needed")
        return self
