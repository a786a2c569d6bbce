"""The server as clients meet it: discovery, bad input, kubectl and the official Python client."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import kubernetes.aio as kubernetes
import pytest
import yaml

from sandbox.apiserver import ApiServer
from tests.sandbox.calls import LEASES, NODES, PODS, create, pod

KUBECTL = shutil.which("kubectl")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert (response.status_code, response.text) == (200, "ok")


async def test_discovery_leads_to_every_kind(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json()["minor"] == "36"
    assert (await client.get("/api")).json()["versions"] == ["v1"]
    groups = (await client.get("/apis")).json()["groups"]
    lists = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    kinds = set()
    for path in lists:
        document = (await client.get(path)).json()
        assert document["kind"] == "APIResourceList"
        for resource in document["resources"]:
            if "list" in resource["verbs"]:
                kinds.add(resource["kind"])
                assert (await client.get(f"{path}/{resource['name']}")).status_code == 200
    assert kinds == {
        "Pod",
        "Node",
        "Namespace",
        "Event",
        "Lease",
        "PriorityClass",
        "Deployment",
        "Service",
        "EndpointSlice",
    }
    assert (await client.get("/apis/apps")).json()["name"] == "apps"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/api/v2", 404),
        ("GET", "/api/v1/things", 404),
        ("GET", "/apis/none/v1/things", 404),
        ("GET", "/apis/none/v1", 404),
        ("GET", "/openapi/v2", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", f"{PODS}/p/log", 404),
        ("GET", f"{LEASES}/l/status", 404),
        ("GET", f"{NODES}/n/binding", 404),
        ("GET", f"{PODS}/a/status/b", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", f"{PODS}/missing", 404),
        ("PUT", f"{PODS}/missing", 404),
        ("DELETE", f"{PODS}/missing", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/p", 405),
        ("GET", f"{PODS}/p/binding", 405),
        ("DELETE", f"{NODES}/n/status", 405),
        ("POST", "/version", 405),
        ("OPTIONS", PODS, 405),
    ],
)
async def test_what_is_not_there_or_not_allowed_is_a_status(
    client: httpx.AsyncClient, method: str, path: str, code: int
) -> None:
    body = pod("missing") if method in ("PUT", "POST") else None
    response = await client.request(method, path, json=body)
    assert response.status_code == code, response.text
    assert (response.json()["kind"], response.json()["code"]) == ("Status", code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'"text"',
        b"null",
        b"5",
        b'{"metadata": 5}',
        b'{"metadata": {"name": 5}}',
        b'{"metadata": {"name": "p", "labels": ["a"]}}',
        b'{"metadata": {"name": "p", "labels": {"a": 1}}}',
        b'{"metadata": {"name": "p"}, "spec": []}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": {}}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": ["a"]}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [{"resources": []}]}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [{"env": [5]}]}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [], "schedulingGates": [5]}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [], "tolerations": [5]}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [], "terminationGracePeriodSeconds": "x"}}',
        b'{"metadata": {"name": "p"}, "status": 5}',
        b'{"kind": 5, "metadata": {"name": "p"}}',
        b'{"kind": ["Pod"], "apiVersion": {}, "metadata": {"name": "p"}}',
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_body_of_the_wrong_shape_is_400(client: httpx.AsyncClient, method: str, body: bytes) -> None:
    await create(client, PODS, pod("there"))
    path = PODS if method == "POST" else f"{PODS}/there"
    response = await client.request(method, path, content=body.replace(b'"p"', b'"there"'))
    assert (response.status_code, response.json()["kind"]) == (400, "Status"), response.text


WEIRD: list[Any] = [None, True, 5, 1.5, "x", [], {}, [None], [5], {"a": None}, [{}], {"a": {}}]


@pytest.mark.parametrize("weird", WEIRD, ids=json.dumps)
async def test_no_value_anywhere_in_an_object_breaks_the_server(
    client: httpx.AsyncClient, weird: Any
) -> None:
    container = {
        "name": "c",
        "image": "x",
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}],
        "ports": [{"containerPort": 1}],
        "livenessProbe": {"httpGet": {"port": 1}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    full = pod(
        containers=[container],
        initContainers=[{"name": "i", "image": "x"}],
        tolerations=[{"key": "a"}],
        schedulingGates=[{"name": "g"}],
        volumes=[
            {"name": "v", "secret": {}},
            {"name": "w", "emptyDir": {"sizeLimit": "1"}},
            {"name": "h", "hostPath": {}},
        ],
        affinity={"nodeAffinity": {}},
        priorityClassName="",
        securityContext={},
    )
    node = {
        "metadata": {"name": "n", "labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []},
        "spec": {"taints": []},
        "status": {
            "capacity": {},
            "allocatable": {},
            "conditions": [{}],
            "nodeInfo": {},
            "daemonEndpoints": {},
        },
    }
    named = {"metadata": {"name": "n", "labels": {}}}
    others = {
        "/api/v1/namespaces": {**named, "spec": {"finalizers": []}, "status": {"phase": ""}},
        "/apis/scheduling.k8s.io/v1/priorityclasses": {**named, "value": 1, "globalDefault": False},
        LEASES: {**named, "spec": {"leaseDurationSeconds": 1}},
        "/apis/apps/v1/namespaces/default/deployments": {**named, "spec": {"replicas": 1}},
        "/api/v1/namespaces/default/events": {
            **named,
            "source": {"component": ""},
            "involvedObject": {"kind": ""},
        },
    }
    for path, manifest in ((PODS, full), (NODES, node), *others.items()):
        for changed in _with_each_value_replaced(manifest, weird):
            response = await client.post(path, params={"dryRun": "All"}, json=changed)
            assert response.status_code in (201, 400, 403, 422), f"{changed}: {response.text}"


def _with_each_value_replaced(value: Any, weird: Any) -> list[Any]:
    """Copies of a document, each with another one of its values replaced."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [
            {**value, key: changed}
            for key in value
            for changed in _with_each_value_replaced(value[key], weird)
        ]
    elif isinstance(value, list):
        inner = [
            [*value[:index], changed, *value[index + 1 :]]
            for index, item in enumerate(value)
            for changed in _with_each_value_replaced(item, weird)
        ]
    return [weird, *inner]


