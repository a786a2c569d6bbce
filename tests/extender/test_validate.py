"""Admission's verdict on a new pod: one table of cases, and the shape in which the API server hears it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.admission import Additions
from extender.podrules import PodRules, ReviewedPod, Verdict
from tests.admission_cases import CASES, MEM, Case, container
from tests.build import NAMES
from tests.extender.cluster import PODS, Cluster, Scheduler
from tests.waiting import until


def judge(case: Case) -> Verdict:
    rules = PodRules(names=NAMES, unit=case.unit, slots=case.mode == "slots", largest_card=case.largest)
    return rules.judge(msgspec.convert(case.pod, ReviewedPod))


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_verdict(case: Case) -> None:
    assert judge(case) == Verdict(refusals=case.refusals, warnings=case.warnings + case.size_warnings)


def test_V13_whatever_the_mistake_the_number_suggested_is_accepted() -> None:
    for case in CASES:
        for refusal in case.refusals:
            _, hinted, meant = refusal.partition("did you mean ")
            if hinted:
                slots = {"gpu-slot": case.limits["gpu-slot"]} if "gpu-slot" in case.limits else {}
                again = Case(
                    id=case.id,
                    limits={"gpu-mem": meant.rstrip("?")} | slots,
                    unit=case.unit,
                    largest=case.largest,
                )
                assert judge(again).refusals == ()


KEYS = st.sampled_from(["gpu-mem", "gpu-slot", "gpu-memory", "nvidia.com/gpu", "cpu"])
VALUES = st.one_of(
    st.sampled_from(["0", "1", "10Gi", "8G", "1e3", "", "x", "-1"]), st.integers(0, 10**13).map(str)
)
TEXTS = st.text(max_size=300)


@given(
    limits=st.dictionaries(KEYS, VALUES, max_size=3),
    env=st.lists(st.sampled_from(["A", "NVIDIA_VISIBLE_DEVICES"]), max_size=2),
    annotations=st.dictionaries(
        st.one_of(TEXTS, TEXTS.map(lambda text: f"aliyun.com/{text}")), TEXTS, max_size=3
    ),
    labels=st.dictionaries(st.one_of(TEXTS, TEXTS.map(lambda text: f"aliyun.com/{text}")), TEXTS, max_size=3),
    largest=st.sampled_from([0, 24576]),
    unit=st.sampled_from(["MiB", "GiB"]),
)
def test_any_pod_gets_a_verdict_and_one_that_does_not_ask_is_never_refused(
    limits: dict[str, str],
    env: list[str],
    annotations: dict[str, str],
    labels: dict[str, str],
    largest: int,
    unit: str,
) -> None:
    case = Case(
        id="",
        limits=limits,
        env=tuple(env),
        annotations=annotations,
        labels=labels,
        largest=largest,
        unit=unit,
        node_name="n1",
    )
    verdict = judge(case)
    if not limits.keys() & {"gpu-mem", "gpu-slot"}:
        assert verdict.refusals == ()
    assert all(len(sentence) < 400 for sentence in verdict.refusals)


def review(pod: object, **request: Any) -> dict[str, Any]:
    asked = {"uid": "review-1", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked | {"object": pod} | request,
    }


async def test_the_answer_is_an_admission_review(scheduler: Scheduler) -> None:
    pod = Case(id="", limits={"gpu-mem": "10Gi", "gpu-slots": "1"}).pod
    answer = (await scheduler.post("/admission/validate", review(pod))).json()
    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "review-1",
            "allowed": False,
            "status": {
                "message": f"{MEM}: '10Gi' counts MiB: did you mean 10240?",
                "reason": "Invalid",
                "code": 422,
            },
            "warnings": [
                "gpushare knows no resource 'aliyun.com/gpu-slots': "
                "did you mean the resource aliyun.com/gpu-slot?"
            ],
        },
    }


async def test_slots_are_refused_where_none_are_added(scheduler: Scheduler) -> None:
    pod = Case(id="", limits={"gpu-mem": "8000", "gpu-slot": "1"}).pod
    before = (await scheduler.post("/admission/validate", review(pod))).json()["response"]
    scheduler.extender.additions = Additions(slots=False)
    after = (await scheduler.post("/admission/validate", review(pod))).json()["response"]
    assert (before["allowed"], after["allowed"]) == (True, False)
    assert "no node has in units mode" in after["status"]["message"]


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT", "object": {"kind": "PodExecOptions", "spec": 3}},
        {"kind": {"kind": "Deployment"}},
        {"subResource": "binding"},
        {"object": None},
    ],
    ids=["update", "delete", "connect", "other kind", "subresource", "no object"],
)
async def test_what_creates_no_pod_is_allowed_unseen(scheduler: Scheduler, request_: dict[str, Any]) -> None:
    pod = Case(id="", limits={"gpu-mem": "10Gi"}).pod
    answer = await scheduler.post("/admission/validate", review(pod, **request_))
    assert answer.json()["response"] == {"uid": "review-1", "allowed": True}


async def test_a_bad_review_is_answered_and_survived(scheduler: Scheduler) -> None:
    pod = {"metadata": {"annotations": 3}}
    for body in (b"", b"{", b"[]", b'{"request":null}', json.dumps(review(pod)).encode()):
        answer = await scheduler.post("/admission/validate", body)
        assert answer.status_code == 400
        assert "AdmissionReview cannot be read" in answer.json()["error"]
    assert (await scheduler.post("/admission/validate", review(Case(id="").pod))).status_code == 200


async def test_warnings_are_as_short_and_few_as_the_api_server_takes_them(scheduler: Scheduler) -> None:
    labels = {f"aliyun.com/{'x' * 300}{number}": "" for number in range(40)}
    pod = Case(id="", limits={"gpu-mem": "5000"}, labels=labels).pod
    response = (await scheduler.post("/admission/validate", review(pod))).json()["response"]
    assert 0 < sum(map(len, response["warnings"])) <= 4096
    assert all(len(warning) <= 256 for warning in response["warnings"])


async def test_the_user_hears_it_from_the_api_server(cluster: Cluster, scheduler: Scheduler) -> None:
    cluster.api.admission.mutating = f"{scheduler.url}/admission/mutate"
    cluster.api.admission.validating = f"{scheduler.url}/admission/validate"
    await cluster.node("n1", cards=[8192, 16384])
    await until(lambda: scheduler.extender.ledger.known_nodes(), what="node seen")
    async with httpx.AsyncClient() as user:

        async def create(memory: str) -> httpx.Response:
            spec = {"containers": [container({"gpu-mem": memory}) | {"image": "app:1"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}, "spec": spec}
            return await user.post(f"{cluster.api.url}{PODS}", json=pod)

        refused = await create("10Gi")
        assert refused.status_code == 422
        assert refused.json()["message"].endswith(f"{MEM}: '10Gi' counts MiB: did you mean 10240?")
        warned = await create("16385")
        assert warned.status_code == 201
        assert "of one card and the largest card of the cluster has 16384" in warned.headers["Warning"]
        fine = await create("16384")
        assert (fine.status_code, fine.headers.get("Warning")) == (201, None)
