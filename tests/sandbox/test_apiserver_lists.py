"""Lists: selectors, pages of one version, and versions that are gone or not there yet."""

import contextlib
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver import ApiServer
from sandbox.apiserver.errors import BadRequest
from sandbox.apiserver.kinds import kind_of
from sandbox.apiserver.selectors import Subject, parse_selectors
from tests.sandbox.calls import NODES, PODS, bind, create, patch, pod, set_phase


async def names(client: httpx.AsyncClient, path: str = PODS, **query: Any) -> list[str]:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return [item["metadata"]["name"] for item in response.json()["items"]]


@pytest.fixture
async def three_pods(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod("a", labels={"app": "x", "tier": "1"}))
    await create(client, PODS, pod("b", labels={"app": "y", "tier": "20"}, schedulerName="other"))
    await create(client, PODS, pod("c"))
    await bind(client, "a", "n1")
    await bind(client, "b", "n2")
    await set_phase(client, "b", "Failed")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=x", "a"),
        ("app==x", "a"),
        ("app!=x", "bc"),
        ("app", "ab"),
        ("!app", "c"),
        ("app in (x, y)", "ab"),
        ("app in (x)", "a"),
        ("app notin (x)", "bc"),
        ("app in (x,y),tier=20", "b"),
        ("tier>5", "b"),
        ("tier<5", "a"),
        ("", "abc"),
    ],
)
async def test_label_selectors(
    client: httpx.AsyncClient, three_pods: None, selector: str, expected: str
) -> None:
    assert await names(client, labelSelector=selector) == list(expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", "a"),
        ("spec.nodeName=", "c"),
        ("spec.nodeName!=", "ab"),
        ("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", "a"),
        ("status.phase==Failed", "b"),
        ("spec.schedulerName=other", "b"),
        ("metadata.name=c", "c"),
        ("metadata.namespace=default", "abc"),
        ("metadata.namespace!=default", ""),
    ],
)
async def test_field_selectors(
    client: httpx.AsyncClient, three_pods: None, selector: str, expected: str
) -> None:
    assert await names(client, fieldSelector=selector) == list(expected)
    assert await names(client, "/api/v1/pods", fieldSelector=selector) == list(expected)


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        (PODS, {"fieldSelector": "spec.foo=1"}, "field label not supported: spec.foo"),
        (PODS, {"fieldSelector": "junk"}, "invalid selector: 'junk'; can't understand 'junk'"),
        (
            "/apis/apps/v1/deployments",
            {"fieldSelector": "spec.foo=1"},
            '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (PODS, {"labelSelector": "a in"}, "unable to parse requirement"),
        (PODS, {"labelSelector": "=x"}, "unable to parse requirement"),
        (PODS, {"labelSelector": "a in (x"}, "unable to parse requirement"),
        (PODS, {"labelSelector": "a>b"}, "unable to parse requirement"),
        (PODS, {"limit": "many"}, "limit"),
        (PODS, {"resourceVersion": "x"}, "resourceVersion"),
        (PODS, {"continue": "x", "resourceVersion": "5"}, "not allowed when using continue"),
        (PODS, {"continue": "x"}, "continue key is not valid"),
        (PODS, {"continue": "eyJ2IjoxfQ"}, "continue key is not valid"),
    ],
)
async def test_a_query_that_cannot_be_understood_is_400(
    client: httpx.AsyncClient, path: str, query: dict[str, str], message: str
) -> None:
    for extra in ({}, {"watch": "1"}) if "continue" not in query and "limit" not in query else ({},):
        response = await client.get(path, params={**query, **extra})
        assert (response.status_code, response.json()["reason"]) == (400, "BadRequest")
        assert message in response.json()["message"]


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_selector_breaks_the_parser(labels: str, fields: str) -> None:
    with contextlib.suppress(BadRequest):
        parse_selectors(kind=kind_of("pods"), labels=labels, fields=fields).matches(
            Subject(labels={"a": "1"}, fields={})
        )


