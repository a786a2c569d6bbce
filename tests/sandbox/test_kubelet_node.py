"""The sandbox's node against the sandbox's API server: Node object, pods' lives, restarts."""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio

from kubeapi.client import MERGE_PATCH, KubeApi
from sandbox.apiserver import ApiServer, Rule
from sandbox.kubelet import Call, Hold, Node, NodeSettings
from sandbox.kubelet.devices import Count
from tests.sandbox.fakeplugin import RESOURCE, FakePlugin

FOREIGN = "test.example/memory"
PODS = "/api/v1/namespaces/default/pods"
NODE = "/api/v1/nodes/n1"
Object = dict[str, Any]


@dataclass(kw_only=True)
class Cluster:
    """An API server with one node and one plugin of four devices, and the client that a test uses."""

    server: ApiServer
    api: KubeApi
    node: Node
    plugin: FakePlugin

    async def register_plugin(self) -> None:
        """Serve and register the plugin, and wait until its devices are known."""
        await self.plugin.serve()
        await self.plugin.register()
        await self.node.journal.wait_for(lambda: RESOURCE in self.node.kubelet.counts())

    async def create(self, name: str, size: int = 1, **metadata: Any) -> Object:
        """Create a pod that is bound to the node already."""
        answer = await self.api.request("POST", PODS, body=pod(name, size=size, **metadata))
        created: Object = answer.checked().json()
        return created

    async def delete(self, name: str, **options: Any) -> None:
        (await self.api.request("DELETE", f"{PODS}/{name}", body=options or None)).checked()

    async def until(
        self, path: str, predicate: Callable[[str, Object], bool], *, since: Object | None = None
    ) -> Object:
        """Follow an object, as it is now or `since` a version, until an event (type, object) fits."""
        collection, _, name = path.rpartition("/")
        query = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
        if since is not None:
            query["resourceVersion"] = since["metadata"]["resourceVersion"]
        async with asyncio.timeout(5):
            async for line in self.api.lines(collection, query=query, idle=10):
                event = json.loads(line)
                if predicate(event["type"], event["object"]):
                    found: Object = event["object"]
                    return found
        raise AssertionError("the watch ended")

    async def phase(self, name: str, phase: str) -> Object:
        """Wait for a pod's phase and answer the pod."""
        return await self.until(f"{PODS}/{name}", lambda _, obj: obj.get("status", {}).get("phase") == phase)

    async def removed(self, created: Object) -> Object:
        """Wait until a pod is gone from the API and answer its last state."""
        path = f"{PODS}/{created['metadata']['name']}"
        return await self.until(path, lambda kind, _: kind == "DELETED", since=created)


def pod(name: str, *, size: int = 1, **metadata: Any) -> Object:
    container = {
        "name": "main",
        "image": "app",
        "resources": {"limits": {RESOURCE: str(size)}},
        "env": [{"name": "OWN", "value": "pod"}],
    }
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


@asynccontextmanager
async def running_cluster(*, starts_node: bool = True) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k-", dir="/tmp")))
        server = await stack.enter_async_context(ApiServer())
        kubeconfig = server.kubeconfig(folder / "kubeconfig")
        api = await stack.enter_async_context(await KubeApi.connect(kubeconfig, user_agent="test"))
        node_api = await stack.enter_async_context(await KubeApi.connect(kubeconfig, user_agent="node"))
        node = Node(api=node_api, settings=NodeSettings(name="n1", kubelet_dir=folder, sync_interval=3600))
        plugin = FakePlugin(folder=node.kubelet.plugin_folder, ids=["a", "b", "c", "d"])
        stack.push_async_callback(node.stop)
        stack.push_async_callback(plugin.stop)
        if starts_node:
            await node.start()
            async with asyncio.timeout(5):
                await node.ready()
        yield Cluster(server=server, api=api, node=node, plugin=plugin)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster whose node and plugin run."""
    async with running_cluster() as running:
        await running.register_plugin()
        yield running


def allocated(cluster: Cluster) -> list[str]:
    """The pods that Allocate was called for, in order."""
    return [call.pod.removeprefix("default/") for call in cluster.node.journal.calls("Allocate")]


def amounts(node: Object, resource: str) -> tuple[str | None, str | None]:
    """A resource's capacity and allocatable."""
    status = node["status"]
    return status["capacity"].get(resource), status["allocatable"].get(resource)


