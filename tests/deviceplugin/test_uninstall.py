"""Uninstall: what the plugin wrote on nodes goes, whatever happens meanwhile, and nothing else does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import deviceplugin.uninstall
from deviceplugin.cli import PROGRAM, main
from deviceplugin.errors import UninstallError
from deviceplugin.settings import PluginSettings
from deviceplugin.uninstall import Pace, Uninstall
from kubeapi.client import KubeApi
from kubeapi.errors import ApiRefused
from kubeapi.settings import load
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import Cluster
from tests.deviceplugin.pods import NAMES, NODE

HOOK = "uninstall-under-test"
QUICK = Pace(quiet=0.05, patience=8.0)
OURS = (NAMES.memory, NAMES.count)


@contextlib.asynccontextmanager
async def hook(one_node: Cluster) -> AsyncIterator[KubeApi]:
    config = one_node.server.kubeconfig(one_node.folder / "hook.kubeconfig")
    async with await KubeApi.connect(config, user_agent=HOOK) as api:
        yield api


async def uninstall(one_node: Cluster, *, node: str | None = None, pace: Pace = QUICK) -> int:
    async with hook(one_node) as api:
        return await Uninstall(api, names=NAMES, node=node, pace=pace).run()


def left(one_node: Cluster, name: str = NODE) -> set[str]:
    """What of ours a node carries."""
    node = next(node for node in one_node.server.objects("nodes") if node["metadata"]["name"] == name)
    written: dict[str, Any] = node["metadata"].get("annotations", {}) | node["status"].get("capacity", {})
    return {key for key in (NAMES.cards, *OURS) if key in written}


async def make_node(
    one_node: Cluster, name: str, *, resources: Sequence[str] = OURS, annotated: bool = True
) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {NAMES.cards: "{}"} if annotated else {}},
        "status": {"capacity": {"cpu": "8"} | dict.fromkeys(resources, "8")},
    }
    (await one_node.api.request("POST", "/api/v1/nodes", body=body)).checked()


def writes(one_node: Cluster, **rule: Any) -> Any:
    return one_node.server.faults.add(Rule(method="PATCH", path="/nodes/", client=HOOK, **rule))


async def test_annotation_and_capacities_go_and_kubelets_own_stay(one_node: Cluster) -> None:
    async with one_node.plugin():
        assert left(one_node) == {NAMES.cards, *OURS}
    before = one_node.node_object()["status"]["capacity"]
    assert await uninstall(one_node, node=NODE) == 1
    assert left(one_node) == set()
    after = one_node.node_object()["status"]["capacity"]
    assert before.keys() - after.keys() == set(OURS)
    assert NAMES.slot in after


async def test_a_second_run_finds_nothing_and_writes_nothing(one_node: Cluster) -> None:
    async with one_node.plugin():
        pass
    await uninstall(one_node)
    counted = writes(one_node, action="delay")
    assert await uninstall(one_node) == 0
    assert await uninstall(one_node, node=NODE) == 0
    assert counted.hits == 0


async def test_all_nodes_are_those_that_carry_our_annotation(
    one_node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deviceplugin.uninstall, "_PAGE", 2)
    for name in ("a", "b", "c", "d"):
        await make_node(one_node, name)
    await make_node(one_node, "classic", annotated=False)
    await make_node(one_node, "half", resources=())
    assert await uninstall(one_node) == 5
    assert [left(one_node, name) for name in ("a", "b", "c", "d", "half")] == [set()] * 5
    assert left(one_node, "classic") == set(OURS), "another device plugin's"


async def test_one_node_is_only_that_one(one_node: Cluster) -> None:
    for name in ("a", "b"):
        await make_node(one_node, name)
    assert await uninstall(one_node, node="a") == 1
    assert (left(one_node, "a"), left(one_node, "b")) == (set(), {NAMES.cards, *OURS})


@pytest.mark.parametrize("fault", [{"action": "answer", "status": 500}, {"action": "drop", "when": "after"}])
async def test_what_fails_is_tried_again(one_node: Cluster, fault: dict[str, Any]) -> None:
    await make_node(one_node, "a")
    writes(one_node, count=2, **fault)
    assert await uninstall(one_node) == 1
    assert left(one_node, "a") == set()


async def test_what_keeps_failing_is_named_and_the_next_run_carries_on(one_node: Cluster) -> None:
    for name in ("a", "b"):
        await make_node(one_node, name)
    fault = one_node.server.faults.add(
        Rule(action="answer", status=500, method="PATCH", path="/nodes/a$", client=HOOK)
    )
    with pytest.raises(UninstallError, match="not taken off: a: API server answered 500"):
        await uninstall(one_node, pace=Pace(quiet=0.05, patience=0.2))
    assert (left(one_node, "a"), left(one_node, "b")) == ({NAMES.cards}, set())
    one_node.server.faults.remove(fault.number)
    assert await uninstall(one_node) == 1
    assert left(one_node, "a") == set()


async def test_an_api_server_that_is_away_is_waited_for(one_node: Cluster) -> None:
    await make_node(one_node, "a")
    one_node.server.faults.add(Rule(action="drop", client=HOOK, count=3))
    assert await uninstall(one_node) == 1


async def test_without_the_rights_it_ends_at_once(one_node: Cluster) -> None:
    await make_node(one_node, "a")
    writes(one_node, action="answer", status=403, message="nodes/status is forbidden")
    with pytest.raises(ApiRefused, match="nodes/status is forbidden"):
        await uninstall(one_node, pace=Pace(quiet=60, patience=600))


async def test_a_plugin_that_is_still_running_is_found_out(one_node: Cluster) -> None:
    async with one_node.plugin():
        with pytest.raises(
            UninstallError, match=r"everything back \(n1\): the device plugin is still running there"
        ):
            await uninstall(one_node, pace=Pace(quiet=2.0, patience=0.1))


async def test_a_plugin_that_ends_meanwhile_is_cleaned_up_after(one_node: Cluster) -> None:
    pace = Pace(quiet=0.4, patience=8.0)
    async with one_node.plugin():
        counted = writes(one_node, action="delay")
        run = asyncio.create_task(uninstall(one_node, pace=pace))
        await counted.struck()
    assert await run == 1
    assert left(one_node) == set()


async def test_a_node_that_goes_meanwhile_is_no_error(one_node: Cluster) -> None:
    await make_node(one_node, "a")
    held = writes(one_node, action="hold")
    run = asyncio.create_task(uninstall(one_node))
    await held.struck()
    (await one_node.api.request("DELETE", "/api/v1/nodes/a")).checked()
    one_node.server.faults.clear()
    assert await run == 1


async def test_a_node_that_nobody_knows_is_said(one_node: Cluster) -> None:
    with pytest.raises(UninstallError, match="node n7 is not known to the API server; check --node-name"):
        await uninstall(one_node, node="n7")


async def command(one_node: Cluster, *argv: str) -> object:
    kubeconfig = one_node.server.kubeconfig(one_node.folder / "kubeconfig")
    try:
        await asyncio.to_thread(main, ("--uninstall", "--kubeconfig", str(kubeconfig), *argv))
    except SystemExit as ended:
        return ended.code
    return 0


async def test_the_commands_exit_codes(one_node: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command(one_node, "--all-nodes") == 0
    assert f"{PROGRAM}: 0 nodes cleaned" in capsys.readouterr().out
    assert await command(one_node, "--node-name", "n7") == 1
    assert "node n7 is not known" in capsys.readouterr().err
    assert await command(one_node) == 2
    assert "the node's name is needed" in capsys.readouterr().err


@pytest.mark.parametrize("spelled", ["flag", "variable"])
def test_one_node_and_all_nodes_contradict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    argv = ["--uninstall", "--all-nodes"]
    if spelled == "flag":
        argv += ["--node-name", "n1"]
    else:
        monkeypatch.setenv("GPUSHARE_NODE_NAME", "n1")
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "--all-nodes and --node-name n1 (or GPUSHARE_NODE_NAME) contradict: give one" in said


def test_the_variable_that_every_pod_has_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    given = load(PluginSettings, program=PROGRAM, argv=("--uninstall", "--all-nodes"))
    assert given.all_nodes


def test_all_nodes_without_uninstall_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(("--all-nodes",))
    assert caught.value.code == 2
    assert "--all-nodes is for --uninstall" in capsys.readouterr().err
