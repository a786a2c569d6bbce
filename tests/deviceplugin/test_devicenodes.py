"""Which nodes of /dev belong to a card."""

from deviceplugin.devicenodes import COMMON_NODES, common_nodes, gpu_node, mig_nodes

MINORS = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu1/gi1/access 147
gpu1/gi1/ci0/access 148
"""


def test_a_card_has_the_node_of_its_minor_number() -> None:
    assert gpu_node(1) == "/dev/nvidia1"


def test_N11_an_instance_has_its_cards_node_and_two_capabilities() -> None:
    assert mig_nodes(minor=1, gpu_instance=1, compute_instance=0, minors=MINORS) == (
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap147",
        "/dev/nvidia-caps/nvidia-cap148",
    )


def test_N11_an_instance_that_the_driver_does_not_list_has_none() -> None:
    for instance in ((2, 0), (1, 1)):
        gpu_instance, compute_instance = instance
        assert not mig_nodes(
            minor=1, gpu_instance=gpu_instance, compute_instance=compute_instance, minors=MINORS
        )
    assert not mig_nodes(minor=0, gpu_instance=1, compute_instance=0, minors="")


def test_common_nodes_are_those_that_exist() -> None:
    assert common_nodes(lambda path: "uvm" in path) == ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert common_nodes(lambda path: True) == COMMON_NODES
