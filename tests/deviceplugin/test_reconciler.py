"""The annotation follows kubelet's record: what differs, what is corrected, and that nobody is fought."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from deviceplugin.matching import Listed
from deviceplugin.plugin import Plugin
from deviceplugin.pods import ApiPods, NodePod, NodePodStatus
from deviceplugin.reconciler import MOST_CORRECTIONS, difference
from gpushare.names import VISIBLE_DEVICES
from kubeapi.client import MERGE_PATCH
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.pods import NAMES, NODE, C, binding_annotations, bound, card, manifest

CARDS = tuple(card(index) for index in range(4))


def running(*containers: C, cards: tuple[int, ...], **annotations: str) -> NodePod:
    return bound(
        "p", *containers, cards=[CARDS[index] for index in cards], phase="Running", uid="uid-p", **annotations
    )


def corrected(pod: NodePod, **held: str) -> list[int] | str | None:
    """The indices that the annotation should name; `cannot` where none would do, `None` where it is right.

    `held` are the cards of a container's slots by index, as in `main="01"`.
    """
    slots = {name: frozenset(f"GPU-{index}::7" for index in cards) for name, cards in held.items()}
    found = difference(pod, held=slots, cards=CARDS, names=NAMES, resource=NAMES.slot)
    if found is None:
        return None
    return "cannot" if found.cards is None else [each.index for each in found.cards]


ONE = C(memory=1000)


def test_nothing_differs() -> None:
    assert corrected(running(ONE, cards=(1,)), main="1") is None


def test_kubelets_record_is_what_the_container_sees() -> None:
    assert corrected(running(ONE, cards=(1,)), main="0") == [0]


@pytest.mark.parametrize(
    "annotations",
    [{NAMES.index: "abc"}, {NAMES.allocation: "{"}, {NAMES.index: "3"}],
    ids=["index", "json", "they disagree"],
)
def test_L9_what_cannot_be_read_is_written_anew(annotations: Mapping[str, str]) -> None:
    assert corrected(running(ONE, cards=(1,), **annotations), main="1") == [1]


def test_L10_an_allocation_that_was_taken_off_is_written_anew() -> None:
    assert corrected(running(ONE, cards=()), main="2") == [2]


def test_classic_annotations_count_by_index() -> None:
    pod = running(ONE, cards=(), **{NAMES.index: "1"})
    assert corrected(pod, main="1") is None
    assert corrected(pod, main="2") == [2]


def test_several_cards_are_compared_as_a_set() -> None:
    wide, narrow = C(name="wide", memory=2000, slots=2), C(name="narrow", memory=1000)
    pod = running(wide, narrow, cards=(0, 2))
    assert corrected(pod, wide="02", narrow="0") is None
    # kubelet passed on an init container's slots: still cards of the pod
    assert corrected(pod, wide="02", narrow="2") is None


def test_the_first_cards_are_those_of_the_container_with_fewer() -> None:
    wide, narrow = C(name="wide", memory=2000, slots=2), C(name="narrow", memory=1000)
    assert corrected(running(wide, narrow, cards=(0, 2)), wide="13", narrow="3") == [3, 1]


def test_the_order_is_otherwise_the_annotations() -> None:
    pod = running(C(name="wide", memory=3000, slots=3), cards=(3, 2, 0))
    assert corrected(pod, wide="123") == [3, 2, 1]


def test_an_init_containers_further_cards_stay_the_annotations() -> None:
    first = C(name="first", memory=2000, slots=2, kind="init")
    assert corrected(running(first, ONE, cards=(0, 2)), main="1") == [1, 0]


def test_what_no_allocation_can_say_is_not_written() -> None:
    a, b = C(name="a", memory=1000), C(name="b", memory=1000)
    assert corrected(running(a, b, cards=(0,)), a="0", b="1") == "cannot"
    assert corrected(running(ONE, cards=(0,)), main="9") == "cannot"


def test_nothing_is_said_of_pods_that_are_being_admitted_or_have_ended() -> None:
    a, b = C(name="a", memory=1000), C(name="b", memory=1000)
    assert corrected(running(a, b, cards=(0,)), a="1") is None
    pod = running(ONE, cards=(0,))
    waiting = msgspec.structs.replace(pod, status=NodePodStatus(phase="Pending"))
    assert corrected(waiting, main="1") is None
    ended = msgspec.structs.replace(pod, status=NodePodStatus(phase="Failed", start_time="now"))
    assert corrected(ended, main="1") is None


def test_plain_init_containers_alone_say_nothing() -> None:
    pod = running(C(name="first", memory=1000, kind="init"), C(name="app"), cards=(0,))
    assert corrected(pod) is None
    assert corrected(running(C(name="first", memory=1000, kind="init"), C(name="app"), cards=())) is None


async def start(one_node: Cluster, plugin: Plugin) -> None:
    """Run pod `p` on card 1, and wait until the plugin has seen that it runs and has marked it."""
    await one_node.run("p", ONE, cards=[1])
    await until(
        lambda: any(
            pod.was_admitted and pod.annotations.get(NAMES.assigned) == "true" for pod in plugin.view.all()
        ),
        what=plugin.view.all,
    )


async def edit(one_node: Cluster, plugin: Plugin, annotations: Mapping[str, str | None]) -> None:
    """Change the pod's annotations behind everybody's back; returns when the plugin has seen it."""
    body = {"metadata": {"annotations": dict(annotations)}}
    path = "/api/v1/namespaces/default/pods/p"
    answer = await one_node.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    version = answer.checked().json()["metadata"]["resourceVersion"]
    await until(
        lambda: any(pod.metadata.resource_version == version for pod in plugin.view.all()),
        what=plugin.view.all,
    )


def allocation(one_node: Cluster, name: str) -> dict[str, str | None]:
    keys = (NAMES.index, NAMES.allocation, NAMES.pod_memory, NAMES.card_memory, NAMES.assume_time)
    return {key: one_node.annotation(name, key) for key in keys}


def events(one_node: Cluster, reason: str) -> list[dict[str, Any]]:
    return [event for event in one_node.server.objects("events") if event["reason"] == reason]


def other_card(one_node: Cluster) -> dict[str, str]:
    written = binding_annotations(manifest("p", ONE), cards=[one_node.cards[0]])
    return {key: written[key] for key in (NAMES.index, NAMES.allocation)}


async def test_a_changed_annotation_is_corrected_with_an_event(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        env = await one_node.environment("p")
        was = allocation(one_node, "p")
        await edit(one_node, plugin, other_card(one_node))
        await plugin.reconciler.look()
        assert allocation(one_node, "p") == was
        assert (await one_node.environment("p")) == env
        assert plugin.reconciler.corrections == 1
        await until(lambda: bool(events(one_node, "CardsCorrected")), what=lambda: "no event")
        (event,) = events(one_node, "CardsCorrected")
        assert event["involvedObject"]["name"] == "p"
        assert "name card 0 (GPU-0), and its containers were given GPU-1" in event["message"]


async def test_all_annotations_taken_off_come_back(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        was = allocation(one_node, "p")
        await edit(one_node, plugin, dict.fromkeys((NAMES.index, NAMES.allocation)))
        await plugin.reconciler.look()
        assert allocation(one_node, "p") == was


async def test_nobody_is_fought(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        for _ in range(MOST_CORRECTIONS + 2):
            await edit(one_node, plugin, other_card(one_node))
            await plugin.reconciler.look()
        assert plugin.reconciler.corrections == MOST_CORRECTIONS
        assert one_node.annotation("p", NAMES.index) == "0"
        assert plugin.reconciler.differing == {"default/p"}
        await until(lambda: bool(events(one_node, "CardsDiffer")), what=lambda: "no event")


async def test_a_pod_that_changed_meanwhile_is_left_for_the_next_look(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        await edit(one_node, plugin, other_card(one_node))
        hold = one_node.server.faults.add(Rule(action="hold", method="PATCH", path="/pods/p$", client=AGENT))
        async with asyncio.TaskGroup() as group:
            group.create_task(plugin.reconciler.look())
            await hold.struck()
            await edit(one_node, plugin, {"something": "else"})
            one_node.server.faults.remove(hold.number)
        assert plugin.reconciler.corrections == 0
        await plugin.reconciler.look()
        assert plugin.reconciler.corrections == 1


async def test_right_pods_are_not_read_or_written(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        seen = one_node.server.faults.add(Rule(action="delay", path="/pods/p$", client=AGENT))
        await plugin.reconciler.look()
        assert seen.hits == 0


async def test_a_mark_that_was_refused_is_made_up_for(one_node: Cluster) -> None:
    refuse = one_node.server.faults.add(
        Rule(action="answer", status=403, method="PATCH", path="/pods/", client=AGENT)
    )
    async with one_node.plugin() as plugin:
        await one_node.run("p", ONE, cards=[1])
        await refuse.struck()
        one_node.server.faults.remove(refuse.number)

        async def marked() -> bool:
            await plugin.reconciler.look()
            return one_node.annotation("p", NAMES.assigned) == "true"

        while not await marked():
            pass
        assert (await one_node.environment("p"))["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_it_looks_by_itself_after_an_answer(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        plugin.reconciler._soon = 0.01
        await start(one_node, plugin)
        await edit(one_node, plugin, other_card(one_node))
        plugin.reconciler.called()
        await until(
            lambda: one_node.annotation("p", NAMES.index) == "1", what=lambda: allocation(one_node, "p")
        )


class TwoByOneName:
    """A kubelet that lists a pod which is ending beside its successor."""

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        return tuple(
            Listed(namespace="default", name="p", held={"main": frozenset({f"GPU-{card}::0"})})
            for card in "01"
        )


async def test_of_two_pods_by_one_name_nothing_is_said(
    one_node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        monkeypatch.setattr(plugin.reconciler, "_kubelet", TwoByOneName())
        await plugin.reconciler.look()
        assert plugin.reconciler.corrections == 0
        assert not plugin.reconciler.differing


async def test_a_successor_is_not_corrected_to_its_predecessors_cards(
    one_node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_node.plugin() as plugin:
        await start(one_node, plugin)
        await edit(one_node, plugin, other_card(one_node))
        reader = ApiPods(one_node.api, node=NODE)

        class Late:
            """Reads the pod only after another has come in its place."""

            async def read(self, **what: Any) -> NodePod | None:
                await one_node.delete("p")
                await until(lambda: ("default", "p") not in one_node.node.containers, what=plugin.view.all)
                await one_node.run("p", ONE, cards=[0])
                pods = one_node.server.objects
                await until(lambda: pods("pods")[0]["status"].get("phase") == "Running", what=plugin.view.all)
                return await reader.read(**what)

        monkeypatch.setattr(plugin.reconciler, "_reader", Late())
        await plugin.reconciler.look()
        assert plugin.reconciler.corrections == 0
        assert one_node.annotation("p", NAMES.index) == "0"
