"""Two processes that serve one node: an update with a surge, or a mistake. They must not fight."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.sockets import identity, listen, remove
from gpushare.names import VISIBLE_DEVICES
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.pods import NAMES, C


def registrations(one_node: Cluster) -> int:
    return len(one_node.node.journal.calls("Register"))


async def test_the_newer_one_serves_and_the_older_stands_by(
    one_node: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_node.plugin() as older, one_node.plugin() as newer:
        assert registrations(one_node) == 2
        env = await one_node.run("p", C(memory=1000), cards=[1])
        assert env["main"][VISIBLE_DEVICES] == "GPU-1"
        assert older.problems() == ("kubelet: standing by for a newer process on this node",)
        assert not newer.problems()
        assert "is the device plugin installed twice?" in caplog.text
        assert registrations(one_node) == 2


async def test_N6_the_older_ones_stream_ends_before_the_newer_registers(one_node: Cluster) -> None:
    async with one_node.plugin(), one_node.plugin():
        order = [call.method for call in one_node.node.journal.calls("Register", "StreamEnded")]
        assert order == ["Register", "StreamEnded", "Register"]


async def test_the_older_one_may_end_without_a_trace(one_node: Cluster) -> None:
    older = contextlib.AsyncExitStack()
    await older.enter_async_context(one_node.plugin())
    async with one_node.plugin() as newer:
        await older.aclose()
        assert (one_node.folder / "device-plugins" / newer.link.endpoint).is_socket()
        assert one_node.slots_known() == 8
        assert registrations(one_node) == 2


async def test_the_older_one_serves_again_once_the_newer_is_gone(one_node: Cluster) -> None:
    async with one_node.plugin() as older:
        async with one_node.plugin():
            pass
        await until(lambda: not older.problems(), what=older.problems, deadline=5)
        env = await one_node.run("p", C(memory=1000), cards=[1])
        assert env["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_a_kubelet_that_restarts_hears_of_one_of_them(one_node: Cluster) -> None:
    async with one_node.plugin() as older, one_node.plugin() as newer:
        await one_node.node.restart()
        await until(lambda: registrations(one_node) == 3, what=newer.problems, deadline=5)
        await until(lambda: not newer.problems(), what=newer.problems)
        assert older.link.is_standing_by
        assert registrations(one_node) == 3


class Stranger(v1beta1_grpc.DevicePluginServicer):
    """Another plugin for the same resource, with a socket of its own, which registers whenever it is lost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lost = asyncio.Event()

    async def GetDevicePluginOptions(self, request: object, context: object) -> v1beta1.DevicePluginOptions:
        return v1beta1.DevicePluginOptions()

    async def ListAndWatch(
        self, request: object, context: object
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        try:
            yield v1beta1.ListAndWatchResponse()
            await asyncio.Event().wait()
        finally:
            self._lost.set()

    async def run(self) -> None:
        server = grpc.aio.server()
        v1beta1_grpc.add_DevicePluginServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self._folder / 'stranger.sock'}")
        await server.start()
        try:
            while True:
                self._lost.clear()
                async with grpc.aio.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
                    await v1beta1_grpc.RegistrationStub(channel).Register(
                        v1beta1.RegisterRequest(
                            version="v1beta1", endpoint="stranger.sock", resource_name=NAMES.slot
                        )
                    )
                await self._lost.wait()
        finally:
            await server.stop(None)


async def test_a_stranger_is_not_fought_and_its_end_is_noticed_at_once(
    one_node: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def rests() -> list[float]:
        lines = [record.getMessage() for record in caplog.records if "taken away" in record.getMessage()]
        return [float(line.split("in=")[1].split("s ")[0]) for line in lines]

    async with one_node.plugin() as plugin:
        stranger = asyncio.create_task(Stranger(one_node.folder / "device-plugins").run())
        await until(lambda: len(rests()) == 5, what=rests)
        assert rests() == sorted(rests())
        assert rests()[-1] > 0.7
        assert "another device plugin for aliyun.com/gpu-slot on this node?" in caplog.text
        stranger.cancel()
        await asyncio.gather(stranger, return_exceptions=True)
        await until(lambda: one_node.slots_known() == 8, what=plugin.problems, deadline=0.7)


async def test_a_pod_that_is_being_admitted_is_answered_before_the_end(one_node: Cluster) -> None:
    plugin = contextlib.AsyncExitStack()
    await plugin.enter_async_context(one_node.plugin())
    read = one_node.server.faults.add(
        Rule(action="delay", seconds=0.1, method="GET", path="/pods/p$", client=AGENT)
    )
    await one_node.bind(await one_node.create("p", C(memory=1000)), 1)
    await read.struck()
    await plugin.aclose()
    assert (await one_node.environment("p"))["main"][VISIBLE_DEVICES] == "GPU-1"


async def test_a_socket_is_its_latest_owners_to_remove(folder: Path) -> None:
    path = folder / "plugin.sock"
    servers = [grpc.aio.server(), grpc.aio.server()]
    first, second = [await listen(server, path) for server in servers]
    await servers[0].stop(None)
    remove(path, own=first)
    assert identity(path) == second != first
    await servers[1].stop(None)
    remove(path, own=second)
    assert identity(path) is None
