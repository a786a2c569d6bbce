"""The A cases through real gRPC: the sandbox's kubelet asks, its API server holds the pods."""

import asyncio
import re
import time

import grpc.aio
import pytest

from gpushare.names import VISIBLE_DEVICES
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.pods import NAMES, C

NO_API = Rule(action="drop", client=AGENT)


async def test_a_container_gets_its_card_and_the_classic_variables(one_node: Cluster) -> None:
    async with one_node.plugin():
        env = await one_node.run("a", C(memory=2000), cards=[1])
    assert env == {
        "main": {
            VISIBLE_DEVICES: "GPU-1",
            NAMES.index: "1",
            NAMES.pod_memory: "2000",
            NAMES.container_memory: "2000",
            NAMES.card_memory: "8000",
        }
    }


async def test_A1_kubelets_order_is_not_the_binds(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin():
        b = await one_node.create("b", C(memory=1000))
        a = await one_node.create("a", C(memory=2000))
        await one_node.bind(a, 0)
        await one_node.bind(b, 1)
        await one_node.node.admit(name="b")
        await one_node.node.admit(name="a")
        assert (await one_node.environment("b"))["main"][VISIBLE_DEVICES] == "GPU-1"
        assert (await one_node.environment("a"))["main"][VISIBLE_DEVICES] == "GPU-0"


async def test_A2_equal_pods_on_different_cards(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin():
        for name, index in (("a", 0), ("b", 1)):
            await one_node.bind(await one_node.create(name, C(memory=2000)), index)
        await one_node.node.admit(name="b")
        await one_node.node.admit(name="a")
        assert (await one_node.environment("b"))["main"][VISIBLE_DEVICES] == "GPU-1"
        assert (await one_node.environment("a"))["main"][VISIBLE_DEVICES] == "GPU-0"


async def test_A3_no_candidate_is_an_error_that_names_who_was_looked_at(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.run("a", C(memory=2000), cards=[0])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await one_node.allocate("GPU-1::0")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "default/a" in (caught.value.details() or "")


async def test_A3_L10_a_pod_bound_past_the_scheduler_fails_with_a_plain_reason(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.bind(await one_node.create("a", C(memory=2000)))
        reason = await one_node.refusal("a")
    assert "pod default/a, container main: has no card allocation; delete the pod" in reason


UNMARKABLE = Rule(action="answer", status=500, method="PATCH", path="/pods/a$", client=AGENT)
INIT_ONLY = (C(name="init", memory=2000, kind="init"), C(name="main"))
"""PodResources never shows that such a pod holds a slot."""


async def check_b_gets_its_own_card(one_node: Cluster) -> None:
    env = await one_node.run("b", *INIT_ONLY, cards=[1])
    assert env["init"][VISIBLE_DEVICES] == "GPU-1"
    assert one_node.annotation("a", NAMES.assigned) == "false"


async def test_A4_an_answered_pod_is_not_answered_for_another(one_node: Cluster) -> None:
    one_node.server.faults.add(UNMARKABLE)
    async with one_node.plugin():
        await one_node.run("a", *INIT_ONLY, cards=[0])
        await check_b_gets_its_own_card(one_node)


async def test_A4_nor_after_a_restart_of_the_plugin(one_node: Cluster) -> None:
    one_node.server.faults.add(UNMARKABLE)
    async with one_node.plugin():
        await one_node.run("a", *INIT_ONLY, cards=[0])
        await until(lambda: one_node.pod("a")["status"]["phase"] == "Running", what=lambda: one_node.pod("a"))
    async with one_node.plugin():
        await check_b_gets_its_own_card(one_node)


async def test_A4_a_failing_mark_delays_no_answer_and_is_made_up_for(one_node: Cluster) -> None:
    fault = one_node.server.faults.add(UNMARKABLE)
    async with one_node.plugin():
        await one_node.run("a", C(memory=2000), cards=[0])
        await fault.struck()
        assert one_node.annotation("a", NAMES.assigned) == "false"
        one_node.server.faults.clear()
        await until(
            lambda: one_node.annotation("a", NAMES.assigned) == "true", what=lambda: one_node.pod("a")
        )


async def test_A4_the_mark_is_written_once_per_pod(one_node: Cluster) -> None:
    patches = Rule(action="delay", seconds=0, method="PATCH", path="/pods/a$", client=AGENT)
    fault = one_node.server.faults.add(patches)
    async with one_node.plugin():
        await one_node.run("a", C(name="c1", memory=1000), C(name="c2", memory=2000), cards=[0])
        await one_node.run("b", C(memory=1000), cards=[0])
        await until(
            lambda: one_node.annotation("b", NAMES.assigned) == "true", what=lambda: one_node.pod("b")
        )
    assert fault.hits == 1


async def test_A5_the_card_is_the_annotations_whatever_the_order(one_node: Cluster) -> None:
    one_node.write_cards({"uuid": "GPU-b", "memory": 8000}, {"uuid": "GPU-a", "memory": 8000})
    async with one_node.plugin():
        env = await one_node.run("p", C(memory=2000), cards=[0])
    assert env["main"][VISIBLE_DEVICES] == "GPU-b"


async def test_A5_a_card_that_is_gone_is_an_error_and_not_another_card(one_node: Cluster) -> None:
    one_node.write_cards({"uuid": "GPU-b", "memory": 8000}, {"uuid": "GPU-a", "memory": 8000})
    one_node.node.hold_admission()
    async with one_node.plugin() as plugin:
        await one_node.bind(await one_node.create("p", C(memory=2000)), 0)
        one_node.write_cards({"uuid": "GPU-a", "memory": 8000})
        await until(lambda: one_node.slots_known() == 4, what=plugin.problems)
        await one_node.node.admit(name="p")
        assert "card 0 (GPU-b), which the node does not have" in await one_node.refusal("p")


async def test_A6_two_calls_at_the_same_instant_get_one_pod_each(one_node: Cluster) -> None:
    for name, index in (("a", 0), ("b", 1)):
        await hold_unasked(one_node, name=name, index=index)
    async with one_node.plugin():
        calls = [
            asyncio.create_task(one_node.allocate("GPU-0::0")),
            asyncio.create_task(one_node.allocate("GPU-1::0")),
        ]
        first, second = await asyncio.gather(*calls)
    assert (first[VISIBLE_DEVICES], second[VISIBLE_DEVICES]) == ("GPU-0", "GPU-1")


async def test_A7_two_of_four_containers_ask(one_node: Cluster) -> None:
    containers = (C(name="proxy"), C(name="c1", memory=1000), C(name="log"), C(name="c2", memory=2000))
    async with one_node.plugin():
        env = await one_node.run("p", *containers, cards=[1])
    assert {name: each.get(VISIBLE_DEVICES) for name, each in env.items()} == {
        "proxy": None,
        "c1": "GPU-1",
        "log": None,
        "c2": "GPU-1",
    }
    assert (env["c1"][NAMES.container_memory], env["c2"][NAMES.container_memory]) == ("1000", "2000")
    assert env["c1"][NAMES.pod_memory] == env["c2"][NAMES.pod_memory] == "3000"


async def test_A8_a_repeat_gets_the_same_answer(one_node: Cluster) -> None:
    async with one_node.plugin():
        env = await one_node.run("p", C(name="c1", memory=1000), C(name="c2", memory=2000), cards=[1])
        for call in one_node.node.journal.calls("Allocate"):
            assert await one_node.allocate(*call.device_ids) == env[call.container]


async def test_A9_without_an_api_server_an_answered_container_is_answered_again(one_node: Cluster) -> None:
    async with one_node.plugin():
        env = await one_node.run("a", C(memory=2000), cards=[0])
        one_node.server.faults.add(NO_API)
        [call] = one_node.node.journal.calls("Allocate")
        assert await one_node.allocate(*call.device_ids) == env["main"]


async def test_A9_without_an_api_server_a_name_is_not_taken_for_a_pod(one_node: Cluster) -> None:
    """Cut off alone, the plugin cannot see that the pod it knows has a successor by the same name."""
    one_node.node.hold_admission()
    async with one_node.plugin() as plugin:
        await one_node.bind(await one_node.create("sts-0", C(memory=2000)), 0)
        await until(lambda: len(plugin.view.all()) == 1, what=plugin.view.all)
        one_node.server.faults.add(NO_API)
        one_node.server.faults.add(Rule(action="freeze", client=AGENT))
        await one_node.delete("sts-0")
        await one_node.bind(await one_node.create("sts-0", C(memory=2000)), 1)
        await one_node.node.admit(name="sts-0")
        assert "default/sts-0 cannot be read" in await one_node.refusal("sts-0")


async def test_a_dropped_connection_is_no_reason_to_refuse(one_node: Cluster) -> None:
    async with one_node.plugin():
        drop = one_node.server.faults.add(
            Rule(action="drop", method="GET", path="/pods/a$", client=AGENT, count=2)
        )
        await one_node.run("a", C(memory=2000), cards=[0])
    assert drop.hits == 2


async def test_A9_a_silent_api_server_does_not_hold_kubelet_for_more_than_5_s(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin():
        one_node.server.faults.add(Rule(action="hold", client=AGENT))
        one_node.server.faults.add(Rule(action="freeze", client=AGENT))
        await one_node.bind(await one_node.create("a", C(memory=2000)), 0)
        started = time.monotonic()
        await one_node.node.admit(name="a")
        assert time.monotonic() - started < 5
        assert "API server" in await one_node.refusal("a")


async def test_A10_a_call_larger_than_grpcs_own_limit_reaches_us(one_node: Cluster) -> None:
    ids = [f"GPU-0::{number:036d}" for number in range(120_000)]
    async with one_node.plugin():
        with pytest.raises(grpc.aio.AioRpcError, match=f"waits for 120000 {re.escape(NAMES.slot)}"):
            await one_node.allocate(*ids)


async def test_A13_a_card_that_is_full_by_our_own_count_is_refused(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.run("full", C(memory=7000), cards=[1])
        await one_node.bind(await one_node.create("a", C(memory=2000)), 1)
        reason = await one_node.refusal("a")
        assert "code = ResourceExhausted" in reason
        assert "card 1 (GPU-1) has 8000 units and would hold 9000; also on it: default/full 7000" in reason


async def test_A13_a_pod_that_ended_behind_the_watchs_back_holds_nothing(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin() as plugin:
        full = await one_node.create("full", C(memory=7000))
        await one_node.bind(full, 1)
        await one_node.node.admit(name="full")
        await until(lambda: len(plugin.view.all()) == 1, what=plugin.view.all)
        one_node.server.faults.add(Rule(action="freeze", client=AGENT))
        await one_node.delete("full")
        await one_node.bind(await one_node.create("a", C(memory=2000)), 1)
        await one_node.node.admit(name="a")
        assert (await one_node.environment("a"))["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_A13_of_two_that_overfill_a_card_one_is_served(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin():
        for name in ("a", "b"):
            await one_node.bind(await one_node.create(name, C(memory=5000)), 1)
        report = one_node.server.faults.add(Rule(action="hold", method="PATCH", path="/pods/a/status"))
        await one_node.node.admit(name="a")
        await one_node.node.admit(name="b")
        assert (await one_node.environment("b"))["main"][VISIBLE_DEVICES] == "GPU-1"
        one_node.server.faults.remove(report.number)
        assert "default/b 5000" in await one_node.refusal("a")


async def test_A14_the_watch_lags_behind_kubelet(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin() as plugin:
        b = await one_node.create("b", C(memory=2000))
        await one_node.bind(await one_node.create("a", C(memory=2000)), 0)
        await until(lambda: len(plugin.view.all()) == 1, what=plugin.view.all)
        one_node.server.faults.add(Rule(action="freeze", client=AGENT))
        await one_node.bind(b, 1)
        await one_node.node.admit(name="b")
        assert (await one_node.environment("b"))["main"][VISIBLE_DEVICES] == "GPU-1"
        await one_node.node.admit(name="a")
        assert (await one_node.environment("a"))["main"][VISIBLE_DEVICES] == "GPU-0"


async def test_A14_a_successor_by_the_same_name_is_a_pod_of_its_own(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await one_node.run("sts-0", C(memory=2000), cards=[0])
        await until(lambda: len(plugin.view.all()) == 1, what=plugin.view.all)
        one_node.server.faults.add(Rule(action="freeze", client=AGENT))
        await one_node.delete("sts-0")
        await one_node.node.journal.wait_for(lambda: not one_node.node.containers)
        env = await one_node.run("sts-0", C(memory=2000), cards=[1])
    assert env["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_init_containers_and_sidecars_as_kubelet_was_seen_to_ask(one_node: Cluster) -> None:
    recorded = (
        C(name="init-a", memory=3000, kind="init"),
        C(name="sidecar", memory=500, kind="sidecar"),
        C(name="init-b", memory=3200, kind="init"),
        C(name="one", memory=1000),
        C(name="two", memory=2000),
    )
    async with one_node.plugin():
        env = await one_node.run("p", *recorded, cards=[0])
    assert [env[name][NAMES.container_memory] for name in ("init-a", "sidecar", "init-b", "one", "two")] == [
        "3000",
        "500",
        "3200",
        "1000",
        "2000",
    ]
    assert {(each[VISIBLE_DEVICES], each[NAMES.pod_memory]) for each in env.values()} == {("GPU-0", "3700")}


async def test_several_cards(one_node: Cluster) -> None:
    containers = (
        C(name="init", memory=4000, slots=2, kind="init"),
        C(name="both", memory=6000, slots=2),
        C(name="first", memory=1000),
    )
    async with one_node.plugin():
        env = await one_node.run("p", *containers, cards=[1, 0])
    assert {name: each[VISIBLE_DEVICES] for name, each in env.items()} == {
        "init": "GPU-1,GPU-0",
        "both": "GPU-1,GPU-0",
        "first": "GPU-1",
    }
    assert env["both"] == {
        VISIBLE_DEVICES: "GPU-1,GPU-0",
        NAMES.index: "1,0",
        NAMES.pod_memory: "4000,3000",
        NAMES.container_memory: "3000",
        NAMES.card_memory: "8000,16000",
    }


async def test_kubelets_own_record_names_the_pods_card(one_node: Cluster) -> None:
    async with one_node.plugin():
        for number in range(6):
            await one_node.run(f"p{number}", C(memory=1000), cards=[number % 2])
    for call in one_node.node.journal.calls("Allocate"):
        index = int(call.pod[-1]) % 2
        assert [slot.partition("::")[0] for slot in call.device_ids] == [f"GPU-{index}"]


async def test_slots_of_another_card_than_the_pods_are_refused(one_node: Cluster) -> None:
    await hold_unasked(one_node, name="a", index=0)
    async with one_node.plugin():
        with pytest.raises(grpc.aio.AioRpcError, match="kubelet chose slots of GPU-1") as caught:
            await one_node.allocate("GPU-1::0")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_card_without_a_free_slot_is_refused_by_name(one_node: Cluster) -> None:
    async with one_node.plugin(slots=1):
        await one_node.run("a", C(memory=1000), cards=[0])
        await one_node.bind(await one_node.create("b", C(memory=1000)), 0)
        assert "kubelet has no slot left of card 0 (GPU-0)" in await one_node.refusal("b")


async def test_without_pod_resources_the_only_waiting_pod_is_answered(one_node: Cluster) -> None:
    async with one_node.plugin():
        one_node.node.kubelet.pod_resources_socket.unlink()
        env = await one_node.run("a", C(memory=1000), cards=[1])
        assert env["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_without_pod_resources_two_waiting_pods_are_an_error(one_node: Cluster) -> None:
    one_node.node.hold_admission()
    async with one_node.plugin():
        one_node.node.kubelet.pod_resources_socket.unlink()
        for name, index in (("a", 0), ("b", 1)):
            await one_node.bind(await one_node.create(name, C(memory=2000)), index)
        await one_node.node.admit(name="a")
        assert "2 pods wait on this node (default/a, default/b)" in await one_node.refusal("a")


async def hold_unasked(one_node: Cluster, *, name: str, index: int) -> None:
    """Bind a pod and let kubelet list it without asking for it: the test does that itself."""
    one_node.node.hold_admission()
    await one_node.bind(await one_node.create(name, C(memory=2000)), index)
    journal = one_node.node.journal
    await journal.wait_for(lambda: any(pod.name == name for pod in one_node.node._waiting))
    pod = next(pod for pod in one_node.node._waiting if pod.name == name)
    one_node.node.kubelet.pods[pod.uid] = pod