async def test_the_node_appears_with_labels_capacity_and_a_ready_condition(cluster: Cluster) -> None:
    node = await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("4", "4"))
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["metadata"]["labels"]["gpushare"] == "true"
    assert amounts(node, "cpu") == ("32", "32")
    [ready] = [item for item in node["status"]["conditions"] if item["type"] == "Ready"]
    assert ready["status"] == "True"


async def test_the_nodes_status_follows_the_plugin(cluster: Cluster) -> None:
    await cluster.plugin.announce({"a": "Unhealthy", "e": "Healthy"})
    await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("5", "4"))
    await cluster.plugin.stop()
    await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("5", "0"))


async def test_foreign_resources_stay_and_their_allocatable_is_derived(cluster: Cluster) -> None:
    async def write(value: str | None) -> None:
        patch = {"status": {"capacity": {FOREIGN: value}}}
        answer = await cluster.api.request("PATCH", f"{NODE}/status", body=patch, content_type=MERGE_PATCH)
        answer.checked()

    await write("48828")
    await cluster.until(NODE, lambda _, obj: amounts(obj, FOREIGN) == ("48828", "48828"))
    await cluster.plugin.announce({"a": "Unhealthy"})
    node = await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("4", "3"))
    assert amounts(node, FOREIGN) == ("48828", "48828")
    await write(None)
    await cluster.until(NODE, lambda _, obj: amounts(obj, FOREIGN) == (None, None))


async def test_N10_a_node_that_registers_anew_loses_annotations_and_foreign_capacity(
    cluster: Cluster,
) -> None:
    note = {"metadata": {"annotations": {"test.example/note": "x"}}}
    patch = {"status": {"capacity": {FOREIGN: "100"}}}
    for recreate, left in ((False, "0"), (True, None)):
        await cluster.api.request("PATCH", NODE, body=note, content_type=MERGE_PATCH)
        await cluster.api.request("PATCH", f"{NODE}/status", body=patch, content_type=MERGE_PATCH)
        await cluster.until(NODE, lambda _, obj: amounts(obj, FOREIGN) == ("100", "100"))
        await cluster.node.reregister(recreate=recreate)
        node = await cluster.until(
            NODE,
            lambda _, obj, left=left: amounts(obj, FOREIGN) == (left, left),  # type: ignore[misc]
        )
        assert not node["metadata"].get("annotations")
        await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("4", "4"))


async def test_a_bound_pod_runs_with_its_environment(cluster: Cluster) -> None:
    await cluster.create("p")
    running = await cluster.phase("p", "Running")
    [container] = running["status"]["containerStatuses"]
    assert container["name"] == "main"
    assert "running" in container["state"]
    env = cluster.node.containers["default", "p"]["main"]
    assert (env["UNITS"], env["OWN"]) == ("1", "pod")


