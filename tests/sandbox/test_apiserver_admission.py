"""Webhooks see new pods, may change or refuse them, and stop the creation when they fail."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from sandbox.apiserver import ApiServer
from tests.sandbox.calls import NODES, PODS, create, pod

Decide = Callable[[dict[str, Any]], Any]


class Webhook:
    """A webhook that records what it is asked and answers what it is told."""

    def __init__(self, decide: Decide) -> None:
        self.asked: list[dict[str, Any]] = []
        self._decide = decide

    async def __call__(self, request: Request) -> Response:
        review = await request.json()
        self.asked.append(review["request"])
        answer = self._decide(review["request"])
        if isinstance(answer, Response):
            return answer
        response = {"uid": review["request"]["uid"], **answer}
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        return Response(json.dumps(body), media_type="application/json")


@asynccontextmanager
async def serving(decide: Decide) -> AsyncIterator[tuple[str, Webhook]]:
    """A webhook on a free port."""
    webhook, app = Webhook(decide), FastAPI()
    app.add_api_route("/mutate", webhook, methods=["POST"], response_model=None)
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mutate", webhook
    finally:
        await server.shutdown()


def patching(*operations: dict[str, Any], **more: Any) -> Decide:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": patch, **more}


ADD_SLOT = {
    "op": "add",
    "path": "/spec/containers/0/resources/limits",
    "value": {"aliyun.com/gpu-slot": "1000"},
}


async def test_a_patch_is_applied_and_defaulted_again(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with serving(patching(ADD_SLOT)) as (url, webhook):
        api.admission.mutating = url
        created = await create(client, PODS, pod())
        await create(client, NODES, {"metadata": {"name": "n"}})
    amounts = {"aliyun.com/gpu-slot": "1k"}
    assert created["spec"]["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    [asked] = webhook.asked
    assert (asked["operation"], asked["namespace"], asked["name"]) == ("CREATE", "default", "p")
    assert asked["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    shown = asked["object"]
    assert (shown["kind"], shown["apiVersion"]) == ("Pod", "v1")
    assert shown["spec"]["schedulerName"] == "default-scheduler"  # defaults come first


async def test_without_a_patch_the_pod_is_as_it_was(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with serving(lambda _: {"allowed": True}) as (url, _):
        api.admission.mutating = url
        assert (await create(client, PODS, pod()))["metadata"]["name"] == "p"


@pytest.mark.parametrize("hook", ["mutating", "validating"])
async def test_a_refusal_is_403_with_the_webhooks_reason(
    api: ApiServer, client: httpx.AsyncClient, hook: str
) -> None:
    async with serving(lambda _: {"allowed": False, "status": {"message": "counts MiB"}}) as (url, _):
        setattr(api.admission, hook, url)
        refused = await client.post(PODS, json=pod())
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
    assert refused.json()["message"] == f'admission webhook "{url}" denied the request: counts MiB'
    assert (await client.get(f"{PODS}/p")).status_code == 404


async def test_a_refusal_keeps_the_code_it_names(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with serving(lambda _: {"allowed": False, "status": {"code": 422, "reason": "Invalid"}}) as (
        url,
        _,
    ):
        api.admission.mutating = url
        refused = await client.post(PODS, json=pod())
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")


async def test_warnings_reach_the_client(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with serving(lambda _: {"allowed": True, "warnings": ['unknown key "x"', "second"]}) as (url, _):
        api.admission.validating = url
        created = await client.post(PODS, json=pod())
    assert created.headers.get_list("Warning") == ['299 - "unknown key \\"x\\""', '299 - "second"']


async def test_the_validating_webhook_sees_what_the_mutating_one_made(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with (
        serving(patching(ADD_SLOT)) as (mutating, _),
        serving(lambda _: {"allowed": True}) as (validating, seen),
    ):
        api.admission.mutating, api.admission.validating = mutating, validating
        await create(client, PODS, pod())
    assert seen.asked[0]["object"]["spec"]["containers"][0]["resources"]["limits"] == {
        "aliyun.com/gpu-slot": "1k"
    }


@pytest.mark.parametrize(
    "decide",
    [
        lambda _: Response("no", status_code=500),
        lambda _: Response("not json"),
        lambda _: Response("[]"),
        lambda _: {"uid": "another", "allowed": True},
        lambda _: {"allowed": True, "patch": "%%%"},
        lambda _: {"allowed": True, "patch": 5},
        patching({"op": "remove", "path": "/nope"}),
        patching({"op": "replace", "path": "", "value": 1}),
    ],
    ids=["500", "no JSON", "no review", "other uid", "no base64", "no text", "does not apply", "no object"],
)
async def test_a_webhook_that_fails_stops_the_creation(
    api: ApiServer, client: httpx.AsyncClient, decide: Decide
) -> None:
    async with serving(decide) as (url, _):
        api.admission.mutating = url
        failed = await client.post(PODS, json=pod())
    assert (failed.status_code, failed.json()["reason"]) == (500, "InternalError")
    assert failed.json()["message"].startswith(f'Internal error occurred: failed calling webhook "{url}"')
    assert (await client.get(f"{PODS}/p")).status_code == 404


async def test_a_webhook_that_cannot_be_reached_stops_the_creation_until_it_is_unset(
    client: httpx.AsyncClient, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/mutate"
    assert (await client.put("/_sandbox/webhooks", json={"mutating": url})).json() == {
        "mutating": url,
        "validating": None,
    }
    failed = await client.post(PODS, json=pod())
    assert failed.status_code == 500
    assert "failed to call webhook" in failed.json()["message"]
    await client.put("/_sandbox/webhooks", json={})
    await create(client, PODS, pod())
    assert (await client.put("/_sandbox/webhooks", json={"typo": 1})).status_code == 400


async def test_a_patch_that_breaks_the_pod_is_the_pods_error(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with serving(patching({"op": "replace", "path": "/spec/containers", "value": 5})) as (url, _):
        api.admission.mutating = url
        assert (await client.post(PODS, json=pod())).status_code == 400
