"""Admission: the slot arrives by itself, and nothing else changes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.admission import Additions, mutate
from gpushare.names import Names
from gpushare.objects import Container
from sandbox.apiserver.patches import json_patch
from tests.build import NAMES, container
from tests.extender.cluster import Cluster, Scheduler


def review(spec: dict[str, Any]) -> bytes:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    request = {"uid": "review-1", "operation": "CREATE", "object": pod}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


def limits(**resources: str) -> dict[str, Any]:
    return {
        "name": "c",
        "resources": {"limits": {f"aliyun.com/{key}": value for key, value in resources.items()}},
    }


async def test_every_container_that_asks_gets_a_slot(cluster: Cluster, scheduler: Scheduler) -> None:
    cluster.api.admission.mutating = f"{scheduler.url}/admission/mutate"
    pod = await cluster.pod(
        "a",
        init=[container("init", memory=100), container("side", memory=200, sidecar=True)],
        containers=[container("one", memory=300), container("two"), container("three", memory=400, slots=2)],
    )
    slots = {
        each["name"]: each["resources"].get("limits", {}).get(NAMES.slot)
        for each in pod["spec"]["initContainers"] + pod["spec"]["containers"]
    }
    assert slots == {"init": "1", "side": "1", "one": "1", "two": None, "three": "2"}
    assert pod["spec"]["containers"][0]["resources"]["requests"][NAMES.slot] == "1"


async def test_the_answer_is_an_admission_review(scheduler: Scheduler) -> None:
    body = review(
        {"containers": [limits(**{"gpu-mem": "1k"}), limits(**{"gpu-mem": "0"}), {"name": "plain"}]}
    )
    answer = (await scheduler.post("/admission/mutate", body)).json()
    patch = answer["response"].pop("patch")
    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "review-1", "allowed": True, "patchType": "JSONPatch"},
    }
    assert json.loads(base64.b64decode(patch)) == [
        {"op": "add", "path": "/spec/containers/0/resources/limits/aliyun.com~1gpu-slot", "value": "1"}
    ]


async def test_a_pod_that_lacks_nothing_is_left_alone(scheduler: Scheduler) -> None:
    answer = (await scheduler.post("/admission/mutate", review({"containers": [{"name": "plain"}]}))).json()
    assert answer["response"] == {"uid": "review-1", "allowed": True}


async def test_a_bad_review_is_answered_and_survived(scheduler: Scheduler) -> None:
    for body in (b"", b"{", b"[]", b'{"request":null}', b'{"request":{"uid":"u","object":3}}'):
        answer = await scheduler.post("/admission/mutate", body)
        assert answer.status_code == 400
        assert "AdmissionReview cannot be read" in answer.json()["error"]
    assert (await scheduler.post("/admission/mutate", review({"containers": []}))).status_code == 200


CONTAINERS = st.lists(
    st.builds(
        container,
        memory=st.sampled_from([None, 0, 1, 1000, "1k", "bad"]),
        slots=st.sampled_from([None, 1, 2]),
    ),
    max_size=4,
)


@given(init=CONTAINERS, apps=CONTAINERS)
def test_patched_once_nothing_is_missing(init: list[Container], apps: list[Container]) -> None:
    spec = {"initContainers": [wire(each) for each in init], "containers": [wire(each) for each in apps]}
    answer = json.loads(mutate(review(spec), names=NAMES, additions=Additions()))["response"]
    patch = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    patched = json_patch({"spec": spec}, patch)["spec"]
    again = json.loads(mutate(review(patched), names=NAMES, additions=Additions()))["response"]
    assert "patch" not in again
    for before, after in zip(spec["containers"], patched["containers"], strict=True):
        added = dict(after["resources"]["limits"] or {})
        if (before["resources"]["limits"] or {}).keys() != added.keys():
            assert added.pop(NAMES.slot) == "1"
        assert added == (before["resources"]["limits"] or {})


def wire(each: Container) -> dict[str, Any]:
    return {"name": each.name, "resources": {"limits": dict(each.limits) or None}}


def test_the_path_follows_the_resource() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"example.com/vram": "5"}}}]}
    answer = json.loads(mutate(review(spec), names=Names.of("example.com/vram"), additions=Additions()))[
        "response"
    ]
    (added,) = json.loads(base64.b64decode(answer["patch"]))
    assert added["path"] == "/spec/containers/0/resources/limits/example.com~1gpu-slot"


@pytest.mark.parametrize("scheduler", ["default-scheduler", "", None, "mine"])
@pytest.mark.parametrize("memory", ["1000", "0"])
def test_pods_that_need_a_card_and_name_no_scheduler_get_its_name(scheduler: str | None, memory: str) -> None:
    spec = {"schedulerName": scheduler, "containers": [limits(**{"gpu-mem": memory, "gpu-slot": "1"})]}
    answer = json.loads(mutate(review(spec), names=NAMES, additions=Additions(scheduler="gpus")))["response"]
    patch = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    wanted = [{"op": "add", "path": "/spec/schedulerName", "value": "gpus"}]
    assert patch == (wanted if memory == "1000" and scheduler != "mine" else [])


def test_where_kubelet_counts_units_no_slot_is_added() -> None:
    spec = {"containers": [limits(**{"gpu-mem": "1000"})]}
    answer = json.loads(mutate(review(spec), names=NAMES, additions=Additions(slots=False)))["response"]
    assert "patch" not in answer
