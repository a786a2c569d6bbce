"""What a container is told, and why some are told nothing."""

import pytest

from deviceplugin.answers import answer_for
from deviceplugin.errors import PodError
from deviceplugin.pods import NodePod
from gpushare.names import VISIBLE_DEVICES
from tests.deviceplugin.pods import NAMES, C, bound, card

CARDS = (card(0), card(1, memory=8000), card(2))


def envs(pod: NodePod, container: str = "main") -> dict[str, str]:
    return dict(answer_for(pod, container=container, cards=CARDS, names=NAMES).envs)


def test_one_card() -> None:
    assert envs(bound("a", C(memory=3000), cards=[card(1)])) == {
        VISIBLE_DEVICES: "GPU-1",
        NAMES.index: "1",
        NAMES.pod_memory: "3000",
        NAMES.container_memory: "3000",
        NAMES.card_memory: "8000",
    }


def test_V16_several_equal_cards_have_one_number() -> None:
    given = envs(bound("a", C(memory=10000, slots=2), cards=[card(0), card(2)]))
    assert (given[VISIBLE_DEVICES], given[NAMES.index]) == ("GPU-0,GPU-2", "0,2")
    assert (given[NAMES.pod_memory], given[NAMES.card_memory]) == ("5000", "16000")


def test_a_container_with_fewer_slots_sees_the_first_cards() -> None:
    pod = bound("a", C(name="two", memory=4000, slots=2), C(name="one", memory=100), cards=[card(2), card(0)])
    assert envs(pod, "one")[VISIBLE_DEVICES] == "GPU-2"


def test_A5_the_uuid_counts_and_the_index_is_todays() -> None:
    pod = bound("a", C(memory=100), cards=[card(0, uuid="GPU-2")])
    assert (envs(pod)[VISIBLE_DEVICES], envs(pod)[NAMES.index]) == ("GPU-2", "2")


REFUSED = {
    "no allocation": (bound("a", C(memory=100)), "has no card allocation"),
    "card gone": (bound("a", C(memory=100), cards=[card(0, uuid="GPU-x")]), "the node does not have"),
    "other node": (
        bound("a", C(memory=100), cards=[card(0)], **{NAMES.allocation: '{"node":"n2","cards":[]}'}),
        "made for node 'n2'",
    ),
    "broken JSON": (bound("a", C(memory=100), cards=[card(0)], **{NAMES.allocation: "{"}), "unreadable"),
    "slots without memory": (
        bound("a", C(memory=100), cards=[card(0)]),
        "asks for aliyun.com/gpu-slot without",
    ),
}


@pytest.mark.parametrize(("pod", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_L9_a_pod_whose_card_nobody_can_tell_is_refused(pod: NodePod, problem: str) -> None:
    container = "other" if "without" in problem else "main"
    with pytest.raises(PodError, match="pod default/a") as caught:
        envs(pod, container)
    assert problem in str(caught.value)
    assert caught.value.uid == "uid-a"


def test_an_unhealthy_card_is_refused_with_its_reason() -> None:
    ill = (card(0, healthy=False, reason="XID 79"),)
    with pytest.raises(PodError, match="not healthy: XID 79"):
        answer_for(bound("a", C(memory=1), cards=[card(0)]), container="main", cards=ill, names=NAMES)
