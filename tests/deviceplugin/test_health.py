"""When a card turns, and which XIDs count."""

import pytest

from deviceplugin.errors import SettingError
from deviceplugin.health import Fault, Health, Thresholds
from deviceplugin.healthxids import APPLICATION_XIDS, HealthSwitches

LIMITS = Thresholds(failures=3, recoveries=2)
FAILED = Fault(text="Unknown Error")
LOST = Fault(text="GPU is lost", is_verdict=True)


def after(events: str, health: Health | None = None) -> Health:
    """A card after good probes (`+`), failed ones (`-`) and verdicts (`!`)."""
    health = health or Health()
    for event in events:
        if event == "+":
            health = health.after_success(LIMITS)
        else:
            health = health.after_fault(FAILED if event == "-" else LOST, limits=LIMITS)
    return health


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("", ""),
        ("--", ""),
        ("---", "Unknown Error"),
        ("--+--", ""),
        ("--+---", "Unknown Error"),
        ("!", "GPU is lost"),
        ("-!", "GPU is lost"),
        ("!---", "GPU is lost"),
        ("---!", "Unknown Error"),
        ("!+", "GPU is lost"),
        ("!++", ""),
        ("!+-+", "GPU is lost"),
        ("!+-++", ""),
        ("!+!++", ""),
        ("!++--", ""),
        ("!++---", "Unknown Error"),
    ],
)
def test_N2_a_card_turns_after_so_many_in_a_row(events: str, reason: str) -> None:
    assert after(events).reason == reason
    assert after(events).is_healthy is not bool(reason)


def test_one_failure_and_one_success_can_be_enough() -> None:
    quick = Thresholds(failures=1, recoveries=1)
    sick = Health().after_fault(FAILED, limits=quick)
    assert not sick.is_healthy
    assert sick.after_success(quick).is_healthy


def critical(disable: str, enable: str) -> set[int]:
    """Of some XIDs those that count."""
    switches = HealthSwitches.parse(disable=disable, enable=enable)
    return {xid for xid in (13, 31, 48, 79, 109) if switches.counts(xid)}


@pytest.mark.parametrize(
    ("disable", "enable", "expected"),
    [
        ("", "", {48, 79}),
        ("79", "", {48}),
        (" 79 , 48,", "", set()),
        ("all", "", set()),
        ("xids", "", set()),
        ("48,XIDS", "", set()),
        ("", "13", {13, 48, 79}),
        ("48", "48", {48, 79}),
        ("all", "31,79", {31, 79}),
        ("", "all", {13, 31, 48, 79, 109}),
        ("all", "all", {13, 31, 48, 79, 109}),
    ],
)
def test_N1_switches_are_read_as_nvidias_plugin_reads_them(
    disable: str, enable: str, expected: set[int]
) -> None:
    assert critical(disable, enable) == expected


def test_application_faults_are_those_of_nvidias_plugin() -> None:
    assert {13, 31, 43, 45, 68, 109} == APPLICATION_XIDS


@pytest.mark.parametrize(("disable", "probes"), [("", True), ("xids", True), ("79", True), ("All", False)])
def test_only_all_switches_the_probes_off(disable: str, *, probes: bool) -> None:
    assert HealthSwitches.parse(disable=disable).probes is probes


@pytest.mark.parametrize("text", ["none", "79;48", "-1", "7.9", "xid", "²"])
def test_a_word_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="neither 'all', 'xids' nor the number of an XID"):
        HealthSwitches.parse(disable=text)
    with pytest.raises(SettingError):
        HealthSwitches.parse(enable=text)
