"""Registration through kubelet's life: restarts, wiped sockets, absence, leftovers, lists."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.errors import SocketPathError
from deviceplugin.plugin import Plugin
from deviceplugin.podresources import KubeletPods, KubeletSilent
from deviceplugin.registration import KubeletLink
from deviceplugin.sockets import check_socket_path
from gpushare.names import VISIBLE_DEVICES
from sandbox.kubelet import Call
from sandbox.kubelet.servers import serve_registration
from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.pods import NAMES, C


def own_socket(one_node: Cluster) -> Path:
    return one_node.folder / "device-plugins" / f"{NAMES.slot.replace('/', '_')}.sock"


def methods(one_node: Cluster) -> list[str]:
    return [call.method for call in one_node.node.journal.calls()]


async def registered_times(one_node: Cluster, times: int) -> None:
    """Wait until kubelet has the device list of this many registrations; 5 s are allowed."""
    journal = one_node.node.journal
    await journal.wait_for(lambda: len(journal.calls("Devices")) >= times and one_node.slots_known() == 8)


async def test_N5_kubelet_restarts(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.run("before", C(memory=1000), cards=[1])
        await one_node.node.restart()
        await registered_times(one_node, 2)
        env = await one_node.run("after", C(memory=1000), cards=[0])
        assert env["main"][VISIBLE_DEVICES] == "GPU-0"
        assert (await one_node.environment("before"))["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_N5_own_socket_removed(one_node: Cluster) -> None:
    async with one_node.plugin():
        own_socket(one_node).unlink()
        await registered_times(one_node, 2)
        assert own_socket(one_node).is_socket()


async def test_N5_kubelets_socket_alone_is_made_anew(one_node: Cluster) -> None:
    kubelet = one_node.node.kubelet
    async with one_node.plugin():
        kubelet.registration_socket.unlink()
        server = await serve_registration(socket=kubelet.registration_socket, registry=kubelet)
        try:
            await registered_times(one_node, 2)
        finally:
            await server.stop(None)


async def test_N5_waits_for_an_absent_kubelet(one_node: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await one_node.node.stop()
    async with one_node.plugin(ready=False) as plugin:
        await until(lambda: "waiting for kubelet" in caplog.text, what=lambda: caplog.text)
        assert "kubelet: not registered" in plugin.problems()
        missing = one_node.folder / "device-plugins" / "kubelet.sock"
        assert f"{missing} is missing: kubelet is not up, or " in caplog.text
        await one_node.node.start()
        await registered_times(one_node, 1)


async def test_N5_waits_for_an_absent_folder(one_node: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await one_node.node.stop()
    folder = one_node.folder / "device-plugins"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    async with one_node.plugin(ready=False):
        await until(lambda: "cannot serve" in caplog.text, what=lambda: caplog.text)
        assert f"{folder} is missing: mount kubelet's folder there, or say with --kubelet-dir" in caplog.text
        await one_node.node.start()
        await registered_times(one_node, 1)


async def test_a_pod_resources_folder_that_is_not_mounted_is_named(
    one_node: Cluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    socket = tmp_path / "pod-resources" / "kubelet.sock"
    with pytest.raises(KubeletSilent, match=f"{socket.parent} is missing: mount kubelet's folder"):
        await KubeletPods(socket).pods(resource=NAMES.slot, timeout=5)
    socket.parent.mkdir()
    with pytest.raises(KubeletSilent, match=f"{socket} is missing: kubelet is not up, or"):
        await KubeletPods(socket).pods(resource=NAMES.slot, timeout=5)


async def test_N5_the_stream_alone_is_lost(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.node.kubelet._endpoints[NAMES.slot].close()
        await registered_times(one_node, 2)


async def test_N5_a_kubelet_that_never_opens_the_stream_is_told_again(
    one_node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubelet drops a client that it has just taken when it notices the end of the one before (1.36)."""
    kubelet = one_node.node.kubelet
    register = kubelet.register
    times = 0

    async def dropped_at_first(*, resource: str, endpoint: str) -> None:
        nonlocal times
        times += 1
        if times > 1:
            await register(resource=resource, endpoint=endpoint)

    monkeypatch.setattr(kubelet, "register", dropped_at_first)
    async with one_node.plugin(ready=False) as plugin:
        await until(lambda: times == 1, what=plugin.problems)
        assert "kubelet: not registered" in plugin.problems()
        await registered_times(one_node, 1)
        await until(lambda: not plugin.problems(), what=plugin.problems)


async def test_N6_old_stream_closed_before_the_new_registration(one_node: Cluster) -> None:
    async with one_node.plugin():
        before = own_socket(one_node).stat().st_ino, own_socket(one_node).stat().st_mtime_ns
        own_socket(one_node).unlink()
        await registered_times(one_node, 2)
        after = own_socket(one_node).stat().st_ino, own_socket(one_node).stat().st_mtime_ns
    order = [method for method in methods(one_node) if method in ("StreamEnded", "Register", "ListAndWatch")]
    assert order[:5] == ["Register", "ListAndWatch", "StreamEnded", "Register", "ListAndWatch"]
    assert before != after


