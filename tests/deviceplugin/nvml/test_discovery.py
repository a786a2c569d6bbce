"""Which cards are found, under which index, UUID and size."""

from collections.abc import Callable
from pathlib import Path

import pytest

import deviceplugin.nvml
from deviceplugin.nvmlcards import NvmlCards
from deviceplugin.sharing import Sharing
from tests.deviceplugin.nvml.board import LOST, MIB, NO_DRIVER, UNKNOWN, Board
from tests.deviceplugin.nvml.following import Clock, following

NODE = "n1"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cards(clock: Clock) -> Callable[..., NvmlCards]:
    """A source with these settings."""

    def make(unit: str = "MiB", **texts: str | int) -> NvmlCards:
        sharing = Sharing.parse(node=NODE, unit=unit, **texts)  # type: ignore[arg-type]
        return NvmlCards(sharing=sharing, sleep=clock.sleep)

    return make


Cards = Callable[..., NvmlCards]


def split(board: Board) -> None:
    """Three GPUs, the middle one with two MIG instances."""
    board.gpu("GPU-0", memory=16384)
    board.gpu("GPU-1", memory=81920, mig=1, minor=1)
    board.gpu("GPU-2", memory=24576, mig=0)
    board.instance("MIG-a", of="GPU-1", memory=9856, gi=7, ci=0, name="A100 MIG 1g.10gb")
    board.instance("MIG-b", of="GPU-1", memory=40192, gi=2, ci=0)


async def test_cards_have_nvmls_index_and_what_the_driver_leaves_them(
    board: Board, clock: Clock, cards: Cards
) -> None:
    board.gpu("GPU-z", memory=24576, reserved=317, name="NVIDIA A10", minor=1)
    board.gpu("GPU-a", memory=8192, reserved=0)
    async with following(cards(), clock=clock) as seen:
        assert seen.sizes() == {0: ("GPU-z", 24259), 1: ("GPU-a", 8192)}
        assert seen.cards[0].model == "NVIDIA A10"
        assert all(card.healthy for card in seen.cards)
        assert seen.source.device_nodes("GPU-z") == ("/dev/nvidia1",)
        assert not seen.source.device_nodes("GPU-a"), "its driver does not tell"
        assert not seen.source.device_nodes("GPU-x")


