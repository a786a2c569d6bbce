"""What kubelet and the cluster are told about cards."""

from deviceplugin.announcement import device_list, node_capacity
from deviceplugin.holdings import bookings_of
from deviceplugin.slots import choose_slots
from gpushare.cards import Card, NodeCards
from tests.deviceplugin.pods import NAMES, C, bound, card


def node_cards(*cards: Card, slots: int = 2) -> NodeCards:
    return NodeCards(unit="MiB", slots=slots, cards=cards)


def test_slots_name_their_card_and_share_its_health() -> None:
    devices = device_list(node_cards(card(0), card(1, healthy=False))).devices
    assert [(device.ID, device.health) for device in devices] == [
        ("GPU-0::0", "Healthy"),
        ("GPU-0::1", "Healthy"),
        ("GPU-1::0", "Unhealthy"),
        ("GPU-1::1", "Unhealthy"),
    ]


def test_N8_the_same_cards_make_the_same_list() -> None:
    assert device_list(node_cards(card(0), card(1))) == device_list(node_cards(card(0), card(1)))


def test_a_common_numa_node_is_announced() -> None:
    devices = device_list(node_cards(card(0, numa=1), card(1, numa=1))).devices
    assert {node.ID for device in devices for node in device.topology.nodes} == {1}


def test_numa_nodes_that_differ_are_not_since_kubelet_would_choose_the_card() -> None:
    devices = device_list(node_cards(card(0, numa=0), card(1, numa=1))).devices
    assert not any(device.HasField("topology") for device in devices)


def test_the_list_of_a_large_node_is_far_below_kubelets_4_mib() -> None:
    cards = [card(index, uuid=f"GPU-{index:036d}") for index in range(16)]
    assert device_list(node_cards(*cards, slots=32)).ByteSize() < 64 * 1024


def test_N4_capacity_is_healthy_cards_and_what_is_booked_on_the_others() -> None:
    cards = (card(0, memory=16000), card(1, memory=8000, healthy=False))
    bookings = bookings_of(
        [
            bound("a", C(memory=3000), cards=[card(1)]),
            bound("b", C(memory=1000), cards=[card(0)]),
            bound("done", C(memory=500), cards=[card(1)], phase="Succeeded"),
            bound("unreadable", C(memory=500)),
        ],
        names=NAMES,
    )
    capacity = node_capacity(node_cards(*cards), bookings=bookings, names=NAMES)
    assert capacity == {NAMES.memory: 19000, NAMES.count: 2}


SLOTS = ["GPU-0::0", "GPU-0::1", "GPU-0::10", "GPU-0::2", "GPU-1::0", "GPU-1::1"]


def test_preferred_one_slot_of_each_card() -> None:
    chosen = choose_slots([card(1), card(0)], available=SLOTS, must_include=[], size=2)
    assert chosen == ("GPU-1::0", "GPU-0::0")


def test_preferred_includes_what_must_be() -> None:
    chosen = choose_slots([card(0), card(1)], available=SLOTS, must_include=["GPU-1::1"], size=2)
    assert chosen == ("GPU-1::1", "GPU-0::0")


def test_preferred_fills_up_on_the_pods_cards() -> None:
    """Both slots to be included can be of one card, when kubelet passes on two init containers' slots."""
    taken = ["GPU-0::10", "GPU-0::2"]
    assert choose_slots([card(0), card(1)], available=SLOTS, must_include=taken, size=3) == (
        *taken,
        "GPU-1::0",
    )
    assert choose_slots([card(0), card(1)], available=SLOTS, must_include=taken, size=2) == tuple(taken)


def test_preferred_has_no_answer_without_a_free_slot_of_the_card() -> None:
    assert choose_slots([card(2)], available=SLOTS, must_include=[], size=1) is None
    assert choose_slots([card(0), card(2)], available=SLOTS, must_include=[], size=2) is None
