"""Units mode: kubelet counts the memory itself, and no device names a card."""

import asyncio
import contextlib

import grpc.aio
import pytest

from deviceplugin.announcement import list_bytes, unit_ids, unit_list, units_down
from deviceplugin.cli import PROGRAM, run
from deviceplugin.errors import ListTooLargeError
from deviceplugin.holdings import bookings_of
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.matching import Listed
from deviceplugin.modes import MOST_BYTES, Slots, Units
from deviceplugin.settings import PluginSettings
from gpushare.bookings import Booking
from gpushare.cards import UNLIMITED_SLOTS, NodeCards, decode_cards
from gpushare.names import VISIBLE_DEVICES
from kubeapi.settings import load
from sandbox.kubelet.journal import Hold
from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.pods import NAMES, NODE, C, bound, card

SMALL = ({"uuid": "GPU-0", "memory": 16}, {"uuid": "GPU-1", "memory": 8})


def cards(*sizes: int, unit: str = "MiB") -> NodeCards:
    found = tuple(card(index, memory=memory) for index, memory in enumerate(sizes))
    return NodeCards(unit=unit, slots=UNLIMITED_SLOTS, cards=found)


def units(*, most_devices: int = 4096) -> Units:
    async def held() -> frozenset[str]:
        return frozenset()

    return Units(names=NAMES, bookings=tuple[Booking, ...], held=held, most_devices=most_devices)


def refusal(node_cards: NodeCards, *, most_devices: int = 4096) -> str:
    with pytest.raises(ListTooLargeError) as caught:
        units(most_devices=most_devices).check(node_cards)
    return str(caught.value)


# What kubelet is told.


def test_N8_units_are_named_by_number_alone() -> None:
    assert [device.ID for device in unit_list(cards(2, 1), down=()).devices] == ["0", "1", "2"]
    assert list(unit_ids(3)) == list(unit_ids(5))[:3], "a node that gets smaller loses the last ones"


def test_A11_mib_of_large_cards_are_refused_with_the_unit_that_works() -> None:
    assert refusal(cards(*[24576] * 8)) == (
        "one device per MiB makes 196608 devices, a list of 4017658 bytes: --max-devices allows "
        "4096 devices, and kubelet receives 4194304 bytes; the smallest unit that works is GiB, with 192 "
        "devices: give --unit GiB to all programs, or choose --mode slots"
    )
    text = refusal(cards(*[143771] * 8))
    assert "makes 1150168 devices, a list of 24192586 bytes" in text
    assert "the smallest unit that works is GiB, with 1120 devices" in text


def test_A11_what_no_unit_makes_small_enough_is_for_slots() -> None:
    assert "no unit is large enough: choose --mode slots" in refusal(cards(20 * 1024), most_devices=19)
    assert "no unit is large enough: choose --mode slots" in refusal(cards(5000, unit="GiB"))


def test_the_number_of_devices_may_be_raised_and_kubelets_message_not() -> None:
    units(most_devices=200_000).check(cards(*[24576] * 8))
    units(most_devices=4096).check(cards(4096))
    assert "makes 4097 devices" in refusal(cards(4097))
    assert "the smallest unit that works is GiB" in refusal(cards(*[143771] * 8), most_devices=2_000_000)


@pytest.mark.parametrize("numa", [None, 0, 3])
def test_bytes_are_counted_as_protobuf_does_if_all_were_unhealthy(numa: int | None) -> None:
    found = NodeCards(unit="MiB", slots=3, cards=(card(0, memory=12_000, numa=numa),))
    message = unit_list(found, down=set(unit_ids(12_000)))
    assert list_bytes(unit_ids(12_000), cards=found) == message.ByteSize()
    assert message.devices[0].health == "Unhealthy"


def test_slots_that_kubelet_could_not_take_are_refused_too() -> None:
    many = NodeCards(unit="MiB", slots=1024, cards=tuple(card(i, uuid=f"MIG-{i:036}") for i in range(16 * 7)))
    with pytest.raises(ListTooLargeError, match="--slots 1024 a card makes 114688 devices"):
        Slots(names=NAMES, slots=1024).check(many)
    with pytest.raises(ListTooLargeError, match=f"kubelet receives {MOST_BYTES} bytes; choose fewer"):
        Slots(names=NAMES, slots=1024, most_devices=200_000).check(many)
    Slots(names=NAMES, slots=32).check(NodeCards(unit="MiB", slots=32, cards=many.cards))


# Cards out of order.

ILL = NodeCards(
    unit="GiB", slots=UNLIMITED_SLOTS, cards=(card(0, memory=10), card(1, memory=6, healthy=False))
)


def test_N4_of_a_bad_card_the_free_units_are_down_and_never_a_held_one() -> None:
    bookings = bookings_of([bound("a", C(memory=2), cards=[card(1)])], names=NAMES)
    down = units_down(ILL, bookings=bookings, held={"14", "15", "3"}, down=frozenset())
    assert down == {"13", "12", "11", "10"}, "4 of 6 are free, and the last go first"