async def test_a_refused_pod_is_failed_with_kubelets_words(cluster: Cluster) -> None:
    async def refuse(ids: list[str]) -> None:
        raise LookupError("no pod is waiting")

    cluster.plugin.allocate_with = refuse
    await cluster.create("p")
    failed = await cluster.phase("p", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert failed["status"]["message"] == (
        "Pod was rejected: Allocate failed due to rpc error: code = NotFound desc = no pod is waiting, "
        "which is unexpected"
    )
    assert cluster.node.containers == {}


async def test_pods_that_arrive_together_are_admitted_by_creation_time() -> None:
    async with running_cluster(starts_node=False) as cluster:
        stamps = {"a": "03", "b": "01", "c": "02"}
        pods = [
            pod(name, uid=name, creationTimestamp=f"2026-01-01T00:00:{second}Z")
            for name, second in stamps.items()
        ]
        cluster.server.load("pods", [{**item, "status": {"phase": "Pending"}} for item in pods])
        cluster.node.hold_admission()
        await cluster.node.start()
        await cluster.node.ready()
        await cluster.register_plugin()
        cluster.node.release_admission()
        for name in stamps:
            await cluster.phase(name, "Running")
        assert allocated(cluster) == ["b", "c", "a"]


async def test_pods_that_arrive_one_by_one_are_admitted_one_at_a_time_in_that_order(cluster: Cluster) -> None:
    hold = cluster.node.kubelet.before_allocate = Hold(pod="default/b")
    await cluster.create("b")
    async with asyncio.timeout(5):
        await hold.reached.wait()
    await cluster.create("a")
    await cluster.create("c")
    assert [listed.name for listed in cluster.node.kubelet.pods.values()] == ["b"]
    hold.release()
    await cluster.phase("c", "Running")
    assert allocated(cluster) == ["b", "a", "c"]


async def test_a_test_can_choose_the_order_of_admission(cluster: Cluster) -> None:
    cluster.node.hold_admission()
    for name in ("a", "b", "c"):
        await cluster.create(name)
    await cluster.node.admit(name="c")
    await cluster.node.admit(name="a")
    cluster.node.release_admission()
    await cluster.phase("b", "Running")
    assert allocated(cluster) == ["c", "a", "b"]


async def test_a_test_can_have_two_pods_admitted_at_the_same_time(cluster: Cluster) -> None:
    both = asyncio.Barrier(2)

    async def meet(call: Call) -> None:
        await both.wait()

    cluster.node.kubelet.before_allocate = meet
    cluster.node.hold_admission()
    await cluster.create("a")
    await cluster.create("b")
    async with asyncio.timeout(5):
        await asyncio.gather(cluster.node.admit(name="a"), cluster.node.admit(name="b"))
    one, two = cluster.node.journal.calls("Allocate")
    assert one.device_ids != two.device_ids


async def test_a_deleted_pod_keeps_its_devices_until_its_containers_have_ended(cluster: Cluster) -> None:
    cluster.node.stop_seconds = 3600
    created = await cluster.create("p", size=3)
    await cluster.phase("p", "Running")
    await cluster.delete("p")
    await cluster.until(f"{PODS}/p", lambda _, obj: "deletionTimestamp" in obj["metadata"])
    await cluster.create("q", size=2)
    refused = await cluster.phase("q", "Failed")
    assert "Requested: 2, Available: 1" in refused["status"]["message"]
    cluster.node.finish(name="p")
    last = await cluster.removed(created)
    assert last["status"]["phase"] == "Succeeded"
    await cluster.create("r", size=4)
    await cluster.phase("r", "Running")


async def test_a_deleted_pod_ends_and_is_removed_from_the_api(cluster: Cluster) -> None:
    created = await cluster.create("p")
    await cluster.phase("p", "Running")
    await cluster.delete("p")
    last = await cluster.removed(created)
    assert last["status"]["phase"] == "Succeeded"
    assert cluster.node.containers == {}


async def test_a_pod_that_is_deleted_during_its_admission_ends_after_it(cluster: Cluster) -> None:
    hold = cluster.node.kubelet.before_allocate = Hold()
    created = await cluster.create("p")
    async with asyncio.timeout(5):
        await hold.reached.wait()
    await cluster.delete("p")
    await cluster.until(f"{PODS}/p", lambda _, obj: "deletionTimestamp" in obj["metadata"])
    hold.release()
    await cluster.removed(created)
    await cluster.create("q", size=4)
    await cluster.phase("q", "Running")


async def test_a_pod_that_is_deleted_before_its_admission_is_removed_at_once(cluster: Cluster) -> None:
    cluster.node.hold_admission()
    created = await cluster.create("p")
    fault = cluster.server.faults.add(Rule(action="hold", method="DELETE", client="node"))
    await cluster.delete("p")
    async with asyncio.timeout(5):
        await fault.struck()
    cluster.node.release_admission()
    await cluster.create("q")
    await cluster.node.journal.wait_for(lambda: ("default", "q") in cluster.node.containers)
    cluster.server.faults.clear()
    await cluster.removed(created)
    assert allocated(cluster) == ["q"]


async def test_the_time_to_end_counts_from_the_deletion(cluster: Cluster) -> None:
    cluster.node.stop_seconds = 0.3
    created = await cluster.create("p")
    await cluster.phase("p", "Running")
    await cluster.delete("p")
    await cluster.node.journal.wait_for(lambda: cluster.node.is_ending(name="p"))
    cluster.node.stop_seconds = 3600
    touch = {"metadata": {"annotations": {"test.example/note": "x"}}}
    await cluster.api.request("PATCH", f"{PODS}/p", body=touch, content_type=MERGE_PATCH)
    await cluster.removed(created)


async def test_a_pod_removed_by_force_during_its_admission_is_forgotten(cluster: Cluster) -> None:
    hold = cluster.node.kubelet.before_allocate = Hold(pod="default/p")
    created = await cluster.create("p", size=4)
    async with asyncio.timeout(5):
        await hold.reached.wait()
    await cluster.delete("p", gracePeriodSeconds=0)
    await cluster.node.journal.wait_for(lambda: created["metadata"]["uid"] not in cluster.node.kubelet.pods)
    hold.release()
    await cluster.create("q", size=4)
    await cluster.phase("q", "Running")
    assert set(cluster.node.containers) == {("default", "q")}


async def test_a_late_status_does_not_touch_a_new_pod_of_the_same_name(cluster: Cluster) -> None:
    fault = cluster.server.faults.add(Rule(action="hold", method="PATCH", path="/pods/p/status", count=1))
    counter = cluster.server.faults.add(Rule(action="delay", method="PATCH", path="/pods/p/status"))
    await cluster.create("p")
    async with asyncio.timeout(5):
        await fault.struck()
    cluster.node.hold_admission()
    await cluster.delete("p", gracePeriodSeconds=0)
    await cluster.create("p")
    await cluster.create("q")
    await cluster.node.admit(name="q")
    cluster.server.faults.remove(fault.number)
    await cluster.phase("q", "Running")
    await cluster.phase("p", "Pending")
    await cluster.create("r")
    await cluster.node.admit(name="r")
    await cluster.phase("r", "Running")
    assert counter.hits == 2, "Running, then Succeeded, and neither again once the API has said no"


async def test_a_pod_that_changes_is_not_admitted_again(cluster: Cluster) -> None:
    async def refuse(ids: list[str]) -> None:
        raise LookupError("no pod is waiting")

    cluster.plugin.allocate_with = refuse
    fault = cluster.server.faults.add(
        Rule(action="hold", method="PATCH", path="/pods/p/status", client="node")
    )
    await cluster.create("p")
    async with asyncio.timeout(5):
        await fault.struck()
    touch = {"metadata": {"annotations": {"test.example/note": "x"}}}
    await cluster.api.request("PATCH", f"{PODS}/p", body=touch, content_type=MERGE_PATCH)
    await cluster.create("q")
    await cluster.node.journal.wait_for(lambda: "q" in allocated(cluster))
    assert allocated(cluster) == ["p", "q"]


async def test_a_pod_that_somebody_else_marks_as_failed_is_stopped(cluster: Cluster) -> None:
    await cluster.create("p", size=4)
    await cluster.phase("p", "Running")
    body = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await cluster.api.request("PATCH", f"{PODS}/p/status", body=body, content_type=MERGE_PATCH)
    await cluster.node.journal.wait_for(lambda: not cluster.node.containers)
    await cluster.create("q", size=4)
    await cluster.phase("q", "Running")


async def test_init_containers_and_sidecars_have_their_statuses(cluster: Cluster) -> None:
    body = pod("p")
    body["spec"]["initContainers"] = [
        {"name": "prepare", "image": "i"},
        {"name": "side", "image": "i", "restartPolicy": "Always"},
    ]
    (await cluster.api.request("POST", PODS, body=body)).checked()
    status = (await cluster.phase("p", "Running"))["status"]
    prepare, side = status["initContainerStatuses"]
    assert prepare["state"]["terminated"]["exitCode"] == 0
    assert "running" in side["state"]
    assert [item["name"] for item in status["containerStatuses"]] == ["main"]


async def test_nonsense_in_run_seconds_counts_as_absent(cluster: Cluster) -> None:
    await cluster.create("p", annotations={"sandbox.gpushare/run-seconds": "soon"})
    await cluster.phase("p", "Running")


async def test_a_pod_removed_by_force_is_forgotten(cluster: Cluster) -> None:
    await cluster.create("p", size=4)
    await cluster.phase("p", "Running")
    await cluster.delete("p", gracePeriodSeconds=0)
    await cluster.create("p", size=4)
    await cluster.phase("p", "Running")
    assert allocated(cluster) == ["p", "p"]


async def test_a_pod_ends_by_itself_after_its_run_seconds(cluster: Cluster) -> None:
    await cluster.create("p", size=4, annotations={"sandbox.gpushare/run-seconds": "0.01"})
    ended = await cluster.phase("p", "Succeeded")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    await cluster.create("q", size=4)
    await cluster.phase("q", "Running")


async def test_a_restart_leaves_running_pods_alone_and_frees_those_that_went_meanwhile(
    cluster: Cluster,
) -> None:
    await cluster.create("stays", size=1)
    await cluster.create("goes", size=3)
    await cluster.phase("goes", "Running")
    await cluster.node.stop()
    await cluster.delete("goes", gracePeriodSeconds=0)
    await cluster.node.start()
    await cluster.node.ready()
    assert not (cluster.node.kubelet.plugin_folder / cluster.plugin.endpoint).exists()
    await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("0", "0"))
    await cluster.plugin.stop()
    await cluster.plugin.serve()
    await cluster.plugin.register()
    await cluster.node.journal.wait_for(
        lambda: cluster.node.kubelet.counts()[RESOURCE] == Count(capacity=4, allocatable=4)
    )
    await cluster.create("new", size=3)
    await cluster.phase("new", "Running")
    assert allocated(cluster) == ["stays", "goes", "new"]
    assert set(cluster.node.containers) == {("default", "stays"), ("default", "new")}


