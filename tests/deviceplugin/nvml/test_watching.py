"""What happens to cards while the plugin runs: XIDs, failing probes, lost and returning cards."""

import time
from collections.abc import Callable

import pytest

import deviceplugin.nvmlcards
from deviceplugin.healthxids import HealthSwitches
from deviceplugin.nvmlcards import NvmlCards
from deviceplugin.sharing import Sharing
from tests.deviceplugin.nvml.board import LOST, NO_DRIVER, UNKNOWN, Board
from tests.deviceplugin.nvml.following import Clock, Followed, following
from tests.waiting import until

Watch = Callable[..., NvmlCards]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    """A source with these switches of NVIDIA's, over four cards."""

    def make(*, disable: str = "", enable: str = "", stall: float = 30.0) -> NvmlCards:
        switches = HealthSwitches.parse(disable=disable, enable=enable)
        return NvmlCards(sharing=Sharing(), switches=switches, sleep=clock.sleep, stall=stall)

    return make


@pytest.fixture(autouse=True)
def four(board: Board) -> None:
    for number in range(4):
        board.gpu(f"GPU-{number}")


async def xid_seen(seen: Followed, uuid: str, code: int) -> None:
    await until(lambda: seen.source.counts.xids[uuid, code], what=f"XID {code} on {uuid}")


async def test_N1_an_xid_of_the_card_takes_it_out_at_once_and_one_of_the_program_does_not(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(), clock=clock) as seen:
        board.xid("GPU-1", 31)
        await xid_seen(seen, "GPU-1", 31)
        assert len(seen.news) == 1
        board.xid("GPU-1", 79)
        await until(lambda: len(seen.news) == 2)
        assert seen.sick == {1: "XID 79"}


@pytest.mark.parametrize(
    ("disable", "enable", "code", "counts"),
    [
        ("", "", 48, True),
        ("48", "", 48, False),
        ("all", "", 79, False),
        ("xids", "", 79, False),
        ("", "31", 31, True),
        ("all", "79", 79, True),
        ("all", "79", 48, False),
        ("", "all", 31, True),
    ],
)
async def test_N1_operators_switch_xids_as_with_nvidias_plugin(
    board: Board, clock: Clock, watch: Watch, disable: str, enable: str, code: int, *, counts: bool
) -> None:
    async with following(watch(disable=disable, enable=enable), clock=clock) as seen:
        board.xid("GPU-3", code)
        await xid_seen(seen, "GPU-3", code)
        assert seen.source.counts.xids == {("GPU-3", code): 1}
        if counts:
            await until(lambda: seen.sick == {3: f"XID {code}"})
        else:
            assert not seen.sick


async def test_N2_three_good_probes_make_a_card_healthy_again(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(), clock=clock) as seen:
        board.xid("GPU-1", 79)
        await until(lambda: seen.sick)
        await seen.tick(2)
        assert seen.sick
        board.xid("GPU-1", 79)  # it starts over
        await until(lambda: seen.source.counts.xids["GPU-1", 79] == 2)
        await seen.tick(2)
        assert seen.sick
        await seen.tick()
        assert not seen.sick
        assert len(seen.news) == 3, "well, sick, well: one list for each"


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"]
)
async def test_N3_three_failed_probes_take_one_card_out_and_leave_the_others(
    board: Board, clock: Clock, watch: Watch, call: str
) -> None:
    async with following(watch(), clock=clock) as seen:
        before = seen.sizes()
        board.fail(call, UNKNOWN, uuid="GPU-2")
        await seen.tick(2)
        assert not seen.sick
        await seen.tick()
        assert seen.sick == {2: "Unknown Error"}
        assert seen.sizes() == before
        assert seen.source.counts.failed_probes == {"GPU-2": 3}
        board.mend()
        await seen.tick(2)
        assert seen.sick
        await seen.tick()
        assert not seen.sick


async def test_probes_that_fail_now_and_then_do_not_count(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(), clock=clock) as seen:
        for _ in range(3):
            board.fail("nvmlDeviceGetMemoryInfo", UNKNOWN, uuid="GPU-2")
            await seen.tick(2)
            board.mend()
            await seen.tick()
        assert len(seen.news) == 1


async def test_N3_a_lost_card_goes_at_once_and_keeps_its_index(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(), clock=clock) as seen:
        before = seen.sizes()
        board.fail("nvmlDeviceGetHandleByIndex", LOST, uuid="GPU-1")
        await seen.tick()
        assert seen.sick == {1: "GPU is lost"}
        assert seen.sizes() == before


async def test_N3_a_card_that_nvml_no_longer_lists_leaves_the_others_their_index(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(), clock=clock) as seen:
        before = seen.sizes()
        board.remove("GPU-1")
        await seen.tick(10)
        assert board.calls.count("nvmlInit") == 2, "opened anew: GPU-2 and GPU-3 are NVML's 1 and 2 now"
        assert seen.sizes() == before
        assert list(seen.sick) == [1]
        board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="GPU-2")
        await seen.tick()
        assert list(seen.sick) == [1, 2]
        board.mend()
        board.gpu("GPU-1")
        board.insert("GPU-1", before="GPU-2")
        await seen.tick(12)
        assert not seen.sick
        assert seen.sizes() == before