async def test_a_delete_with_a_broken_body_deletes_nothing(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    for body in (b"{", b"[]", b'{"gracePeriodSeconds": "x"}', b'{"preconditions": 5}'):
        assert (await client.request("DELETE", f"{PODS}/p", content=body)).status_code == 400
    assert (await client.get(f"{PODS}/p")).status_code == 200


async def test_other_encodings_are_415_and_406(client: httpx.AsyncClient) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    sent = await client.post(PODS, content=b"k8s", headers={"Content-Type": protobuf})
    assert (sent.status_code, sent.json()["reason"]) == (415, "UnsupportedMediaType")
    wanted = await client.get(PODS, headers={"Accept": protobuf})
    assert (wanted.status_code, wanted.json()["reason"]) == (406, "NotAcceptable")


async def test_a_broken_request_line_does_not_end_the_server(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))
    writer.write(b"nonsense\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()
    assert (await client.get("/healthz")).status_code == 200


async def test_it_starts_at_once_on_a_free_port() -> None:
    started = time.perf_counter()
    async with ApiServer() as first, ApiServer() as second:
        assert time.perf_counter() - started < 0.3
        assert first.url != second.url


async def test_the_official_client_works_with_the_kubeconfig(api: ApiServer, tmp_path: Path) -> None:
    await kubernetes.config.load_kube_config(config_file=str(api.kubeconfig(tmp_path / "config")))
    async with kubernetes.client.ApiClient() as http:
        core = kubernetes.client.CoreV1Api(http)
        created = await core.create_namespaced_pod("default", pod("a"))
        assert created.metadata.uid
        assert [item.metadata.name for item in (await core.list_namespaced_pod("default")).items] == ["a"]
        await core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"x": "y"}}})
        watched = kubernetes.watch.Watch()
        async for event in watched.stream(core.list_namespaced_pod, "default", timeout_seconds=5):
            assert (event["type"], event["object"].metadata.labels) == ("ADDED", {"x": "y"})
            break
        await watched.close()
        await core.delete_namespaced_pod("a", "default")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
async def test_kubectl_applies_gets_patches_and_deletes(api: ApiServer, tmp_path: Path) -> None:
    config = str(api.kubeconfig(tmp_path / "config"))
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod("a", labels={"v": "1"})}))

    async def kubectl(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(KUBECTL),
            *arguments,
            env={**os.environ, "KUBECONFIG": config, "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    assert "pod/a created" in await kubectl("apply", "-f", str(manifest))
    assert "pod/a unchanged" in await kubectl("apply", "-f", str(manifest))
    manifest.write_text(manifest.read_text().replace("v: '1'", "w: '2'"))
    assert "pod/a configured" in await kubectl("apply", "-f", str(manifest))
    assert api.objects("pods")[0]["metadata"]["labels"] == {"w": "2"}
    assert json.loads(await kubectl("get", "pods", "-A", "-o", "json"))["items"][0]["metadata"]["name"] == "a"
    assert "labeled" in await kubectl("label", "pod", "a", "x=y")
    assert 'pod "a" deleted' in await kubectl("delete", "pod", "a")
    assert api.objects("pods") == []