async def test_units_are_rounded_down_and_less_than_one_is_no_card(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    board.gpu("GPU-0", memory=16384, reserved=1)
    board.gpu("GPU-1", memory=1023)
    board.gpu("GPU-2", memory=1024)
    async with following(cards(unit="GiB"), clock=clock) as seen:
        assert seen.sizes() == {0: ("GPU-0", 15), 2: ("GPU-2", 1)}
    assert "less than one GiB is left of it" in caplog.text


async def test_L12_what_is_kept_back_is_not_announced(board: Board, clock: Clock, cards: Cards) -> None:
    board.gpu("GPU-0", memory=8192)
    board.gpu("GPU-1", memory=1024)
    async with following(cards(reserve=1024), clock=clock) as seen:
        assert seen.sizes() == {0: ("GPU-0", 7168)}


async def test_a_driver_without_the_newer_memory_call_tells_all_of_the_memory(
    board: Board, clock: Clock, cards: Cards
) -> None:
    board.gpu("GPU-0", memory=16384)  # no `reserved`
    async with following(cards(), clock=clock) as seen:
        assert seen.sizes() == {0: ("GPU-0", 16384)}


async def test_the_numa_node_is_the_kernels(
    board: Board, clock: Clock, cards: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deviceplugin.nvml, "_PCI_DEVICES", tmp_path)
    for bus, node in (("0000:3b:00.0", "1\n"), ("0000:d8:00.0", "-1\n")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "numa_node").write_text(node)
    board.gpu("GPU-0", bus="00000000:3B:00.0")
    board.gpu("GPU-1", bus="00000000:D8:00.0")
    board.gpu("GPU-2")
    async with following(cards(), clock=clock) as seen:
        assert [card.numa for card in seen.cards] == [1, None, None]


async def test_a_size_does_not_follow_what_the_driver_keeps_from_moment_to_moment(
    board: Board, clock: Clock, cards: Cards
) -> None:
    board.gpu("GPU-0", memory=16384, reserved=300, used=7)
    async with following(cards(), clock=clock) as seen:
        assert seen.source.counts.used == {"GPU-0": 7 * MIB}
        board.gpu("GPU-0", memory=16384, reserved=310, used=5000)
        await seen.tick()
        assert seen.source.counts.used == {"GPU-0": 5000 * MIB}
        assert len(seen.news) == 1


async def test_N11_a_gpu_in_mig_mode_is_its_instances(board: Board, clock: Clock, cards: Cards) -> None:
    split(board)
    async with following(cards(), clock=clock) as seen:
        assert seen.sizes() == {
            0: ("GPU-0", 16384),
            2: ("GPU-2", 24576),
            200: ("MIG-a", 9856),
            201: ("MIG-b", 40192),
        }
        assert seen.cards[2].model == "A100 MIG 1g.10gb"


async def test_N11_what_is_taken_away_on_purpose_is_no_broken_card(
    board: Board, clock: Clock, cards: Cards
) -> None:
    split(board)
    async with following(cards(), clock=clock) as seen:
        board.remove("MIG-a")
        board.instance("MIG-c", of="GPU-1", memory=20000, gi=3, ci=0)
        await seen.tick()
        assert seen.sizes() == {
            0: ("GPU-0", 16384),
            2: ("GPU-2", 24576),
            201: ("MIG-b", 40192),
            202: ("MIG-c", 20000),
        }, "MIG-b keeps its index, though NVML counts it first now"
        board.remove("MIG-b", "MIG-c")
        board.gpu("GPU-1", memory=81920, mig=0)
        board.gpu("GPU-2", memory=24576, mig=1)
        await seen.tick()
        assert seen.sizes() == {0: ("GPU-0", 16384), 1: ("GPU-1", 81920)}
        assert not seen.sick


async def test_N11_a_gpu_in_mig_mode_without_instances_is_told_of(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    board.gpu("GPU-0", mig=1)
    async with following(cards(), clock=clock) as seen:
        assert seen.news == [()]
    assert "GPU-0 is in MIG mode and has no instances" in caplog.text


async def test_N11_compute_instances_that_have_memory_in_common_divide_it(
    board: Board, clock: Clock, cards: Cards
) -> None:
    board.gpu("GPU-0", mig=1)
    board.instance("MIG-a", of="GPU-0", memory=20001, gi=1, ci=0)
    board.instance("MIG-b", of="GPU-0", memory=20001, gi=1, ci=1)
    board.instance("MIG-c", of="GPU-0", memory=20001, gi=2, ci=0)
    async with following(cards(), clock=clock) as seen:
        assert [card.memory for card in seen.cards] == [10000, 10000, 20001]
        board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="MIG-a")
        await seen.tick()
        assert list(seen.sick) == [100]
        assert [card.memory for card in seen.cards] == [10000, 10000, 20001], "pods hold of MIG-a still"
        board.mend()
        board.remove("MIG-a")
        await seen.tick()
        assert [card.memory for card in seen.cards] == [20001, 20001]


async def test_N12_a_card_without_memory_is_skipped_with_a_line_in_the_log(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    board.gpu("GPU-0", memory=None)
    board.gpu("GPU-1", memory=8192)
    async with following(cards(), clock=clock) as seen:
        await seen.tick(2)
        assert seen.sizes() == {1: ("GPU-1", 8192)}
    assert caplog.text.count("reports no memory") == 1
    assert "--memory-of" in caplog.text


@pytest.mark.parametrize("name", ["GPU-0", "0", f"{NODE}:0", f"other:0=7,{NODE}:0"])
async def test_N12_or_has_the_size_that_is_configured(
    board: Board, clock: Clock, cards: Cards, name: str
) -> None:
    board.gpu("GPU-0", memory=None)
    board.gpu("GPU-1", memory=8192)
    source = cards(memory_of=f"{name}=98304,GPU-1=5", reserve=304)
    async with following(source, clock=clock) as seen:
        assert seen.sizes() == {0: ("GPU-0", 98000), 1: ("GPU-1", 7888)}, "NVML's word comes first"
        board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="GPU-0")
        await seen.tick()
        assert 0 in seen.sick


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("0", [2, 200, 201]),
        ("GPU-2", [0, 200, 201]),
        ("GPU-1", [0, 2]),
        ("1", [0, 2]),
        ("MIG-b", [0, 2, 200]),
        ("200", [0, 2, 201]),
        (f"{NODE}:0, {NODE}:GPU-2", [200, 201]),
        ("other:0,other:GPU-2", [0, 2, 200, 201]),
        ("0,2,200,201", []),
    ],
)
async def test_N13_excluded_cards_are_left_out_and_the_others_keep_their_index(
    board: Board, clock: Clock, cards: Cards, exclude: str, left: list[int]
) -> None:
    split(board)
    async with following(cards(exclude=exclude), clock=clock) as seen:
        assert [card.index for card in seen.cards] == left