async def test_a_reboot_starts_pods_from_the_recorded_answers(cluster: Cluster) -> None:
    await cluster.create("p", size=2)
    await cluster.phase("p", "Running")
    before = dict(cluster.node.containers)
    await cluster.plugin.stop()
    cluster.node.hold_admission()
    await cluster.node.restart(reboot=True)
    assert cluster.node.containers == {}
    await cluster.plugin.serve()
    await cluster.plugin.register()
    await cluster.node.journal.wait_for(lambda: cluster.node.kubelet.counts()[RESOURCE].allocatable == 4)
    await cluster.node.admit(name="p")
    assert cluster.node.containers == before
    assert allocated(cluster) == ["p"]


async def test_a_container_restart_with_an_unhealthy_device_fails_the_pod(cluster: Cluster) -> None:
    await cluster.create("p", size=4)
    await cluster.phase("p", "Running")
    await cluster.node.restart_pod(name="p")
    assert allocated(cluster) == ["p"]
    await cluster.plugin.announce({"a": "Unhealthy"})
    await cluster.node.journal.wait_for(lambda: cluster.node.kubelet.counts()[RESOURCE].allocatable == 3)
    await cluster.node.restart_pod(name="p")
    failed = await cluster.phase("p", "Failed")
    assert "previously allocated devices are no longer healthy" in failed["status"]["message"]


