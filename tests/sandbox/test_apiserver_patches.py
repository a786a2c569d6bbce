"""The three kinds of PATCH: pure functions against their specifications, then over HTTP."""

from copy import deepcopy
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from tests.sandbox.calls import JSON_PATCH, MERGE, NODES, PODS, STRATEGIC, create, patch, pod

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [
        # RFC 6902, appendix A, in its order
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
            {"foo": "bar", "child": {"grandchild": {}}},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
            {"foo": "bar", "baz": "qux"},
        ),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        # and what the text says beyond the appendix
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"": 1}, [{"op": "remove", "path": "/"}], {}),
    ],
)
def test_json_patch_does_what_rfc_6902_says(document: Any, operations: Any, expected: Any) -> None:
    before = deepcopy(document)
    assert json_patch(document, operations) == expected
    assert document == before


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ({"baz": "qux"}, {"op": "test", "path": "/baz", "value": "bar"}),
        ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": "10"}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
        ({"a": [1]}, {"op": "add", "path": "/a/2", "value": 1}),
        ({"a": [1]}, {"op": "replace", "path": "/a/-", "value": 1}),
        ({"a": [1]}, {"op": "remove", "path": "/a/01"}),
        ({"a": 1}, {"op": "remove", "path": "/b"}),
        ({"a": 1}, {"op": "remove", "path": ""}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b"}),
        ({"a": 1}, {"op": "add", "path": "a", "value": 1}),
        ({"a": 1}, {"op": "frob", "path": "/a"}),
        ({"a": 1}, {"op": "add", "path": "/b"}),
        ({"a": 1}, "add"),
    ],
)
def test_json_patch_refuses_what_does_not_apply(document: Any, operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch(document, [operation])
    assert refused.value.code in (400, 422)


@given(JSON, JSON)
def test_replacing_the_whole_document_or_merging_is_total(document: Any, value: Any) -> None:
    assert json_patch(document, [{"op": "replace", "path": "", "value": value}]) == value
    once = merge_patch(document, value)
    assert merge_patch(once, value) == once


@pytest.mark.parametrize(
    ("target", "change", "expected"),
    [
        # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_does_what_rfc_7396_says(target: Any, change: Any, expected: Any) -> None:
    assert merge_patch(target, change) == expected


@pytest.mark.parametrize(
    ("target", "change", "expected"),
    [
        (
            {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
            {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]},
            {
                "containers": [
                    {"name": "a", "image": "1"},
                    {"name": "b", "image": "2"},
                    {"name": "c", "image": "3"},
                ]
            },
        ),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]},
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "$patch": "delete"}]},
            {"env": [{"name": "B", "value": "2"}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"$patch": "replace"}, {"name": "Z", "value": "9"}]},
            {"env": [{"name": "Z", "value": "9"}]},
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["c"]}, {"finalizers": ["c", "a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None}}, {"labels": {"b": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {"labels": {}}),
        (
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
        ),
        (
            {"volumes": [{"name": "b"}, {"name": "a"}]},
            {
                "$setElementOrder/volumes": [{"name": "a"}, {"name": "b"}],
                "volumes": [{"name": "a", "emptyDir": {}}],
            },
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b"}]},
        ),
    ],
)
def test_strategic_merge_patch_merges_lists_by_the_keys_of_their_types(
    target: Any, change: Any, expected: Any
) -> None:
    before = deepcopy(target)
    assert strategic_merge_patch(target, change) == expected
    assert target == before


@pytest.mark.parametrize(
    ("media_type", "change"),
    [
        (MERGE, {"metadata": {"annotations": {"a": "1"}}}),
        (STRATEGIC, {"metadata": {"annotations": {"a": "1"}}}),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}]),
    ],
)
async def test_each_patch_reaches_the_object(client: httpx.AsyncClient, media_type: str, change: Any) -> None:
    await create(client, PODS, pod())
    response = await patch(client, f"{PODS}/p", change, media_type=media_type)
    assert (response.status_code, response.json()["metadata"]["annotations"]) == (200, {"a": "1"})
    assert (await client.get(f"{PODS}/p")).json() == response.json()


async def test_a_kubelets_status_patch_keeps_other_conditions(client: httpx.AsyncClient) -> None:
    await create(
        client,
        NODES,
        {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "A", "status": "True"}]}},
    )
    change = {"status": {"conditions": [{"type": "B", "status": "False"}]}}
    response = await patch(client, f"{NODES}/n/status", change, media_type=STRATEGIC)
    assert [condition["type"] for condition in response.json()["status"]["conditions"]] == [
        "B",
        "A",
    ]  # Kubernetes puts what is new first


async def test_a_patch_of_another_content_type_is_415(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    for media_type in ("application/json", "application/apply-patch+yaml", "text/plain"):
        response = await patch(client, f"{PODS}/p", {}, media_type=media_type)
        assert (response.status_code, response.json()["reason"]) == (415, "UnsupportedMediaType")
        assert MERGE in response.json()["message"]


@pytest.mark.parametrize(
    ("media_type", "change", "code"),
    [
        (MERGE, [], 400),
        (STRATEGIC, "x", 400),
        (JSON_PATCH, {}, 400),
        (JSON_PATCH, [{"op": "remove", "path": "/nope"}], 422),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": 1}], 400),
        (MERGE, {"metadata": {"labels": {"a": 1}}}, 400),
        (MERGE, {"metadata": None}, 200),
        (MERGE, {"metadata": {"name": "other"}}, 400),
        (MERGE, {"metadata": {"uid": "other"}}, 422),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409),
        (STRATEGIC, {"spec": {"containers": [{"image": "x"}]}}, 400),
        (STRATEGIC, {"$patch": "frob"}, 400),
        (STRATEGIC, {"spec": {"containers": {"a": 1}}}, 400),
        (STRATEGIC, {"spec": {"$setElementOrder/containers": 5}}, 400),
        (STRATEGIC, {"$retainKeys": 5}, 400),
        (STRATEGIC, {"metadata": {"$deleteFromPrimitiveList/finalizers": 5}}, 400),
    ],
)
async def test_a_patch_that_makes_no_sense_is_a_clear_refusal(
    client: httpx.AsyncClient, media_type: str, change: Any, code: int
) -> None:
    await create(client, PODS, pod())
    response = await patch(client, f"{PODS}/p", change, media_type=media_type)
    assert (response.status_code, response.json()["kind"]) == (code, "Status" if code != 200 else "Pod"), (
        response.text
    )