def test_units_that_are_down_stay_so_as_long_as_nobody_holds_them() -> None:
    was = frozenset({"0", "1", "2", "3", "4", "5"})
    assert units_down(ILL, bookings=(), held=set(), down=was) == was
    assert units_down(ILL, bookings=(), held={"0"}, down=was) == was - {"0"} | {"15"}


def test_a_bad_card_that_is_overfull_takes_nothing_from_the_others() -> None:
    bookings = bookings_of([bound("a", C(memory=9), cards=[card(1)])], names=NAMES)
    assert units_down(ILL, bookings=bookings, held=set(), down=frozenset()) == frozenset()


def test_the_memory_is_not_ours_to_write() -> None:
    assert units().capacity(ILL, bookings=()) == {NAMES.count: 2}


# On a node.


async def test_kubelet_counts_the_memory_and_the_plugin_writes_the_number_of_cards(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units", unit="GiB"):
        await until(lambda: NAMES.memory in capacity(one_node), what=lambda: capacity(one_node))
        assert (capacity(one_node)[NAMES.memory], capacity(one_node)[NAMES.count]) == ("24", "2")
        assert NAMES.slot not in capacity(one_node)
        text = one_node.node_object()["metadata"]["annotations"][NAMES.cards]
    assert (decode_cards(text).slots, decode_cards(text).unit) == (UNLIMITED_SLOTS, "GiB")
    assert not [call for call in one_node.node.journal.calls() if call.resource == NAMES.slot]


async def test_a_pod_without_slots_gets_its_card(one_node: Cluster) -> None:
    """One call for each container that asks, of as many devices as it has units; nothing is preferred."""
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        env = await one_node.run(
            "p",
            C(name="setup", memory=5, slots=0, kind="init"),
            C(name="helper"),
            C(name="main", memory=3, slots=0),
            cards=[1],
        )
    assert env["setup"][VISIBLE_DEVICES] == env["main"][VISIBLE_DEVICES] == "GPU-1"
    assert VISIBLE_DEVICES not in env["helper"]
    given = {
        name: (env[name][NAMES.pod_memory], env[name][NAMES.container_memory]) for name in ("setup", "main")
    }
    assert given == {"setup": ("5", "5"), "main": ("5", "3")}
    methods = [(call.method, call.size) for call in one_node.node.journal.calls() if call.pod]
    assert methods == [("Allocate", 5), ("Allocate", 3)]


async def test_A1_A2_kubelets_order_decides_and_not_the_size(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        one_node.node.hold_admission()
        for name, index in (("a", 0), ("b", 1)):
            await one_node.bind(await one_node.create(name, C(memory=2, slots=0)), index)
        await one_node.node.admit(name="b")
        await one_node.node.admit(name="a")
        given = [(await one_node.environment(name))["main"][VISIBLE_DEVICES] for name in "ab"]
    assert given == ["GPU-0", "GPU-1"]


async def test_A3_no_pod_fits_a_call_of_units(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        with pytest.raises(grpc.aio.AioRpcError, match=f"waits for 2 {NAMES.memory}"):
            await one_node.allocate("0", "1", resource=NAMES.memory)


async def test_A6_two_pods_at_once_without_a_card_name_in_their_devices(one_node: Cluster) -> None:
    """Devices tell nothing here: with two pods of a size waiting and other cards, nobody may guess."""
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        one_node.node.hold_admission()
        for name, index in (("a", 0), ("b", 1)):
            await one_node.bind(await one_node.create(name, C(memory=2, slots=0)), index)
        hold = one_node.node.kubelet.before_allocate = Hold()
        both = [asyncio.create_task(one_node.node.admit(name=name)) for name in "ab"]
        await until(lambda: len(one_node.node.kubelet.pods) == 2, what=one_node.node.journal.calls)
        hold.release()
        await asyncio.gather(*both)
        refusals = [await one_node.refusal(name) for name in "ab" if not ran(one_node, name)]
    assert refusals
    assert all("would get different cards" in text for text in refusals)


async def test_A8_the_same_units_again_are_the_same_answer(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        env = await one_node.run("p", C(memory=3, slots=0), cards=[1])
        ids = one_node.recorded("p", resource=NAMES.memory).device_ids
        assert await one_node.allocate(*ids, resource=NAMES.memory) == env["main"]


class OnePod:
    """kubelet's list, while it admits one pod."""

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        return (Listed(namespace="default", name="p", held={}),)


async def test_A10_143771_units_with_long_names_are_served(one_node: Cluster) -> None:
    one_node.write_cards({"uuid": "GPU-0", "memory": 143_771})
    one_node.node.hold_admission()
    await one_node.bind(await one_node.create("p", C(memory=143_771, slots=0)), 0)
    async with one_node.plugin(mode="units", most_devices=200_000, kubelet=OnePod()):
        ids = [f"{number:044d}" for number in range(143_771)]
        env = await one_node.allocate(*ids, resource=NAMES.memory)
    assert (env[VISIBLE_DEVICES], env[NAMES.container_memory]) == ("GPU-0", "143771")


async def test_N2_N4_a_bad_card_takes_its_free_units_and_no_pods_away(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        await one_node.run("on-bad", C(memory=3, slots=0), cards=[1])
        await one_node.run("on-good", C(memory=10, slots=0), cards=[0])
        one_node.write_cards(SMALL[0], SMALL[1] | {"healthy": False, "reason": "XID 79"})
        await until(lambda: one_node.units_known() == (24, 19), what=one_node.units_known)
        assert capacity(one_node)[NAMES.memory] == "24", "kubelet's to write"
        for name in ("on-bad", "on-good"):
            assert one_node.recorded(name, resource=NAMES.memory).device_ids <= healthy(one_node)
        # What ends on the bad card is no longer there to be had.
        await one_node.delete("on-bad")
        await until(lambda: one_node.units_known() == (24, 16), what=one_node.units_known)
        await one_node.node.restart_pod(name="on-good")
        assert one_node.node.kubelet.containers[one_node.key("on-good")]
        one_node.write_cards(*SMALL)
        await until(lambda: one_node.units_known() == (24, 24), what=one_node.units_known)


async def test_N4_after_a_restart_kubelets_record_tells_what_is_held(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        await one_node.run("p", C(memory=12, slots=0), cards=[0])
    one_node.write_cards(SMALL[0], SMALL[1] | {"healthy": False})
    async with one_node.plugin(mode="units"):
        await until(lambda: one_node.units_known() == (24, 16), what=one_node.units_known)
        assert one_node.recorded("p", resource=NAMES.memory).device_ids <= healthy(one_node)


async def test_A12_pods_that_come_and_go_cost_no_list(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        for name in "ab":
            await one_node.run(name, C(memory=2, slots=0), cards=[0])
            await one_node.delete(name)
        lists = [call for call in one_node.node.journal.calls() if call.method == "Devices"]
    assert len(lists) == 1


async def test_A11_the_program_ends_with_the_sentence(one_node: Cluster) -> None:
    """As for every `PluginError`, `main` prints it and exits with code 2."""
    one_node.write_cards({"uuid": "GPU-0", "memory": 24576})
    kubeconfig = one_node.server.kubeconfig(one_node.folder / "kubeconfig")
    argv = [
        *("--node-name", NODE, "--mode", "units", "--cards", str(one_node.cards_file)),
        *("--kubelet-dir", str(one_node.folder), "--kubeconfig", str(kubeconfig)),
    ]
    async with asyncio.timeout(10):
        with pytest.raises(ListTooLargeError, match="one device per MiB makes 24576 devices"):
            await run(load(PluginSettings, program=PROGRAM, argv=argv))
    assert one_node.units_known() == (0, 0)


async def test_cards_that_become_too_many_later_are_ignored_and_said(
    one_node: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units") as plugin:
        one_node.write_cards(*SMALL, {"uuid": "GPU-2", "memory": 5000})
        await until(lambda: "cards ignored, they stay as they were" in caplog.text, what=plugin.problems)
        assert one_node.units_known() == (24, 24)


async def test_slots_and_units_may_take_turns_on_a_node(one_node: Cluster) -> None:
    """A running pod keeps its card; new pods are served by what is announced then."""
    one_node.write_cards(*SMALL)
    async with one_node.plugin():
        await one_node.run("old", C(memory=4), cards=[0])
    async with one_node.plugin(mode="units"):
        env = await one_node.run("new", C(memory=4, slots=0), cards=[0])
        assert env["main"][VISIBLE_DEVICES] == "GPU-0"
        assert one_node.node.kubelet.containers[one_node.key("old")]


async def test_kubelet_need_not_ask_for_a_preference(one_node: Cluster) -> None:
    one_node.write_cards(*SMALL)
    async with one_node.plugin(mode="units"):
        socket = one_node.folder / "device-plugins" / f"{NAMES.memory.replace('/', '_')}.sock"
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = v1beta1_grpc.DevicePluginStub(channel)
            options = await stub.GetDevicePluginOptions(v1beta1.Empty())
            request = v1beta1.ContainerPreferredAllocationRequest(
                available_deviceIDs=["0"], allocation_size=1
            )
            answer = await stub.GetPreferredAllocation(
                v1beta1.PreferredAllocationRequest(container_requests=[request])
            )
    assert not options.get_preferred_allocation_available
    assert not answer.container_responses


def capacity(one_node: Cluster) -> dict[str, str]:
    found: dict[str, str] = one_node.node_object()["status"]["capacity"]
    return found


def healthy(one_node: Cluster) -> set[str]:
    return one_node.node.kubelet.devices.healthy(NAMES.memory)


def ran(one_node: Cluster, name: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(one_node.node.kubelet.containers[one_node.key(name)])
    return False