async def test_pages_show_one_version_whatever_is_written_meanwhile(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    for name in "bdfhj":
        await create(client, PODS, pod(name))
    first = (await client.get(PODS, params={"limit": 2})).json()
    assert first["metadata"]["remainingItemCount"] == 3
    await create(client, PODS, pod("g"))
    await client.delete(f"{PODS}/h")
    await patch(client, f"{PODS}/j", {"metadata": {"labels": {"late": "yes"}}})
    await client.delete(f"{PODS}/b")
    rest = (await client.get(PODS, params={"limit": 2, "continue": first["metadata"]["continue"]})).json()
    last = (await client.get(PODS, params={"limit": 2, "continue": rest["metadata"]["continue"]})).json()
    found = [*first["items"], *rest["items"], *last["items"]]
    assert [item["metadata"]["name"] for item in found] == list("bdfhj")
    assert "labels" not in found[-1]["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (first, rest, last)} == {
        first["metadata"]["resourceVersion"]
    }
    assert rest["metadata"]["remainingItemCount"] == 1
    assert last["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    assert await names(client) == list("dfgj")


async def test_pages_with_a_selector_do_not_count_what_remains(
    client: httpx.AsyncClient, three_pods: None
) -> None:
    first = (await client.get(PODS, params={"limit": 1, "labelSelector": "app"})).json()
    assert [item["metadata"]["name"] for item in first["items"]] == ["a"]
    assert "remainingItemCount" not in first["metadata"]
    following = {"limit": 1, "labelSelector": "app", "continue": first["metadata"]["continue"]}
    assert await names(client, **following) == ["b"]


async def test_pages_over_all_namespaces_follow_the_order_of_keys(client: httpx.AsyncClient) -> None:
    for namespace in ("default", "kube-public", "kube-system"):
        for name in ("z", "a"):
            await create(client, f"/api/v1/namespaces/{namespace}/pods", pod(name))
    found: list[tuple[str, str]] = []
    query: dict[str, Any] = {"limit": 4}
    while True:
        page = (await client.get("/api/v1/pods", params=query)).json()
        found += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page["items"]]
        if not (token := page["metadata"].get("continue")):
            break
        query["continue"] = token
    assert found == sorted(found)
    assert len(found) == 6


async def test_a_token_from_an_expired_history_is_410_and_offers_another(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    for name in "abc":
        await create(client, PODS, pod(name))
    token = (await client.get(PODS, params={"limit": 1})).json()["metadata"]["continue"]
    await create(client, PODS, pod("aa"))
    api.faults.expire_history()
    expired = await client.get(PODS, params={"limit": 5, "continue": token})
    assert (expired.status_code, expired.json()["reason"]) == (410, "Expired")
    assert "too old to display a consistent list" in expired.json()["message"]
    assert await names(client, **{"continue": expired.json()["metadata"]["continue"]}) == ["aa", "b", "c"]


async def test_a_list_at_a_version(api: ApiServer, client: httpx.AsyncClient) -> None:
    version = (await create(client, PODS, pod("a")))["metadata"]["resourceVersion"]
    await create(client, PODS, pod("b"))
    assert await names(client, resourceVersion=version, resourceVersionMatch="Exact") == ["a"]
    assert await names(client, resourceVersion=version, resourceVersionMatch="NotOlderThan") == ["a", "b"]
    assert await names(client, resourceVersion="0") == ["a", "b"]
    without = await client.get(PODS, params={"resourceVersionMatch": "Exact"})
    assert (without.status_code, without.json()["reason"]) == (422, "Invalid")
    early = await client.get(PODS, params={"resourceVersion": api.store.version + 9})
    assert (early.status_code, early.headers["Retry-After"]) == (504, "1")
    assert "Too large resource version" in early.json()["message"]
    api.faults.expire_history()
    gone = await client.get(PODS, params={"resourceVersion": version, "resourceVersionMatch": "Exact"})
    assert (gone.status_code, gone.json()["reason"]) == (410, "Expired")


async def test_objects_loaded_in_bulk_are_like_any_other(api: ApiServer, client: httpx.AsyncClient) -> None:
    nodes = [
        {"metadata": {"name": f"n{number:03}", "labels": {"odd": str(number % 2)}}} for number in range(100)
    ]
    assert api.load("nodes", nodes) == 100
    assert len(await names(client, NODES, labelSelector="odd=1")) == 50
    found = (await client.get(f"{NODES}/n042")).json()["metadata"]
    assert found["uid"]
    assert (await client.delete(f"{NODES}/n042")).status_code == 200
    assert len(await names(client, NODES)) == 99