async def test_N13_a_named_card_that_is_not_there_is_told_of_once(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    split(board)
    caplog.set_level("INFO")
    known = "0,GPU-2,GPU-1,MIG-b,200,other:9"
    source = cards(exclude=f"{known},7,{NODE}:GPU-gone", memory_of=f"1=5,8=5,{NODE}:9=5")
    async with following(source, clock=clock) as seen:
        await seen.tick(2)
    told = [(each.levelname, each.message) for each in caplog.records if "no such card" in each.message]
    assert told == [
        ("INFO", "this node has no such card exclude='7'; another may"),
        ("WARNING", "this node has no such card exclude='GPU-gone'"),
        ("INFO", "this node has no such card memory-of='8'; another may"),
        ("WARNING", "this node has no such card memory-of='9'"),
    ]


async def test_N13_a_silent_gpu_is_there(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    board.gpu("GPU-0")
    board.gpu("GPU-1")
    board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="GPU-1")
    async with following(cards(exclude=f"{NODE}:1"), clock=clock) as seen:
        assert seen.sizes().keys() == {0}
    assert not any("no such card" in each.message for each in caplog.records)


async def test_N13_an_excluded_index_means_the_same_card_after_nvml_numbers_anew(
    board: Board, clock: Clock, cards: Cards
) -> None:
    for number in range(3):
        board.gpu(f"GPU-{number}")
    async with following(cards(exclude="1"), clock=clock) as seen:
        board.remove("GPU-0")
        await seen.tick(8)
        assert seen.sizes() == {0: ("GPU-0", 16384), 2: ("GPU-2", 16384)}
        assert list(seen.sick) == [0]


async def test_N9_not_ready_until_the_driver_is_there(board: Board, clock: Clock, cards: Cards) -> None:
    board.gpu("GPU-0")
    board.fail("nvmlInit", NO_DRIVER)
    async with following(cards(), clock=clock) as seen:
        for _ in range(3):
            assert not seen.news
            assert "Driver Not Loaded" in str(seen.source.problem)
            assert "kernel module" in str(seen.source.problem), "and what to do"
            await seen.tick()
        board.mend()
        await seen.tick()
        assert seen.sizes() == {0: ("GPU-0", 16384)}
        assert seen.source.problem is None


async def test_a_node_without_cards_is_announced_as_such_and_looked_at_again(
    board: Board, clock: Clock, cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(cards(), clock=clock) as seen:
        assert seen.news == [()]
    assert "no cards to share" in caplog.text


OF_ONE_CARD = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigMode",
)


@pytest.mark.parametrize("call", OF_ONE_CARD)
async def test_N3_a_card_that_fails_at_start_hides_no_other_and_is_taken_when_it_answers(
    board: Board, clock: Clock, cards: Cards, call: str
) -> None:
    for number in range(4):
        board.gpu(f"GPU-{number}")
    board.fail(call, UNKNOWN, uuid="GPU-2")
    async with following(cards(), clock=clock) as seen:
        assert list(seen.sizes()) == [0, 1, 3]
        board.mend()
        await seen.tick()
        assert seen.sizes()[2] == ("GPU-2", 16384)
        assert list(seen.sizes()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetMemoryInfo"]
)
async def test_N3_an_instance_that_fails_at_start_hides_no_other(
    board: Board, clock: Clock, cards: Cards, call: str
) -> None:
    split(board)
    board.fail(call, UNKNOWN, uuid="MIG-a")
    async with following(cards(), clock=clock) as seen:
        assert list(seen.sizes()) == [0, 2, 201]
        board.mend()
        await seen.tick()
        assert seen.sizes()[200] == ("MIG-a", 9856)


OPTIONAL = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetWait",
)


@pytest.mark.parametrize("code", [3, UNKNOWN])
@pytest.mark.parametrize("call", OPTIONAL)
async def test_what_only_adds_something_may_fail(
    board: Board, clock: Clock, cards: Cards, call: str, code: int
) -> None:
    board.gpu("GPU-0")
    board.fail(call, code)
    async with following(cards(), clock=clock) as seen:
        await seen.tick(4)
        assert seen.sizes() == {0: ("GPU-0", 16384)}
        assert not seen.sick
