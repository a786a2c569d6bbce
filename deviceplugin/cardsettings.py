"""Settings about the node's cards: which are shared, how much of them, and when one counts as broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, field_validator

from deviceplugin.errors import SettingError
from deviceplugin.health import Thresholds
from deviceplugin.healthxids import HealthSwitches
from deviceplugin.sharing import Sharing
from kubeapi.settings import Settings


class CardSettings(Settings):
    """The part of the device plugin's settings that its card source takes."""

    cards: str = "nvml"
    """'nvml', or a YAML file of simulated cards"""
    exclude: str = ""
    """cards to leave out, by index or UUID, comma separated; NODE:CARD for one node only"""
    memory_of: str = ""
    """units of cards that report no memory, as CARD=UNITS or NODE:CARD=UNITS, comma separated"""
    reserve: Annotated[int, Field(ge=0)] = 0
    """units of every card that are kept back"""
    health_interval: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """seconds between two probes of a card"""
    health_failures: Annotated[int, Field(ge=1)] = 3
    """failed probes in a row that make a card unhealthy"""
    health_recoveries: Annotated[int, Field(ge=1)] = 3
    """good probes in a row that make it healthy again"""
    disable_healthchecks: Annotated[
        str, Field(default_factory=lambda: _nvidias("DP_DISABLE_HEALTHCHECKS"), validate_default=True)
    ]
    """'all', 'xids', or XIDs to ignore besides 13, 31, 43, 45, 68, 109; also read from
    DP_DISABLE_HEALTHCHECKS"""
    enable_healthchecks: Annotated[
        str, Field(default_factory=lambda: _nvidias("DP_ENABLE_HEALTHCHECKS"), validate_default=True)
    ]
    """'all', or XIDs that count whatever is disabled; also read from DP_ENABLE_HEALTHCHECKS"""

    @field_validator("exclude")
    @classmethod
    def _names_cards(cls, value: str) -> str:
        return _checked(value, lambda: Sharing.parse(node="", exclude=value))

    @field_validator("memory_of")
    @classmethod
    def _names_sizes(cls, value: str) -> str:
        return _checked(value, lambda: Sharing.parse(node="", memory_of=value))

    @field_validator("disable_healthchecks", "enable_healthchecks")
    @classmethod
    def _names_xids(cls, value: str) -> str:
        return _checked(value, lambda: HealthSwitches.parse(disable=value))

    def sharing(self, *, node: str) -> Sharing:
        """The rules for the cards of `node`."""
        return Sharing.parse(
            node=node, unit=self.unit, exclude=self.exclude, memory_of=self.memory_of, reserve=self.reserve
        )

    @property
    def switches(self) -> HealthSwitches:
        return HealthSwitches.parse(disable=self.disable_healthchecks, enable=self.enable_healthchecks)

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(failures=self.health_failures, recoveries=self.health_recoveries)


def _nvidias(variable: str) -> str:
    """A variable as operators of NVIDIA's device plugin set it."""
    return os.environ.get(variable, "")


def _checked(value: str, parse: Callable[[], object]) -> str:
    try:
        parse()
    except SettingError as error:
        raise ValueError(str(error)) from error
    return value