async def test_a_status_that_the_api_does_not_take_is_written_again(cluster: Cluster) -> None:
    fault = cluster.server.faults.add(
        Rule(action="answer", status=500, method="PATCH", path="/pods/p/status", count=1)
    )
    await cluster.create("p")
    await cluster.phase("p", "Running")
    assert fault.hits == 1


async def test_a_node_waits_for_the_api_server() -> None:
    async with running_cluster(starts_node=False) as cluster:
        await cluster.server.stop()
        await cluster.node.start()
        await cluster.register_plugin()
        await cluster.server.start()
        async with asyncio.timeout(5):
            await cluster.node.ready()
        await cluster.until(NODE, lambda _, obj: amounts(obj, RESOURCE) == ("4", "4"))


async def test_a_node_in_its_own_process_says_when_it_is_ready_and_ends_on_sigterm() -> None:
    script = (
        "import argparse, asyncio; from sandbox.kubelet import run; parser = argparse.ArgumentParser(); "
        "run.add_arguments(parser); asyncio.run(run.run_node(parser.parse_args()))"
    )
    async with running_cluster(starts_node=False) as cluster, asyncio.timeout(20):
        folder = cluster.node.settings.kubelet_dir
        flags = [
            "--kubeconfig",
            str(folder / "kubeconfig"),
            "--node-name",
            "n1",
            "--kubelet-dir",
            str(folder),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, *flags, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line.decode() == f"node n1 ready, kubelet folder {folder}\n"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
