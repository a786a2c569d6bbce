"""The kubelet stand-in as plugins see it, over real unix sockets, without an API server."""

import asyncio
import json
import string
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import podresources_v1_pb2 as v1
from deviceplugin.kubeletapi import podresources_v1_pb2_grpc as v1_grpc
from sandbox.kubelet import AdmissionRefused, Container, Hold, Kubelet, Pod
from sandbox.kubelet.devices import Count
from sandbox.kubelet.endpoint import RECEIVE_LIMIT
from sandbox.kubelet.servers import SocketPathError
from tests.sandbox.fakeplugin import RESOURCE, FakePlugin


@pytest.fixture
def folder() -> Iterator[Path]:
    """A kubelet folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as path:
        yield Path(path)


@pytest_asyncio.fixture
async def kubelet(folder: Path) -> AsyncIterator[Kubelet]:
    started = Kubelet(folder=folder)
    await started.start()
    yield started
    await started.stop()


@pytest_asyncio.fixture
async def plugins(kubelet: Kubelet) -> AsyncIterator[list[FakePlugin]]:
    """Plugins that a test started: they are stopped at its end."""
    started: list[FakePlugin] = []
    yield started
    for plugin in started:
        await plugin.stop()


async def registered(plugin: FakePlugin, *, kubelet: Kubelet, plugins: list[FakePlugin]) -> FakePlugin:
    """A plugin whose devices kubelet has seen."""
    plugins.append(plugin)
    seen = len(kubelet.journal.calls("Devices"))
    await plugin.serve()
    await plugin.register()
    await kubelet.journal.wait_for(lambda: len(kubelet.journal.calls("Devices")) > seen)
    return plugin


def units(count: int) -> list[str]:
    return [f"{number:04x}" for number in range(count)]


def base62(number: int) -> str:
    digits = string.digits + string.ascii_letters
    return (base62(number // 62) if number >= 62 else "") + digits[number % 62]


def pod(name: str, **containers: int) -> Pod:
    """A pod of app containers by name and size."""
    return spec(name, *(app(container, size) for container, size in containers.items()))


def spec(name: str, *containers: Container) -> Pod:
    return Pod(uid=f"uid-{name}", namespace="default", name=name, containers=containers)


def app(name: str, size: int) -> Container:
    return Container(name=name, limits={RESOURCE: str(size)}, env={})


def init(name: str, size: int) -> Container:
    return Container(name=name, kind="init", limits={RESOURCE: str(size)}, env={})


def sidecar(name: str, size: int) -> Container:
    return Container(name=name, kind="sidecar", limits={RESOURCE: str(size)}, env={})


async def pod_resources(kubelet: Kubelet) -> dict[str, dict[str, list[str]]]:
    """What PodResources lists: pod → container → device IDs."""
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        listed = await v1_grpc.PodResourcesListerStub(channel).List(v1.ListPodResourcesRequest())
    for item in listed.pod_resources:
        for container in item.containers:
            assert all(len(devices.device_ids) == 1 for devices in container.devices)
    return {
        item.name: {
            container.name: [device for devices in container.devices for device in devices.device_ids]
            for container in item.containers
        }
        for item in listed.pod_resources
    }


async def test_containers_are_allocated_in_spec_order_and_init_devices_are_reused(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    """The example recorded on a real kubelet 1.36.2: sizes, order, and 3,700 distinct IDs at the peak."""
    await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(4000)), kubelet=kubelet, plugins=plugins
    )
    containers = [init("init-a", 3000), sidecar("sidecar", 500), init("init-b", 3200)]
    await kubelet.admit(spec("example", *containers, app("one", 1000), app("two", 2000)))

    calls = kubelet.journal.calls("Allocate")
    assert [(call.container, call.size) for call in calls] == [
        ("init-a", 3000),
        ("sidecar", 500),
        ("init-b", 3200),
        ("one", 1000),
        ("two", 2000),
    ]
    ids = {call.container: set(call.device_ids) for call in calls}
    assert len(set().union(*ids.values())) == 3700
    assert not ids["sidecar"] & (ids["init-b"] | ids["one"] | ids["two"])
    assert ids["sidecar"] < ids["init-a"]
    assert not ids["one"] & ids["two"]
    assert ids["one"] | ids["two"] < ids["init-b"]


async def test_preferred_allocation_is_asked_with_reusable_devices_as_must_include(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(
            folder=kubelet.plugin_folder,
            ids=units(10),
            prefers=lambda asked: sorted(asked.available_deviceIDs)[: asked.allocation_size],
        ),
        kubelet=kubelet,
        plugins=plugins,
    )
    await kubelet.admit(spec("p", init("first", 2), app("second", 3)))
    first, second = plugin.preferred_requests
    assert (list(first.must_include_deviceIDs), first.allocation_size) == ([], 2)
    assert sorted(second.must_include_deviceIDs) == ["0000", "0001"]
    assert sorted(second.available_deviceIDs) == units(10)
    assert second.allocation_size == 3
    methods = [call.method for call in kubelet.journal.calls("GetPreferredAllocation", "Allocate")]
    assert methods == ["GetPreferredAllocation", "Allocate"] * 2
    assert sorted(kubelet.journal.calls("Allocate")[1].device_ids) == ["0000", "0001", "0002"]


async def test_no_preferred_call_when_reusable_devices_are_enough(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(4), prefers=lambda asked: []),
        kubelet=kubelet,
        plugins=plugins,
    )
    await kubelet.admit(spec("p", init("first", 2), app("second", 1)))
    assert len(plugin.preferred_requests) == 1
    assert [call.size for call in kubelet.journal.calls("Allocate")] == [2, 1]


async def test_impossible_preferences_are_ignored_and_filled_up(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(4), prefers=lambda asked: ["elsewhere", "0003"]),
        kubelet=kubelet,
        plugins=plugins,
    )
    await kubelet.admit(pod("p", main=2))
    [call] = kubelet.journal.calls("Allocate")
    assert "0003" in call.device_ids
    assert len(call.device_ids) == 2
    assert set(call.device_ids) < set(units(4))


async def test_a_list_under_the_receive_limit_is_taken(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    # Numbers with 62 digits, so up to three letters: the size was recorded against a real kubelet 1.36.2.
    ids = [base62(number) for number in range(65_536)]
    listed = v1beta1.ListAndWatchResponse(devices=[v1beta1.Device(ID=name, health="Healthy") for name in ids])
    assert listed.ByteSize() == 1_044_670
    await registered(FakePlugin(folder=kubelet.plugin_folder, ids=ids), kubelet=kubelet, plugins=plugins)
    assert kubelet.counts()[RESOURCE] == Count(capacity=65_536, allocatable=65_536)


async def test_a_list_above_the_receive_limit_ends_the_stream(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=["one"]), kubelet=kubelet, plugins=plugins
    )
    assert RECEIVE_LIMIT == 4_194_304
    await plugin.announce({"x" * (RECEIVE_LIMIT // 2) + str(number): "Healthy" for number in range(2)})
    await kubelet.journal.wait_for(lambda: bool(kubelet.journal.calls("StreamEnded")))
    [end] = kubelet.journal.calls("StreamEnded")
    assert end.error.startswith("rpc error: code = ResourceExhausted")
    assert kubelet.counts()[RESOURCE] == Count(capacity=1, allocatable=0)


async def test_unhealthy_devices_count_as_capacity_only_and_are_not_handed_out(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(3)), kubelet=kubelet, plugins=plugins
    )
    await plugin.announce({"0001": "Unhealthy"})
    await kubelet.journal.wait_for(lambda: kubelet.counts()[RESOURCE].allocatable == 2)
    assert kubelet.counts()[RESOURCE].capacity == 3
    await kubelet.admit(pod("p", main=2))
    assert sorted(kubelet.journal.calls("Allocate")[0].device_ids) == ["0000", "0002"]


async def test_allocatable_is_zero_at_once_when_the_stream_ends_and_capacity_later(folder: Path) -> None:
    kubelet = Kubelet(folder=folder, capacity_grace=0.05)
    await kubelet.start()
    plugin = FakePlugin(folder=kubelet.plugin_folder, ids=units(3))
    await plugin.serve()
    await plugin.register()
    await kubelet.journal.wait_for(lambda: RESOURCE in kubelet.counts())
    await plugin.end_stream()
    await kubelet.journal.wait_for(lambda: bool(kubelet.journal.calls("StreamEnded")))
    assert kubelet.counts()[RESOURCE] == Count(capacity=3, allocatable=0)
    await kubelet.journal.wait_for(lambda: kubelet.counts()[RESOURCE] == Count(capacity=0, allocatable=0))
    await plugin.stop()
    await kubelet.stop()


@pytest.mark.parametrize(
    ("version", "resource", "text"),
    [
        ("v1alpha", RESOURCE, "is not supported by kubelet"),
        ("v1beta1", "unit", "is invalid"),
        ("v1beta1", "kubernetes.io/unit", "is invalid"),
        ("v1beta1", "test.example/", "is invalid"),
    ],
)
async def test_registration_is_refused(
    kubelet: Kubelet, plugins: list[FakePlugin], version: str, resource: str, text: str
) -> None:
    plugin = FakePlugin(folder=kubelet.plugin_folder, ids=["a"], resource=resource)
    plugins.append(plugin)
    await plugin.serve()
    with pytest.raises(grpc.aio.AioRpcError, match=text) as refusal:
        await plugin.register(version=version)
    assert refusal.value.code() == grpc.StatusCode.UNKNOWN
    assert kubelet.counts() == {}


async def test_registering_again_replaces_the_endpoint(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    old = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=["a"], endpoint="old.sock"),
        kubelet=kubelet,
        plugins=plugins,
    )
    await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=["a", "b"], endpoint="new.sock"),
        kubelet=kubelet,
        plugins=plugins,
    )
    async with asyncio.timeout(5):
        await old.stream_closed.wait()
    await kubelet.admit(pod("p", main=2))
    assert kubelet.counts()[RESOURCE] == Count(capacity=2, allocatable=2)


async def test_the_pods_own_env_wins_over_the_plugins(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    await registered(FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins)
    own = Container(name="main", limits={RESOURCE: "1"}, env={"OWN": "pod", "MORE": "x"})
    await kubelet.admit(spec("p", own, Container(name="plain", limits={}, env={})))
    containers = kubelet.containers["default", "p"]
    assert containers["main"] | {"FIRST": ""} == {"UNITS": "1", "FIRST": "", "OWN": "pod", "MORE": "x"}
    assert containers["plain"] == {}
    shown = json.loads((kubelet.plugin_folder.parent / "containers.json").read_text())
    assert shown == [{"namespace": "default", "pod": "p", "containers": containers}]


async def test_an_allocate_error_refuses_the_pod_and_frees_its_devices(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )

    async def refuse_the_second(ids: list[str]) -> None:
        if len(kubelet.journal.calls("Allocate")) == 2:
            raise LookupError("no pod is waiting")

    plugin.allocate_with = refuse_the_second
    with pytest.raises(AdmissionRefused) as refusal:
        await kubelet.admit(pod("p", one=1, two=1))
    assert refusal.value.reason == "UnexpectedAdmissionError"
    assert (
        "Allocate failed due to rpc error: code = NotFound desc = no pod is waiting, which is unexpected"
        in str(refusal.value)
    )
    assert await pod_resources(kubelet) == {}
    await kubelet.admit(pod("q", main=2))


async def test_too_few_devices_refuse_the_pod(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    await registered(FakePlugin(folder=kubelet.plugin_folder, ids=units(3)), kubelet=kubelet, plugins=plugins)
    await kubelet.admit(pod("p", main=2))
    with pytest.raises(AdmissionRefused, match=r"unavailable for .*\. Requested: 2, Available: 1"):
        await kubelet.admit(pod("q", main=2))
    assert len(kubelet.journal.calls("Allocate")) == 1


async def test_pod_resources_during_an_allocate(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    """The pod being admitted is listed without devices, earlier ones with theirs; no plain init container."""
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(9)), kubelet=kubelet, plugins=plugins
    )
    seen: list[dict[str, dict[str, list[str]]]] = []

    async def look(ids: list[str]) -> None:
        seen.append(await pod_resources(kubelet))

    await kubelet.admit(spec("earlier", init("prepare", 2), sidecar("side", 1), app("main", 2)))
    plugin.allocate_with = look
    await kubelet.admit(spec("now", init("prepare", 1), app("one", 1), app("two", 1)))
    earlier = {
        call.container: sorted(call.device_ids)
        for call in kubelet.journal.calls("Allocate")
        if call.pod == "default/earlier" and call.container != "prepare"
    }
    assert list(earlier) == ["side", "main"]
    assert [listed["earlier"] for listed in seen] == [earlier] * 3
    assert [{name: len(ids) for name, ids in listed["now"].items()} for listed in seen] == [
        {"one": 0, "two": 0},
        {"one": 0, "two": 0},
        {"one": 1, "two": 0},
    ]


async def test_a_held_allocate_waits_until_released(kubelet: Kubelet, plugins: list[FakePlugin]) -> None:
    await registered(FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins)
    hold = kubelet.before_allocate = Hold(pod="default/a")
    first = asyncio.create_task(kubelet.admit(pod("a", main=1)))
    await hold.reached.wait()
    await kubelet.admit(pod("b", main=1))
    assert [call.pod for call in kubelet.journal.calls("Allocate")] == ["default/b"]
    hold.release()
    await first
    assert [call.pod for call in kubelet.journal.calls("Allocate")] == ["default/b", "default/a"]
    one, two = (call.device_ids for call in kubelet.journal.calls("Allocate"))
    assert one != two


async def test_a_device_in_flight_goes_out_twice_when_pod_resources_is_listed_meanwhile(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    await registered(FakePlugin(folder=kubelet.plugin_folder, ids=["only"]), kubelet=kubelet, plugins=plugins)
    hold = kubelet.before_allocate = Hold(pod="default/a")
    first = asyncio.create_task(kubelet.admit(pod("a", main=1)))
    await hold.reached.wait()
    with pytest.raises(AdmissionRefused, match="unavailable"):
        await kubelet.admit(pod("b", main=1))
    hold.release()
    await first
    kubelet.forget(pod("a", main=1))

    hold = kubelet.before_allocate = Hold(pod="default/a")
    first = asyncio.create_task(kubelet.admit(pod("a", main=1)))
    await hold.reached.wait()
    await pod_resources(kubelet)
    await kubelet.admit(pod("b", main=1))
    hold.release()
    await first


async def test_sockets_are_wiped_at_start_and_other_files_are_not(folder: Path) -> None:
    kubelet = Kubelet(folder=folder)
    await kubelet.start()
    plugin = FakePlugin(folder=kubelet.plugin_folder, ids=["a"])
    await plugin.serve()
    (kubelet.plugin_folder / "notes").write_text("kept")
    await kubelet.stop()
    assert not kubelet.registration_socket.exists()
    assert (kubelet.plugin_folder / plugin.endpoint).exists()
    await kubelet.start()
    assert sorted(path.name for path in kubelet.plugin_folder.iterdir()) == ["kubelet.sock", "notes"]
    await plugin.stop()
    await kubelet.stop()


async def test_a_restarted_kubelet_leaves_running_containers_alone(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )
    running = pod("p", main=1)
    await kubelet.admit(running)
    started = dict(kubelet.containers)
    await plugin.stop()
    await kubelet.stop()
    await kubelet.start()
    assert kubelet.counts()[RESOURCE] == Count(capacity=0, allocatable=0)
    await kubelet.admit(running)
    assert kubelet.containers == started
    assert len((await pod_resources(kubelet))["p"]["main"]) == 1
    assert len(kubelet.journal.calls("Allocate")) == 1


async def test_a_reboot_replays_the_recorded_answer_without_an_allocate(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )
    running = pod("p", main=1)
    await kubelet.admit(running)
    started = dict(kubelet.containers)
    await plugin.stop()
    await kubelet.stop()
    kubelet.reboot()
    await kubelet.start()
    assert kubelet.containers == {}
    await registered(plugin, kubelet=kubelet, plugins=plugins)
    await kubelet.admit(running)
    assert kubelet.containers == started
    assert len(kubelet.journal.calls("Allocate")) == 1
    with pytest.raises(AdmissionRefused, match="unavailable"):
        await kubelet.admit(pod("q", main=2))


async def test_a_replay_is_refused_while_no_plugin_is_registered(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )
    running = pod("p", main=1)
    await kubelet.admit(running)
    await plugin.stop()
    await kubelet.stop()
    kubelet.reboot()
    await kubelet.start()
    with pytest.raises(AdmissionRefused, match="no healthy devices present"):
        await kubelet.admit(running)


async def test_a_container_restart_is_refused_when_its_device_is_unhealthy(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )
    running = pod("p", main=1)
    await kubelet.admit(running)
    await kubelet.restart_containers(running)
    [call] = kubelet.journal.calls("Allocate")
    await plugin.announce({call.device_ids[0]: "Unhealthy"})
    await kubelet.journal.wait_for(lambda: kubelet.counts()[RESOURCE].allocatable == 1)
    with pytest.raises(AdmissionRefused, match="previously allocated devices are no longer healthy"):
        await kubelet.restart_containers(running)
    assert kubelet.containers == {}


async def test_a_plugin_that_dies_in_an_allocate_fails_that_pod_only(
    kubelet: Kubelet, plugins: list[FakePlugin]
) -> None:
    plugin = await registered(
        FakePlugin(folder=kubelet.plugin_folder, ids=units(2)), kubelet=kubelet, plugins=plugins
    )
    asked = asyncio.Event()

    async def never(ids: list[str]) -> None:
        asked.set()
        await asyncio.Event().wait()

    plugin.allocate_with = never
    admission = asyncio.create_task(kubelet.admit(pod("p", main=1)))
    await asked.wait()
    await plugin.stop()
    with pytest.raises(AdmissionRefused, match="rpc error: code = "):
        await admission


async def test_a_socket_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    kubelet = Kubelet(folder=tmp_path / ("x" * 100))
    with pytest.raises(SocketPathError, match=r"bytes; a unix socket's path can have 107"):
        await kubelet.start()
