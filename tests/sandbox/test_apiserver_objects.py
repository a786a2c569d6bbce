"""Creating, reading, replacing and deleting objects of any kind."""

import asyncio
from typing import Any

import httpx
import pytest

from sandbox.apiserver import ApiServer
from sandbox.apiserver.kinds import EVENTS_KEPT
from tests.sandbox.calls import LEASES, NODES, PODS, bind, create, patch, pod, set_phase, watch

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.mark.parametrize(
    ("path", "manifest"),
    [
        (PODS, pod("x")),
        (NODES, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "x"}}),
        (LEASES, {"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}}),
        (EVENTS, {"metadata": {"name": "x"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "r"}),
        (CLASSES, {"metadata": {"name": "x"}, "value": 7}),
        (DEPLOYMENTS, {"metadata": {"name": "x"}, "spec": {"template": {}}}),
        ("/api/v1/namespaces", {"metadata": {"name": "x"}}),
    ],
)
async def test_every_kind_can_be_created_read_listed_and_deleted(
    client: httpx.AsyncClient, path: str, manifest: dict[str, Any]
) -> None:
    created = await create(client, path, manifest)
    assert (await client.get(f"{path}/x")).json() == created
    listed = (await client.get(path)).json()
    assert listed["kind"] == created["kind"] + "List"
    shown = next(item for item in listed["items"] if item["metadata"]["name"] == "x")
    assert {"kind": created["kind"], "apiVersion": created["apiVersion"], **shown} == created
    assert (await client.delete(f"{path}/x")).status_code == 200
    gone = await client.get(f"{path}/x")
    assert (gone.status_code, gone.json()["reason"]) == (404, "NotFound")


async def test_versions_grow_over_all_kinds(client: httpx.AsyncClient) -> None:
    versions = [
        int((await create(client, path, manifest))["metadata"]["resourceVersion"])
        for path, manifest in ((PODS, pod("a")), (NODES, {"metadata": {"name": "n"}}), (PODS, pod("b")))
    ]
    assert versions == sorted(set(versions))


async def test_a_name_is_made_up_from_generate_name(client: httpx.AsyncClient) -> None:
    manifest = pod()
    manifest["metadata"] = {"generateName": "web-" + "x" * 70}
    names = {(await create(client, PODS, manifest))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    for name in names:
        assert len(name) == 63
        assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_a_taken_name_is_409(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    again = await client.post(PODS, json=pod())
    assert again.status_code == 409
    assert again.json()["reason"] == "AlreadyExists"
    assert again.json()["message"] == 'pods "p" already exists'
    assert again.json()["details"] == {"name": "p", "kind": "pods"}


async def test_of_two_writers_with_one_version_one_is_refused(client: httpx.AsyncClient) -> None:
    lease = await create(client, LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "nobody"}})
    tries = [{**lease, "spec": {"holderIdentity": name}} for name in ("a", "b")]
    answers = await asyncio.gather(*(client.put(f"{LEASES}/l", json=body) for body in tries))
    assert sorted(answer.status_code for answer in answers) == [200, 409]


async def test_a_lease_cannot_be_replaced_without_a_version_but_a_node_can(client: httpx.AsyncClient) -> None:
    await create(client, LEASES, {"metadata": {"name": "l"}})
    refused = await client.put(f"{LEASES}/l", json={"metadata": {"name": "l"}})
    assert refused.status_code == 422
    assert refused.json()["message"] == (
        'leases.coordination.k8s.io "l" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )
    await create(client, NODES, {"metadata": {"name": "n"}})
    node = {"metadata": {"name": "n", "labels": {"a": "b"}}}
    assert (await client.put(f"{NODES}/n", json=node)).json()["metadata"]["labels"] == {"a": "b"}


async def test_put_creates_a_lease_that_does_not_exist_but_no_pod(client: httpx.AsyncClient) -> None:
    lease = {"metadata": {"resourceVersion": "5"}, "spec": {"holderIdentity": "me"}}
    created = await client.put(f"{LEASES}/l", json=lease)
    assert (created.status_code, created.json()["metadata"]["name"]) == (201, "l")
    assert (await client.put(f"{PODS}/p", json=pod())).status_code == 404


async def test_an_event_lives_in_the_namespace_of_what_it_is_about(client: httpx.AsyncClient) -> None:
    for about, code in (
        ({"namespace": "kube-system"}, 422),
        ({"namespace": "default"}, 201),
        ({"kind": "Node"}, 201),
    ):
        event = {"metadata": {"generateName": "e"}, "involvedObject": about}
        assert (await client.post(EVENTS, json=event)).status_code == code
    elsewhere = "/api/v1/namespaces/kube-system/events"
    refused = await client.post(
        elsewhere, json={"metadata": {"name": "e"}, "involvedObject": {"kind": "Node"}}
    )
    assert refused.status_code == 422


async def test_put_of_another_uid_is_409(client: httpx.AsyncClient) -> None:
    created = await create(client, NODES, {"metadata": {"name": "n"}})
    created["metadata"]["uid"] = "other"
    refused = await client.put(f"{NODES}/n", json=created)
    assert refused.status_code == 409
    assert "/registry/minions/n" in refused.json()["message"]
    assert "Precondition failed: UID in precondition: other" in refused.json()["message"]


async def test_what_only_the_server_sets_cannot_be_changed(client: httpx.AsyncClient) -> None:
    manifest = pod()
    manifest["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    created = await create(client, PODS, manifest)
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["generation"] == 1
    change = {
        "metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "deletionTimestamp": "x"}
    }
    assert (await patch(client, f"{PODS}/p", change)).json() == created


async def test_status_changes_through_its_endpoint_only(client: httpx.AsyncClient) -> None:
    created = await create(client, PODS, {**pod(), "status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    unchanged = await patch(client, f"{PODS}/p", {"status": {"phase": "Running"}})
    assert unchanged.json() == created
    change = {
        "status": {"phase": "Running"},
        "spec": {"nodeName": "n"},
        "metadata": {"annotations": {"a": "b"}},
    }
    changed = (await patch(client, f"{PODS}/p/status", change)).json()
    assert changed["status"] == {"phase": "Running", "qosClass": "BestEffort"}
    assert "nodeName" not in changed["spec"]
    assert changed["metadata"]["annotations"] == {"a": "b"}  # as in Kubernetes
    changed["status"]["phase"] = "Failed"
    assert (await client.put(f"{PODS}/p/status", json=changed)).json()["status"]["phase"] == "Failed"
    assert (await client.get(f"{PODS}/p/status")).json()["status"]["phase"] == "Failed"


async def test_fields_this_server_does_not_know_are_kept(client: httpx.AsyncClient) -> None:
    created = await create(client, PODS, pod(fieldOfTomorrow={"deep": [1, {"a": 2.5}]}))
    assert created["spec"]["fieldOfTomorrow"] == {"deep": [1, {"a": 2.5}]}
    await bind(client, "p")
    assert (await client.get(f"{PODS}/p")).json()["spec"]["fieldOfTomorrow"] == {"deep": [1, {"a": 2.5}]}


async def test_generation_counts_changes_of_the_spec(client: httpx.AsyncClient) -> None:
    await create(client, DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    labelled = await patch(client, f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json()["metadata"]["generation"] == 1
    scaled = await patch(client, f"{DEPLOYMENTS}/d", {"spec": {"replicas": 2}})
    assert scaled.json()["metadata"]["generation"] == 2


async def test_a_bound_pod_stays_until_its_kubelet_deletes_it_with_no_grace(
    client: httpx.AsyncClient,
) -> None:
    await create(client, PODS, pod())
    await bind(client, "p")
    await set_phase(client, "p", "Running")
    marked = (await client.delete(f"{PODS}/p")).json()["metadata"]
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (30, 2)
    assert marked["deletionTimestamp"] > marked["creationTimestamp"]
    again = (await client.delete(f"{PODS}/p")).json()["metadata"]
    assert again == marked
    sooner = (await client.request("DELETE", f"{PODS}/p", json={"gracePeriodSeconds": 5})).json()["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < marked["deletionTimestamp"]
    longer = (await client.delete(f"{PODS}/p", params={"gracePeriodSeconds": 50})).json()["metadata"]
    assert longer == sooner
    last = (await client.delete(f"{PODS}/p", params={"gracePeriodSeconds": 0})).json()["metadata"]
    assert last["deletionGracePeriodSeconds"] == 0
    assert (await client.get(f"{PODS}/p")).status_code == 404


@pytest.mark.parametrize("phase", ["", "Succeeded", "Failed"])
async def test_a_pod_without_a_node_or_at_its_end_goes_at_once(client: httpx.AsyncClient, phase: str) -> None:
    await create(client, PODS, pod())
    if phase:
        await bind(client, "p")
        await set_phase(client, "p", phase)
    async with watch(client, PODS) as events:
        await events.next()
        assert (await client.delete(f"{PODS}/p")).status_code == 200
        assert await events.names(2) == [("MODIFIED", "p"), ("DELETED", "p")]
    assert (await client.get(f"{PODS}/p")).status_code == 404


async def test_a_finalizer_holds_a_deleted_object(client: httpx.AsyncClient) -> None:
    node: dict[str, Any] = {"metadata": {"name": "n", "finalizers": ["example.com/wait"]}}
    await create(client, NODES, node)
    held = await client.delete(f"{NODES}/n")
    assert "deletionTimestamp" in held.json()["metadata"]
    assert (await patch(client, f"{NODES}/n", {"metadata": {"labels": {"a": "b"}}})).status_code == 200
    assert (await client.get(f"{NODES}/n")).status_code == 200
    await patch(client, f"{NODES}/n", {"metadata": {"finalizers": None}})
    assert (await client.get(f"{NODES}/n")).status_code == 404


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_delete_respects_preconditions(client: httpx.AsyncClient, precondition: dict[str, str]) -> None:
    created = (await create(client, PODS, pod()))["metadata"]
    refused = await client.request("DELETE", f"{PODS}/p", json={"preconditions": precondition})
    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert refused.json()["message"].startswith('Operation cannot be fulfilled on Pod "p": the ')
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    assert (await client.request("DELETE", f"{PODS}/p", json={"preconditions": right})).status_code == 200


async def test_delete_of_other_kinds_answers_a_status(client: httpx.AsyncClient) -> None:
    uid = (await create(client, LEASES, {"metadata": {"name": "l"}}))["metadata"]["uid"]
    assert (await client.delete(f"{LEASES}/l")).json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "l", "group": "coordination.k8s.io", "kind": "leases", "uid": uid},
    }


async def test_a_collection_is_deleted_by_selector(client: httpx.AsyncClient) -> None:
    for name in ("a", "b", "c"):
        await create(client, PODS, pod(name, labels={"keep": "yes" if name == "b" else "no"}))
    deleted = await client.delete(PODS, params={"labelSelector": "keep=no"})
    assert [item["metadata"]["name"] for item in deleted.json()["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in (await client.get(PODS)).json()["items"]] == ["b"]


async def test_a_namespace_must_exist_and_takes_its_objects_with_it(client: httpx.AsyncClient) -> None:
    path = "/api/v1/namespaces/team/pods"
    refused = await client.post(path, json=pod())
    assert (refused.status_code, refused.json()["message"]) == (404, 'namespaces "team" not found')
    await create(client, "/api/v1/namespaces", {"metadata": {"name": "team"}})
    await create(client, path, pod())
    await client.delete("/api/v1/namespaces/team")
    assert (await client.get("/api/v1/pods")).json()["items"] == []


async def test_dry_run_checks_and_writes_nothing(api: ApiServer, client: httpx.AsyncClient) -> None:
    version = api.store.version
    created = await client.post(PODS, params={"dryRun": "All"}, json=pod())
    assert (created.status_code, created.json()["metadata"]["name"]) == (201, "p")
    refused = await client.post(PODS, params={"dryRun": "All"}, json=pod("Not_A_Name"))
    assert refused.status_code == 422
    assert (await client.get(PODS)).json()["items"] == []
    await create(client, PODS, pod())
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await patch(client, f"{PODS}/p?dryRun=All", labels)).json()["metadata"]["labels"] == {"a": "b"}
    assert (await client.delete(f"{PODS}/p", params={"dryRun": "All"})).status_code == 200
    await client.post(
        f"{PODS}/p/binding?dryRun=All", json={"metadata": {"name": "p"}, "target": {"name": "n"}}
    )
    assert api.store.version == version + 1
    assert (await client.get(PODS, params={"dryRun": "x"})).status_code == 200
    assert (await client.post(PODS, params={"dryRun": "x"}, json=pod("q"))).status_code == 400


async def test_events_are_shown_by_both_groups_in_their_own_fields(client: httpx.AsyncClient) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    await create(
        client, EVENTS, {"metadata": {"name": "old"}, "involvedObject": about, "message": "m", "count": 2}
    )
    shown = (await client.get(f"{NEW_EVENTS}/old")).json()
    assert (shown["apiVersion"], shown["regarding"], shown["note"], shown["deprecatedCount"]) == (
        "events.k8s.io/v1",
        about,
        "m",
        2,
    )
    await create(client, NEW_EVENTS, {"metadata": {"name": "new"}, "regarding": about, "note": "n"})
    assert (await client.get(f"{EVENTS}/new")).json()["message"] == "n"
    assert (await patch(client, f"{NEW_EVENTS}/new", {"note": "o"})).json()["note"] == "o"
    found = await client.get(
        EVENTS, params={"fieldSelector": "involvedObject.name=p,involvedObject.kind=Pod"}
    )
    assert len(found.json()["items"]) == 2
    assert [item["note"] for item in (await client.get(NEW_EVENTS)).json()["items"]] == ["o", "m"]
    async with watch(client, NEW_EVENTS) as events:
        assert [(await events.next())[1]["note"] for _ in range(2)] == ["o", "m"]


async def test_only_the_newest_events_are_kept(api: ApiServer, client: httpx.AsyncClient) -> None:
    api.load("events", [{"metadata": {"name": f"e{number}"}} for number in range(EVENTS_KEPT)])
    await create(client, EVENTS, {"metadata": {"name": "last"}})
    names = {event["metadata"]["name"] for event in api.objects("events")}
    assert len(names) == EVENTS_KEPT
    assert "last" in names
    assert "e0" not in names


async def test_an_object_of_another_place_or_kind_is_400(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    elsewhere = pod("q")
    elsewhere["metadata"]["namespace"] = "kube-system"
    for response in (
        await client.post(PODS, json=elsewhere),
        await client.post(PODS, json={**pod("q"), "kind": "Node"}),
        await client.post(PODS, json={**pod("q"), "apiVersion": "v2"}),
        await client.put(f"{PODS}/p", json=pod("q")),
        await client.post(PODS, json={**pod("q"), "metadata": {"name": "q", "resourceVersion": "1"}}),
    ):
        assert (response.status_code, response.json()["reason"]) == (400, "BadRequest"), response.text
