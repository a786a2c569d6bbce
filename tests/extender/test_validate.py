"""Admission's verdict on a new pod: one table of cases, and the shape in which the API server hears it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.podrules import PodRules, ReviewedPod, Verdict
from tests.build import NAMES
from tests.extender.cluster import PODS, Cluster, Scheduler
from tests.waiting import until


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod of one container `main` (or `containers`), and what is said to it."""

    id: str
    limits: dict[str, str] = field(default_factory=dict)
    env: tuple[str, ...] = ()
    containers: tuple[dict[str, Any], ...] = ()
    init: tuple[dict[str, Any], ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    node_name: str | None = None
    unit: str = "MiB"
    largest: int = 24576
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def pod(self) -> dict[str, Any]:
        containers = self.containers or (container(self.limits, env=self.env),)
        spec = {"containers": list(containers), "initContainers": list(self.init) or None}
        return {
            "metadata": {"name": "a", "annotations": self.annotations, "labels": self.labels},
            "spec": spec | ({"nodeName": self.node_name} if self.node_name else {}),
        }

    def judge(self) -> Verdict:
        rules = PodRules(names=NAMES, unit=self.unit, largest_card=self.largest)
        return rules.judge(msgspec.convert(self.pod, ReviewedPod))


def container(limits: dict[str, str], *, name: str = "main", env: tuple[str, ...] = ()) -> dict[str, Any]:
    named = {f"aliyun.com/{key}" if "/" not in key else key: value for key, value in limits.items()}
    variables = [{"name": variable, "value": "all"} for variable in env]
    return {"name": name, "resources": {"limits": named}, "env": variables or None}


MEM = "container 'main': aliyun.com/gpu-mem"
OWN = (
    "container 'main' sets NVIDIA_VISIBLE_DEVICES itself, which would win over the card that it is given: "
    "remove it"
)
CASES = (
    # What is fine.
    Case(id="fine", limits={"gpu-mem": "8138", "gpu-slot": "1"}),
    Case(id="fine-without-slot", limits={"gpu-mem": "8138"}),
    Case(id="fine-in-two", limits={"gpu-mem": "10k", "gpu-slot": "2"}),
    Case(id="V14-10Ki-is-10240-units", limits={"gpu-mem": "10Ki"}),
    Case(id="V12-zero", limits={"gpu-mem": "0"}, env=("NVIDIA_VISIBLE_DEVICES",), node_name="n1"),
    Case(id="policy", limits={"gpu-mem": "8138"}, annotations={"aliyun.com/gpu-policy": "spread"}),
    Case(id="as-large-as-the-largest", limits={"gpu-mem": "24576"}),
    Case(id="no-card-known-yet", limits={"gpu-mem": "500000"}, largest=0),
    # Bytes for units.
    Case(
        id="V13-10Gi",
        limits={"gpu-mem": "10Gi"},
        refusals=(f"{MEM}: '10Gi' counts MiB: did you mean 10240?",),
    ),
    Case(
        id="V13-10Gi-no-card-known-yet",
        limits={"gpu-mem": "10Gi"},
        largest=0,
        refusals=(f"{MEM}: '10Gi' counts MiB: did you mean 10240?",),
    ),
    Case(
        id="V13-10Gi-where-cards-are-smaller",
        limits={"gpu-mem": "10Gi"},
        largest=8192,
        refusals=(f"{MEM}: '10Gi' counts MiB: did you mean 10240?",),
    ),
    Case(
        id="V13-plain-bytes",
        limits={"gpu-mem": "10737418240"},
        refusals=(f"{MEM}: '10737418240' counts MiB: did you mean 10240?",),
    ),
    Case(
        id="V13-8192Mi",
        limits={"gpu-mem": "8192Mi"},
        refusals=(f"{MEM}: '8192Mi' counts MiB: did you mean 8192?",),
    ),
    Case(
        id="V13-10Mi", limits={"gpu-mem": "10Mi"}, refusals=(f"{MEM}: '10Mi' counts MiB: did you mean 10?",)
    ),
    Case(
        id="V13-8G-is-no-whole-number",
        limits={"gpu-mem": "8G"},
        refusals=(f"{MEM}: '8G' counts MiB: did you mean 7630?",),
    ),
    Case(
        id="V13-20Gi-over-two-cards",
        limits={"gpu-mem": "20Gi", "gpu-slot": "2"},
        refusals=(f"{MEM}: '20Gi' counts MiB: did you mean 20480?",),
    ),
    Case(
        id="V13-no-card-has-that-in-bytes-either",
        limits={"gpu-mem": "2Ti"},
        refusals=(f"{MEM}: '2Ti' counts MiB, more than any card has",),
    ),
    Case(
        id="V13-8E", limits={"gpu-mem": "8E"}, refusals=(f"{MEM}: '8E' counts MiB, more than any card has",)
    ),
    Case(
        id="V13-10Gi-where-GiB-count",
        limits={"gpu-mem": "10Gi"},
        unit="GiB",
        largest=24,
        refusals=(f"{MEM}: '10Gi' counts GiB: did you mean 10?",),
    ),
    Case(
        id="V13-8G-where-GiB-count",
        limits={"gpu-mem": "8G"},
        unit="GiB",
        largest=24,
        refusals=(f"{MEM}: '8G' counts GiB: did you mean 8?",),
    ),
    Case(
        id="MiB-where-GiB-count",
        limits={"gpu-mem": "8192"},
        unit="GiB",
        largest=24,
        warnings=(
            "the pod asks for 8192 GiB of one card and the largest card of the cluster has 24: "
            "did you mean 8?",
        ),
    ),
    Case(
        id="GiB-where-MiB-count",
        limits={"gpu-mem": "3"},
        warnings=(
            "container 'main' asks for 3 MiB of a card, too little for any GPU program: did you mean 3072?",
        ),
    ),
    # What no card will ever have, as far as one can tell now.
    Case(
        id="V17-larger-than-the-largest",
        limits={"gpu-mem": "24577"},
        warnings=("the pod asks for 24577 MiB of one card and the largest card of the cluster has 24576",),
    ),
    Case(
        id="V17-two-containers-on-one-card",
        containers=(container({"gpu-mem": "20000"}), container({"gpu-mem": "5000"}, name="aux")),
        warnings=("the pod asks for 25000 MiB of one card and the largest card of the cluster has 24576",),
    ),
    Case(
        id="L15-init-and-app-do-not-add-up",
        init=(container({"gpu-mem": "20000"}, name="init"),),
        containers=(container({"gpu-mem": "20000"}),),
    ),
    # What is no demand at all.
    Case(
        id="V16-does-not-divide",
        limits={"gpu-mem": "10001", "gpu-slot": "2"},
        refusals=(f"{MEM}: 10001 does not divide evenly over aliyun.com/gpu-slot: 2",),
    ),
    Case(
        id="slots-without-memory",
        limits={"gpu-slot": "1"},
        refusals=("container 'main': asks for aliyun.com/gpu-slot without aliyun.com/gpu-mem",),
    ),
    Case(
        id="slots-without-memory-beside-another",
        containers=(container({"gpu-mem": "5000"}), container({"gpu-slot": "1"}, name="aux")),
        refusals=("container 'aux': asks for aliyun.com/gpu-slot without aliyun.com/gpu-mem",),
    ),
    Case(
        id="no-slot",
        limits={"gpu-mem": "5000", "gpu-slot": "0"},
        refusals=("container 'main': asks for aliyun.com/gpu-mem with aliyun.com/gpu-slot: 0",),
    ),
    Case(id="V14-negative", limits={"gpu-mem": "-1"}, refusals=(f"{MEM}: quantity '-1' is negative",)),
    Case(
        id="V14-half", limits={"gpu-mem": "500m"}, refusals=(f"{MEM}: quantity '500m' is not a whole number",)
    ),
    Case(
        id="every-fault-is-told",
        init=(container({"gpu-slot": "1"}, name="init"),),
        limits={"gpu-mem": "10Gi"},
        env=("NVIDIA_VISIBLE_DEVICES",),
        annotations={"aliyun.com/gpu-policy": "tight"},
        refusals=(
            "container 'init': asks for aliyun.com/gpu-slot without aliyun.com/gpu-mem",
            f"{MEM}: '10Gi' counts MiB: did you mean 10240?",
            OWN,
            "annotation aliyun.com/gpu-policy: 'tight' is not binpack or spread",
        ),
    ),
    # What would undo the card.
    Case(id="I6-own-env", limits={"gpu-mem": "5000"}, env=("A", "NVIDIA_VISIBLE_DEVICES"), refusals=(OWN,)),
    Case(
        id="I6-own-env-of-an-init-container",
        init=(container({"gpu-mem": "5000"}, env=("NVIDIA_VISIBLE_DEVICES",)),),
        containers=(container({}, name="app"),),
        refusals=(OWN,),
    ),
    Case(
        id="I6-own-env-of-a-container-without-memory",
        containers=(
            container({"gpu-mem": "5000"}),
            container({}, name="web", env=("NVIDIA_VISIBLE_DEVICES",)),
        ),
    ),
    Case(
        id="L10-names-its-node",
        limits={"gpu-mem": "5000"},
        node_name="n1",
        refusals=(
            "the pod names its node ('n1') and so passes by the scheduler, which alone gives out cards: "
            "use a node selector",
        ),
    ),
    Case(
        id="unknown-policy",
        limits={"gpu-mem": "5000"},
        annotations={"aliyun.com/gpu-policy": "Binpack"},
        refusals=("annotation aliyun.com/gpu-policy: 'Binpack' is not binpack or spread",),
    ),
    # Typos.
    Case(
        id="I7-resource",
        limits={"gpu-memory": "5000"},
        warnings=(
            "gpushare knows no resource 'aliyun.com/gpu-memory': "
            "did you mean the resource aliyun.com/gpu-mem?",
        ),
    ),
    Case(
        id="I7-resource-gpumem",
        limits={"gpumem": "5000"},
        warnings=(
            "gpushare knows no resource 'aliyun.com/gpumem': did you mean the resource aliyun.com/gpu-mem?",
        ),
    ),
    Case(
        id="I7-slots",
        limits={"gpu-mem": "5000", "gpu-slots": "1"},
        warnings=(
            "gpushare knows no resource 'aliyun.com/gpu-slots': "
            "did you mean the resource aliyun.com/gpu-slot?",
        ),
    ),
    Case(
        id="I7-annotation",
        limits={"gpu-mem": "5000"},
        annotations={"aliyun.com/gpu-polcy": "spread"},
        warnings=(
            "gpushare knows no annotation 'aliyun.com/gpu-polcy': "
            "did you mean the annotation aliyun.com/gpu-policy?",
        ),
    ),
    Case(
        id="I7-annotation-given-as-a-label",
        limits={"gpu-mem": "5000"},
        labels={"aliyun.com/gpu-policy": "spread"},
        warnings=(
            "gpushare knows no label 'aliyun.com/gpu-policy': "
            "did you mean the annotation aliyun.com/gpu-policy?",
        ),
    ),
    Case(
        id="I7-resource-given-as-an-annotation",
        annotations={"aliyun.com/gpu-mem": "5000"},
        warnings=(
            "gpushare knows no annotation 'aliyun.com/gpu-mem': "
            "did you mean the resource aliyun.com/gpu-mem?",
        ),
    ),
    Case(
        id="I7-unlike-anything",
        limits={"gpu-mem": "5000"},
        labels={"aliyun.com/owner": "ml"},
        warnings=("gpushare knows no label 'aliyun.com/owner'",),
    ),
    # Pods that are none of ours are left alone.
    Case(id="others-unlike-anything", labels={"aliyun.com/owner": "ml"}),
    Case(
        id="others",
        limits={"nvidia.com/gpu": "1"},
        env=("NVIDIA_VISIBLE_DEVICES",),
        annotations={"aliyun.com/gpu-policy": "tight"},
        node_name="n1",
    ),
    Case(id="others-domain", limits={"k8s.aliyun.com/gpu-memory": "1"}),
)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_verdict(case: Case) -> None:
    assert case.judge() == Verdict(refusals=case.refusals, warnings=case.warnings)


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
                assert again.judge().refusals == ()


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
    verdict = case.judge()
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
