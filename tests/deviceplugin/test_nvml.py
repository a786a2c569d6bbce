"""NVML at start: a driver that comes late. What it finds can only be tested where there is a driver."""

import re

import pynvml
import pytest

import deviceplugin.nvml
from deviceplugin.errors import SourceError
from deviceplugin.nvml import NvmlCards
from gpushare.cards import Card
from kubeapi.backoff import Backoff
from tests.deviceplugin.pods import card


async def test_N9_nvml_that_fails_three_times_and_then_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter(["Driver Not Loaded"] * 3)

    def discover(*, unit: str) -> tuple[Card, ...]:
        for failure in failures:
            raise SourceError(failure)
        return (card(0),)

    monkeypatch.setattr(deviceplugin.nvml, "discover", discover)
    source = NvmlCards(unit="MiB", backoff=Backoff(first=0.001))
    follow = source.follow()
    assert await anext(follow) == (card(0),)
    await follow.aclose()  # type: ignore[attr-defined]
    assert caplog.text.count("no cards yet") == 3


def test_without_a_driver_the_reason_is_nvmls_own() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        with pytest.raises(SourceError, match=re.escape(f"NVML does not answer: {error}")):
            deviceplugin.nvml.discover(unit="MiB")
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has NVIDIA's driver")
