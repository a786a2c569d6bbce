"""What of the cards is shared: the texts of the settings, and what they do to simulated cards."""

from pathlib import Path

import pytest

from deviceplugin.cli import PROGRAM
from deviceplugin.errors import SettingError
from deviceplugin.settings import PluginSettings
from deviceplugin.sharing import Sharing
from deviceplugin.simulated import SimulatedCards
from deviceplugin.sources import card_source
from gpushare.cards import Card
from kubeapi.settings import load

CARDS = """
cards:
- {uuid: GPU-a, memory: 16000}
- {uuid: GPU-b, memory: 8000, healthy: false, reason: taken out}
- {uuid: GPU-c, memory: 500}
"""


def settings(*argv: str) -> PluginSettings:
    return load(PluginSettings, program=PROGRAM, argv=("--node-name", "n1", *argv))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "cards.yaml"
    file.write_text(CARDS)
    return file


async def announced(path: Path, *argv: str) -> list[tuple[int, int]]:
    """Index and units of simulated cards under these flags."""
    given = settings("--cards", str(path), *argv)
    source = card_source(
        given.cards,
        sharing=given.sharing(node=given.node_name),
        switches=given.switches,
        thresholds=given.thresholds,
        interval=given.health_interval,
    )
    cards = await anext(source.follow())
    return [(card.index, card.memory) for card in cards]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), [(0, 16000), (1, 8000), (2, 500)]),
        (("--exclude", "0"), [(1, 8000), (2, 500)]),
        (("--exclude", "GPU-a,n1:GPU-b"), [(2, 500)]),
        (("--exclude", "n2:0"), [(0, 16000), (1, 8000), (2, 500)]),
        (("--reserve", "500"), [(0, 15500), (1, 7500)]),
    ],
)
async def test_N13_L12_simulated_cards_go_by_the_same_rules(
    path: Path, flags: tuple[str, ...], expected: list[tuple[int, int]]
) -> None:
    assert await announced(path, *flags) == expected


async def test_N13_a_named_card_that_is_not_there_is_told_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await announced(path, "--exclude", "0,GPU-b,n1:3")
    assert [each.message for each in caplog.records] == ["this node has no such card exclude='3'"]


async def test_a_simulated_card_says_why_it_is_not_healthy(path: Path) -> None:
    cards = await anext(SimulatedCards(path, sharing=Sharing(reserve=100)).follow())
    assert cards[1] == Card(index=1, uuid="GPU-b", memory=7900, healthy=False, reason="taken out")


@pytest.mark.parametrize("text", ["n1:", ":0", "a:b:0", "0=1"])
def test_N13_an_item_that_names_no_card_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"is not \[NODE:\]CARD"):
        Sharing.parse(node="n1", exclude=text)


@pytest.mark.parametrize("text", ["0", "0=", "0=0", "0=-1", "0=1.5", "0=8Gi", "n1:=5", "=5"])
def test_N12_an_item_that_names_no_size_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"is not \[NODE:\]CARD"):
        Sharing.parse(node="n1", memory_of=text)


@pytest.mark.parametrize("order", ["0=1,n1:0=2", "n1:0=2,0=1", "0=1,n1:0=2,other:0=3"])
def test_N12_what_is_said_of_a_node_wins_over_what_is_said_of_all(order: str) -> None:
    assert Sharing.parse(node="n1", memory_of=order).sizes == {"0": 2}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--exclude", "a:b:c"),
        ("--memory-of", "0=many"),
        ("--reserve", "-1"),
        ("--health-interval", "0"),
        ("--health-failures", "0"),
        ("--health-recoveries", "0"),
        ("--disable-healthchecks", "some"),
        ("--enable-healthchecks", "1,x"),
    ],
)
def test_bad_values_are_refused_by_the_flags_name(
    capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        settings(f"{flag}={value}")
    assert caught.value.code == 2
    assert flag in capsys.readouterr().err


def test_nvidias_variables_are_known_and_ours_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_DISABLE_HEALTHCHECKS", "xids")
    monkeypatch.setenv("DP_ENABLE_HEALTHCHECKS", "79")
    assert (settings().switches.counts(79), settings().switches.counts(48)) == (True, False)
    assert settings("--disable-healthchecks", "").switches.counts(48)
    monkeypatch.setenv("GPUSHARE_DISABLE_HEALTHCHECKS", "79")
    assert settings().switches.counts(48)
