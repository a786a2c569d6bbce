"""What the stand-in sends is what a real kube-scheduler was recorded sending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kubeapi.client import KubeApi
from sandbox.apiserver import ApiServer
from sandbox.scheduler import ExtenderClient, ExtenderSettings, Scheduler
from tests.running import running
from tests.sandbox.calls import NODES, PODS, create
from tests.sandbox.scriptedextender import Request, ScriptedExtender, serve

WIRE = Path(__file__).parents[1] / "wire"
VARYING = {"Host", "Content-Length"}


def recorded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text())
    return loaded


def shape(value: Any) -> Any:
    """Keys at every level, nulls, and the types of the rest. Who wrote which field of a node last
    (`managedFields`) is left out: the sandbox's API server does not keep it."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key != "managedFields"}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return None if value is None else type(value).__name__


@pytest.mark.parametrize(("mode", "names"), [("node-names", True), ("nodes", False)])
async def test_requests_have_the_recorded_keys_nulls_and_headers(
    api: ApiServer, client: httpx.AsyncClient, tmp_path: Path, *, mode: str, names: bool
) -> None:
    recordings = [recorded(f"filter-{mode}"), recorded(f"prioritize-{mode}"), recorded("bind")]
    for node in recorded("filter-nodes")["body"]["Nodes"]["items"]:
        await create(client, NODES, _new(node))
    pod = recordings[0]["body"]["Pod"]
    name = pod["metadata"]["name"]
    async with (
        serve(ScriptedExtender()) as extender,
        await KubeApi.connect(api.kubeconfig(tmp_path / "kubeconfig"), user_agent="test") as kube,
        ExtenderClient(ExtenderSettings(url=extender.url, node_cache_capable=names)) as calls,
        running(Scheduler(api=kube, extender=calls).run()),
    ):
        await create(client, PODS, _new(pod))
        await extender.until(("filter", name), ("prioritize", name), ("bind", name))
    for sent, recording in zip(extender.requests, recordings, strict=True):
        assert sent.path == recording["path"]
        assert shape(sent.body) == shape(recording["body"])
        assert _headers(sent.headers) == _headers(recording["headers"])
    assert _names(extender.requests[0]) == _names(Request(**recordings[0]))


def _new(obj: dict[str, Any]) -> dict[str, Any]:
    """The same object as somebody would create it."""
    kept = {key: obj["metadata"][key] for key in ("name", "labels") if key in obj["metadata"]}
    return obj | {"metadata": kept}


def _headers(headers: dict[str, str]) -> dict[str, str]:
    return {key: "" if key in VARYING else value for key, value in headers.items()}


def _names(request: Request) -> list[str]:
    if request.body["NodeNames"] is not None:
        return sorted(request.body["NodeNames"])
    return sorted(node["metadata"]["name"] for node in request.body["Nodes"]["items"])