async def test_N3_a_replaced_card_is_a_new_one(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(), clock=clock) as seen:
        board.gpu("GPU-new", memory=32768)
        board.insert("GPU-new", before="GPU-1")
        board.remove("GPU-1")
        await seen.tick(8)
        assert seen.sizes()[4] == ("GPU-new", 32768)
        assert list(seen.sick) == [1]


async def test_a_card_that_the_driver_wants_reset_is_not_healthy_until_it_is(
    board: Board, clock: Clock, watch: Watch
) -> None:
    board.gpu("GPU-0", action=1)
    async with following(watch(), clock=clock) as seen:
        assert seen.sick == {0: "the driver asks for a reset of the GPU"}, "known, though sick at start"
        board.gpu("GPU-0", action=0)
        await seen.tick(3)
        assert not seen.sick
        board.gpu("GPU-0", action=2)
        await seen.tick()
        assert seen.sick == {0: "the driver asks for a reboot of the node"}


async def test_all_switches_the_probes_off_too(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(disable="all"), clock=clock) as seen:
        board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="GPU-2")
        await seen.tick(4)
        assert len(seen.news) == 1
        assert seen.source.counts.failed_probes["GPU-2"] == 4


async def test_xids_leaves_the_probes_on(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(disable="xids"), clock=clock) as seen:
        board.fail("nvmlDeviceGetMemoryInfo", LOST, uuid="GPU-2")
        await seen.tick()
        assert list(seen.sick) == [2]


async def test_N11_an_xid_hits_its_instance_or_all_of_its_gpu(
    board: Board, clock: Clock, watch: Watch
) -> None:
    board.gpu("GPU-1", mig=1)
    board.instance("MIG-a", of="GPU-1", gi=7, ci=0)
    board.instance("MIG-b", of="GPU-1", gi=8, ci=0)
    async with following(watch(), clock=clock) as seen:
        board.xid("GPU-1", 79, place=(8, 0))
        await until(lambda: seen.sick)
        assert list(seen.sick) == [201]
        board.xid("GPU-1", 79)
        await until(lambda: len(seen.news) == 3)
        assert list(seen.sick) == [200, 201]


async def test_N11_instances_of_a_lost_gpu_are_broken_not_gone(
    board: Board, clock: Clock, watch: Watch
) -> None:
    board.gpu("GPU-1", mig=1)
    board.instance("MIG-a", of="GPU-1", gi=7, ci=0)
    async with following(watch(), clock=clock) as seen:
        board.fail("nvmlDeviceGetMigMode", LOST, uuid="GPU-1")
        await seen.tick()
        assert seen.sick == {200: "GPU is lost"}


async def test_a_wait_for_xids_that_fails_is_a_reason_to_look_at_once(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(), clock=clock) as seen:
        board.fail("nvmlDeviceGetHandleByIndex", LOST, uuid="GPU-3")
        board.fail("nvmlEventSetWait", LOST)
        await until(lambda: seen.sick == {3: "GPU is lost"})


async def test_N9_a_driver_that_goes_and_comes_back(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(), clock=clock) as seen:
        board.fail("nvmlDeviceGetCount", 1)
        board.fail("nvmlInit", NO_DRIVER)
        await seen.tick(3)
        assert set(seen.sick) == {0, 1, 2, 3}
        assert "Driver Not Loaded" in str(seen.source.problem)
        board.mend()
        await seen.tick(3)
        assert not seen.sick
        assert seen.source.problem is None
        board.xid("GPU-0", 79)
        await until(lambda: seen.sick)


async def test_a_card_on_which_nvml_hangs_is_alone_in_being_unhealthy(
    board: Board, clock: Clock, watch: Watch
) -> None:
    async with following(watch(stall=0.2), clock=clock) as seen:
        board.hang("nvmlDeviceGetMemoryInfo", uuid="GPU-2")
        await seen.tick(3)
        assert seen.sick == {2: "the driver does not answer"}
        assert "asked for GPU 2" in str(seen.source.problem)
        board.xid("GPU-0", 79)
        await until(lambda: 0 in seen.sick, what="XIDs count all the same")
        board.mend()
        await seen.tick(4)
        assert not seen.sick


async def test_the_end_closes_nvml_in_good_order_and_soon(board: Board, clock: Clock, watch: Watch) -> None:
    async with following(watch(), clock=clock):
        started = time.monotonic()
    assert time.monotonic() - started < 1.5
    assert board.calls == ["nvmlInit", "nvmlEventSetFree", "nvmlShutdown"]


async def test_the_end_does_not_wait_for_what_hangs(
    board: Board, clock: Clock, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(deviceplugin.nvmlcards, "_CLOSE_SECONDS", 0.3)
        async with following(watch(stall=0.2), clock=clock) as seen:
            board.hang("nvmlDeviceGetMemoryInfo")
            await seen.tick()
            started = time.monotonic()
        assert time.monotonic() - started < 2
    assert "nvmlShutdown" not in board.calls
    board.mend()
    await seen.source._close()  # the library is the whole process's: leave it to the next test as it was
    assert "nvmlShutdown" in board.calls