async def test_N6_the_old_stream_ends_without_an_error(one_node: Cluster) -> None:
    async with one_node.plugin():
        own_socket(one_node).unlink()
        await registered_times(one_node, 2)
    assert [call.error for call in one_node.node.journal.calls("StreamEnded")] == ["", ""]


async def test_N7_the_socket_of_a_killed_process_does_not_hinder(one_node: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(own_socket(one_node)))
    async with one_node.plugin():
        assert one_node.slots_known() == 8


async def test_N8_a_reboot_finds_the_same_slots(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.run("p", C(memory=1000), cards=[1])
        before = one_node.node.kubelet.devices.healthy(NAMES.slot)
    await one_node.node.restart(reboot=True)
    async with one_node.plugin():
        assert one_node.node.kubelet.devices.healthy(NAMES.slot) == before


async def test_A12_one_list_at_connect_and_one_per_change(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        await one_node.run("p", C(memory=1000), cards=[1])
        one_node.write_cards(
            {"uuid": "GPU-0", "memory": 16000, "model": "T4"}, {"uuid": "GPU-1", "memory": 8000}
        )
        await until(lambda: models(plugin) == ["T4", ""], what=plugin.problems)
        assert len(one_node.node.journal.calls("Devices")) == 1
        one_node.write_cards({"uuid": "GPU-0", "memory": 16000})
        await registered_with(one_node, slots=4)
        assert len(one_node.node.journal.calls("Devices")) == 2


async def test_A12_ten_idle_minutes_send_nothing(one_node: Cluster) -> None:
    async with one_node.plugin():
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + 600  # type: ignore[method-assign]
        try:
            await one_node.run("p", C(memory=1000), cards=[1])
        finally:
            loop.time = real  # type: ignore[method-assign]
        assert len(one_node.node.journal.calls("Devices", "Register")) == 2


async def test_N3_one_bad_card_leaves_the_others_alone(one_node: Cluster) -> None:
    async with one_node.plugin():
        await one_node.run("on-1", C(memory=3000), cards=[1])
        one_node.write_cards(
            {"uuid": "GPU-0", "memory": 16000},
            {"uuid": "GPU-1", "memory": 8000, "healthy": False, "reason": "taken out"},
        )
        await registered_with(one_node, slots=4)
        assert one_node.node.kubelet.devices.healthy(NAMES.slot) == {f"GPU-0::{n}" for n in range(4)}
        # N4: what is booked on the bad card stays in the node's total.
        await capacity(one_node, lambda memory: memory == 19000)
        env = await one_node.run("on-0", C(memory=1000), cards=[0])
        assert (env["main"][VISIBLE_DEVICES], env["main"][NAMES.index]) == ("GPU-0", "0")
        await one_node.delete("on-1")
        await capacity(one_node, lambda memory: memory == 16000)


async def test_a_bad_change_of_the_cards_file_changes_nothing(
    one_node: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_node.plugin():
        one_node.cards_file.write_text("cards: 7\n")
        await until(lambda: "'cards' is not a list" in caplog.text, what=lambda: caplog.text)
        assert one_node.slots_known() == 8


async def test_the_end_closes_the_stream_and_removes_the_socket(one_node: Cluster) -> None:
    async with one_node.plugin():
        pass
    assert not own_socket(one_node).exists()
    await one_node.node.journal.wait_for(lambda: "StreamEnded" in methods(one_node))


async def test_the_registration_says_what_kubelet_needs(one_node: Cluster) -> None:
    async with one_node.plugin():
        assert one_node.node.journal.calls("Register") == [Call(method="Register", resource=NAMES.slot)]
        options = one_node.node.kubelet._endpoints[NAMES.slot].options
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required


def test_a_socket_path_that_is_too_long_is_an_error() -> None:
    with pytest.raises(SocketPathError, match=r"has 10[0-9]{2} bytes .* choose a shorter --kubelet-dir"):
        KubeletLink(folder=Path("/" + "x" * 1000), resource=NAMES.slot, service=NotImplemented)
    check_socket_path(Path("/" + "x" * 106))
    with pytest.raises(SocketPathError):
        check_socket_path(Path("/" + "x" * 107))


def models(plugin: Plugin) -> list[str]:
    cards = plugin.inventory.cards
    return [card.model for card in cards.cards] if cards else []


async def registered_with(one_node: Cluster, *, slots: int) -> None:
    await one_node.node.journal.wait_for(lambda: one_node.slots_known() == slots)


async def capacity(one_node: Cluster, fits: Callable[[int], bool]) -> None:
    def memory() -> int:
        value = str(one_node.node_object()["status"]["capacity"].get(NAMES.memory, "0"))
        return int(value.replace("k", "000"))

    await until(lambda: fits(memory()), what=memory)
