"""What new pods are told: one table for every place that holds the rules.

The extender's rules, the policies in CEL and a real API server are held against it. `Case.pod` is the pod as
the API server hands it on, quantities in their canonical form; `Case.manifest` is what a user would apply.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Pod = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod of one container `main` (or `containers`), and what is said to it."""

    id: str
    limits: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    """`limits` as the user spells them, where the API server spells them otherwise."""
    env: tuple[str, ...] = ()
    containers: tuple[Pod, ...] = ()
    init: tuple[Pod, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    node_name: str | None = None
    unit: str = "MiB"
    mode: str = "slots"
    """Of the device plugins."""
    largest: int = 24576
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    size_warnings: tuple[str, ...] = ()
    """What only the extender can say: it knows the cards."""
    api_server: str = ""
    """Part of what the API server itself says against the pod, before any rule is asked."""

    @property
    def pod(self) -> Pod:
        return self._pod(self.limits)

    @property
    def manifest(self) -> Pod:
        """The whole pod as a user would write it, named after the case."""
        pod = copy.deepcopy(self._pod(self.typed or self.limits))
        pod["metadata"]["name"] = self.id.lower()
        for each in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
            each["image"] = "registry.example/app:1"
        return {"apiVersion": "v1", "kind": "Pod"} | pod

    def _pod(self, limits: dict[str, str]) -> Pod:
        containers = self.containers or (container(limits, env=self.env),)
        spec: Pod = {"containers": list(containers)}
        if self.init:
            spec["initContainers"] = list(self.init)
        if self.node_name:
            spec["nodeName"] = self.node_name
        return {
            "metadata": {"name": "a", "annotations": self.annotations, "labels": self.labels},
            "spec": spec,
        }


def container(
    limits: dict[str, str], *, name: str = "main", env: tuple[str, ...] = (), sidecar: bool = False
) -> Pod:
    """A container; resources without a domain are of ours."""
    named = {f"aliyun.com/{key}" if "/" not in key else key: value for key, value in limits.items()}
    made: Pod = {"name": name, "resources": {"limits": named}}
    if env:
        made["env"] = [{"name": variable, "value": "all"} for variable in env]
    return made | ({"restartPolicy": "Always"} if sidecar else {})


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
    Case(id="V14-1k", limits={"gpu-mem": "1k"}, typed={"gpu-mem": "1000"}),
    Case(id="V14-1e3", limits={"gpu-mem": "1e3"}),
    Case(id="V14-2000m", limits={"gpu-mem": "2k"}, typed={"gpu-mem": "2000000m"}),
    Case(id="V16-over-two-cards", limits={"gpu-mem": "10k", "gpu-slot": "2"}),
    Case(
        id="A7-containers-of-one-pod",
        containers=(
            container({}, name="proxy"),
            container({"gpu-mem": "1000"}, name="c1"),
            container({}, name="log"),
            container({"gpu-mem": "2000"}, name="c2"),
        ),
    ),
    Case(
        id="L15-init-containers-and-sidecars",
        init=(
            container({"gpu-mem": "5000"}, name="init"),
            container({"gpu-mem": "1000", "gpu-slot": "1"}, name="side", sidecar=True),
        ),
        limits={"gpu-mem": "3000"},
    ),
    Case(id="V12-zero", limits={"gpu-mem": "0"}, env=("NVIDIA_VISIBLE_DEVICES",), node_name="n1"),
    Case(id="policy", limits={"gpu-mem": "8138"}, annotations={"aliyun.com/gpu-policy": "spread"}),
    Case(id="units-mode-without-slots", limits={"gpu-mem": "8"}, unit="GiB", mode="units"),
    Case(
        id="units-mode-no-node-has-slots",
        containers=(
            container({"gpu-mem": "8", "gpu-slot": "1"}),
            container({"gpu-mem": "8"}, name="without"),
            container({"gpu-mem": "8", "gpu-slot": "2"}, name="two"),
        ),
        unit="GiB",
        mode="units",
        refusals=(
            "container 'main' asks for aliyun.com/gpu-slot, which no node has in units mode: leave it out",
            "container 'two' asks for aliyun.com/gpu-slot, which no node has in units mode: leave it out",
        ),
    ),
    Case(
        id="units-mode-slots-alone-make-no-sense-there-either",
        limits={"gpu-slot": "1"},
        unit="GiB",
        mode="units",
        refusals=("container 'main': asks for aliyun.com/gpu-slot without aliyun.com/gpu-mem",),
    ),
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
        limits={"gpu-mem": "8Gi"},
        typed={"gpu-mem": "8192Mi"},
        refusals=(f"{MEM}: '8Gi' counts MiB: did you mean 8192?",),
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
        id="V13-8E",
        limits={"gpu-mem": "8E"},
        refusals=(f"{MEM}: '8E' counts MiB, more than any card has",),
    ),
    Case(
        id="V13-the-most-that-kubernetes-counts",
        limits={"gpu-mem": "9223372036854775807"},
        refusals=(f"{MEM}: '9223372036854775807' counts MiB, more than any card has",),
    ),
    Case(
        id="V13-more-than-kubernetes-counts",
        limits={"gpu-mem": "9223372036854775807"},
        typed={"gpu-mem": "16Ei"},
        refusals=(f"{MEM}: '9223372036854775807' counts MiB, more than any card has",),
    ),
    Case(
        id="V13-the-most-where-GiB-count",
        limits={"gpu-mem": "9223372036854775807"},
        unit="GiB",
        refusals=(f"{MEM}: '9223372036854775807' counts GiB, more than any card has",),
    ),
    Case(
        id="V13-100Ti-over-two-cards",
        limits={"gpu-mem": "100Ti", "gpu-slot": "2"},
        refusals=(f"{MEM}: '100Ti' counts MiB, more than any card has",),
    ),
    Case(
        id="V13-the-most-over-two-cards",
        limits={"gpu-mem": "9223372036854775807", "gpu-slot": "2"},
        refusals=(f"{MEM}: 9223372036854775807 does not divide evenly over aliyun.com/gpu-slot: 2",),
    ),
    Case(
        id="V16-the-most-slots",
        limits={"gpu-mem": "100", "gpu-slot": "9223372036854775807"},
        refusals=(
            "container 'main': asks for aliyun.com/gpu-slot: 9223372036854775807, "
            "more cards than any node has",
        ),
    ),
    Case(
        id="V13-in-an-init-container",
        init=(container({"gpu-mem": "1Gi"}, name="init"),),
        limits={"gpu-mem": "1024"},
        refusals=("container 'init': aliyun.com/gpu-mem: '1Gi' counts MiB: did you mean 1024?",),
    ),
    Case(
        id="V13-in-a-sidecar",
        init=(container({"gpu-mem": "1Gi"}, name="side", sidecar=True),),
        limits={"gpu-mem": "1024"},
        refusals=("container 'side': aliyun.com/gpu-mem: '1Gi' counts MiB: did you mean 1024?",),
    ),
    Case(
        id="V13-no-round-number-and-yet-no-card",
        limits={"gpu-mem": "17825793"},
        refusals=(f"{MEM}: '17825793' counts MiB: did you mean 18?",),
    ),
    Case(id="V13-a-TiB-is-no-mistake", limits={"gpu-mem": "1Mi"}, largest=0),
    Case(id="V13-sixteen-cards-that-are-round", limits={"gpu-mem": "1Mi", "gpu-slot": "16"}, largest=65536),
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
        size_warnings=(
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
        size_warnings=(
            "the pod asks for 24577 MiB of one card and the largest card of the cluster has 24576",
        ),
    ),
    Case(
        id="V17-two-containers-on-one-card",
        containers=(container({"gpu-mem": "20000"}), container({"gpu-mem": "5000"}, name="aux")),
        size_warnings=(
            "the pod asks for 25000 MiB of one card and the largest card of the cluster has 24576",
        ),
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
    Case(
        id="V14-negative",
        limits={"gpu-mem": "-1"},
        refusals=(f"{MEM}: quantity '-1' is negative",),
        api_server="must be greater than or equal to 0",
    ),
    Case(
        id="V14-half",
        limits={"gpu-mem": "500m"},
        typed={"gpu-mem": "0.5"},
        refusals=(f"{MEM}: quantity '500m' is not a whole number",),
        api_server="must be an integer",
    ),
    Case(
        id="V14-half-a-slot",
        limits={"gpu-mem": "500", "gpu-slot": "1500m"},
        refusals=("container 'main': aliyun.com/gpu-slot: quantity '1500m' is not a whole number",),
        api_server="must be an integer",
    ),
    Case(
        id="V14-not-a-number",
        limits={"gpu-mem": " 1"},
        typed={"gpu-mem": "1 MiB"},  # spaces around a quantity are taken off
        refusals=(f"{MEM}: quantity ' 1' is not a Kubernetes quantity",),
        api_server="quantities must match the regular expression",
    ),
    Case(
        id="V16-more-slots-than-units",
        limits={"gpu-mem": "2", "gpu-slot": "4"},
        refusals=(f"{MEM}: 2 does not divide evenly over aliyun.com/gpu-slot: 4",),
    ),
    Case(
        id="V16-more-cards-than-any-node",
        limits={"gpu-mem": "25700", "gpu-slot": "257"},
        refusals=("container 'main': asks for aliyun.com/gpu-slot: 257, more cards than any node has",),
    ),
    Case(
        id="V16-a-crowd-of-slots",
        containers=(
            *(container({"gpu-mem": "25600", "gpu-slot": "256"}, name=f"c{number}") for number in range(4)),
            container({"gpu-mem": "100"}, name="one-too-many"),
        ),
        refusals=("the pod's containers ask for more than 1024 slots",),
    ),
    Case(
        id="V16-as-many-slots-as-may-be",
        containers=tuple(
            container({"gpu-mem": "25600", "gpu-slot": "256"}, name=f"c{number}") for number in range(4)
        ),
    ),
    Case(
        id="slots-of-an-init-container-without-memory",
        init=(container({"gpu-slot": "2"}, name="init"),),
        limits={"gpu-mem": "5000"},
        refusals=("container 'init': asks for aliyun.com/gpu-slot without aliyun.com/gpu-mem",),
    ),
    Case(
        id="V12-zero-slots-without-memory",
        limits={"gpu-slot": "0"},
    ),
    Case(id="V12-zero-of-both", limits={"gpu-mem": "0", "gpu-slot": "0"}),
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
        id="I6-in-every-container",
        init=(container({"gpu-mem": "5000"}, name="side", env=("NVIDIA_VISIBLE_DEVICES",), sidecar=True),),
        limits={"gpu-mem": "5000"},
        env=("NVIDIA_VISIBLE_DEVICES",),
        refusals=(OWN.replace("main", "side"), OWN),
    ),
    Case(
        id="policy-that-is-no-sentence",
        limits={"gpu-mem": "5000"},
        annotations={"aliyun.com/gpu-policy": "it's\nspread"},
        refusals=("annotation aliyun.com/gpu-policy: its text is not binpack or spread",),
    ),
    Case(
        id="policy-that-is-a-novel",
        limits={"gpu-mem": "5000"},
        annotations={"aliyun.com/gpu-policy": "x" * 81},
        refusals=("annotation aliyun.com/gpu-policy: its text is not binpack or spread",),
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
    Case(
        id="I7-every-place-at-once",
        limits={"gpu-mem": "5000", "gpu-slots": "1", "gpu-memory": "1"},
        annotations={"aliyun.com/gpu-polcy": "spread", "aliyun.com/gpu-count": "1"},
        labels={"aliyun.com/gpu-slot": "1"},
        warnings=(
            "gpushare knows no annotation 'aliyun.com/gpu-count'",
            "gpushare knows no annotation 'aliyun.com/gpu-polcy': "
            "did you mean the annotation aliyun.com/gpu-policy?",
            "gpushare knows no label 'aliyun.com/gpu-slot': did you mean the resource aliyun.com/gpu-slot?",
            "gpushare knows no resource 'aliyun.com/gpu-memory': "
            "did you mean the resource aliyun.com/gpu-mem?",
            "gpushare knows no resource 'aliyun.com/gpu-slots': "
            "did you mean the resource aliyun.com/gpu-slot?",
        ),
    ),
    Case(
        id="I7-how-near-is-near",
        limits={"gpu-mem": "5000", "gpu_mem": "1", "gpu-model": "1", "gpu-memory-lots": "1"},
        warnings=(
            "gpushare knows no resource 'aliyun.com/gpu-memory-lots'",
            "gpushare knows no resource 'aliyun.com/gpu-model'",
            "gpushare knows no resource 'aliyun.com/gpu_mem': did you mean the resource aliyun.com/gpu-mem?",
        ),
    ),
    Case(
        id="I7-beside-a-refusal",
        limits={"gpu-mem": "10Gi", "gpu-slots": "1"},
        refusals=(f"{MEM}: '10Gi' counts MiB: did you mean 10240?",),
        warnings=(
            "gpushare knows no resource 'aliyun.com/gpu-slots': "
            "did you mean the resource aliyun.com/gpu-slot?",
        ),
    ),
    Case(
        id="too-little-beside-enough",
        containers=(
            container({"gpu-mem": "64"}, name="enough"),
            container({"gpu-mem": "126", "gpu-slot": "2"}, name="little"),
        ),
        warnings=(
            "container 'little' asks for 63 MiB of a card, too little for any GPU program: "
            "did you mean 129024?",
        ),
    ),
    Case(id="one-GiB-is-enough", limits={"gpu-mem": "1"}, unit="GiB", largest=24),
    # What only the scheduler writes.
    Case(
        id="L8-forged-claim",
        limits={"gpu-mem": "5000"},
        annotations={"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "1"},
        warnings=(
            "the scheduler gives out the cards and ignores what a new pod claims: "
            "remove the annotations ALIYUN_COM_GPU_MEM_IDX, ALIYUN_COM_GPU_MEM_POD",
        ),
    ),
    Case(
        id="L8-a-copy-of-a-bound-pod",
        limits={"gpu-mem": "5000"},
        annotations={
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
            "ALIYUN_COM_GPU_MEM_DEV": "24576",
            "ALIYUN_COM_GPU_MEM_IDX": "1",
            "ALIYUN_COM_GPU_MEM_POD": "5000",
            "aliyun.com/gpu-allocation": "{}",
        },
        warnings=(
            "the scheduler gives out the cards and ignores what a new pod claims: "
            "remove the annotations ALIYUN_COM_GPU_MEM_IDX, ALIYUN_COM_GPU_MEM_POD, ALIYUN_COM_GPU_MEM_DEV, "
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME, ALIYUN_COM_GPU_MEM_ASSIGNED, aliyun.com/gpu-allocation",
        ),
    ),
    Case(
        id="L8-forged-by-a-pod-that-gets-no-card",
        limits={"gpu-mem": "0"},
        annotations={"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "aliyun.com/gpu-allocation": "{}"},
        warnings=(
            "the scheduler gives out the cards and ignores what a new pod claims: "
            "remove the annotations ALIYUN_COM_GPU_MEM_ASSIGNED, aliyun.com/gpu-allocation",
        ),
    ),
    # Pods that are none of ours are left alone.
    Case(id="others-plain"),
    Case(id="others-forged-claim", annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"}),
    Case(
        id="others-forged-claim-beside-a-key-of-the-domain",
        annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"},
        labels={"aliyun.com/owner": "ml"},
    ),
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


SCHEDULER = "gpushare-scheduler"


@dataclass(frozen=True, kw_only=True)
class Added:
    """A pod, and what is added to it where pods without a scheduler get `SCHEDULER`."""

    id: str
    containers: tuple[Pod, ...] = ()
    init: tuple[Pod, ...] = ()
    scheduler: str | None = "default-scheduler"
    slots: tuple[str, ...] = ()
    """Places of the containers that get a slot, `containers/0`."""
    named: bool = False
    """Whether the pod gets the scheduler's name."""
    runtime: str | None = None
    """The runtime class that the pod names itself."""

    @property
    def pod(self) -> Pod:
        spec: Pod = {"containers": list(self.containers)}
        if self.init:
            spec["initContainers"] = list(self.init)
        if self.scheduler is not None:
            spec["schedulerName"] = self.scheduler
        if self.runtime is not None:
            spec["runtimeClassName"] = self.runtime
        return {"metadata": {"name": self.id.lower()}, "spec": spec}

    @property
    def manifest(self) -> Pod:
        """The whole pod as a user would write it."""
        pod = copy.deepcopy(self.pod)
        for each in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
            each["image"] = "registry.example/app:1"
        return {"apiVersion": "v1", "kind": "Pod"} | pod

    def patch(
        self, *, slots: bool = True, scheduler: str = SCHEDULER, runtime: str = ""
    ) -> list[dict[str, str]]:
        """The operations of RFC 6902, where `slots` are added and pods that name none get these two."""
        adds = [
            {"op": "add", "path": f"/spec/{place}/resources/limits/aliyun.com~1gpu-slot", "value": "1"}
            for place in self.slots
            if slots
        ]
        if self.named and scheduler:
            adds.append({"op": "add", "path": "/spec/schedulerName", "value": scheduler})
        if (self.slots or self.named) and self.runtime is None and runtime:
            adds.append({"op": "add", "path": "/spec/runtimeClassName", "value": runtime})
        return adds


ADDED = (
    Added(id="one", containers=(container({"gpu-mem": "5000"}),), slots=("containers/0",), named=True),
    Added(
        id="canonical-thousands",
        containers=(container({"gpu-mem": "1k"}),),
        slots=("containers/0",),
        named=True,
    ),
    Added(id="has-its-slots", containers=(container({"gpu-mem": "10k", "gpu-slot": "2"}),), named=True),
    Added(id="V12-zero", containers=(container({"gpu-mem": "0"}),)),
    Added(id="slots-alone", containers=(container({"gpu-slot": "1"}),)),
    Added(id="others", containers=(container({"nvidia.com/gpu": "1"}),)),
    Added(id="without-limits", containers=({"name": "main"},)),
    Added(
        id="every-kind-of-container",
        init=(
            container({"gpu-mem": "100"}, name="init"),
            container({}, name="wait"),
            container({"gpu-mem": "200"}, name="side", sidecar=True),
        ),
        containers=(
            container({}, name="proxy"),
            container({"gpu-mem": "300"}, name="one"),
            container({"gpu-mem": "0"}, name="none"),
            container({"gpu-mem": "400", "gpu-slot": "2"}, name="two"),
            {"name": "plain"},
            container({"gpu-mem": "500"}, name="three"),
        ),
        slots=("initContainers/0", "initContainers/2", "containers/1", "containers/5"),
        named=True,
    ),
    Added(
        id="only-an-init-container",
        init=(container({"gpu-mem": "100"}, name="init"),),
        containers=({"name": "main"},),
        slots=("initContainers/0",),
        named=True,
    ),
    Added(
        id="another-scheduler",
        containers=(container({"gpu-mem": "5000"}),),
        scheduler="mine",
        slots=("containers/0",),
    ),
    Added(
        id="another-runtime",
        containers=(container({"gpu-mem": "5000"}),),
        slots=("containers/0",),
        named=True,
        runtime="kata",
    ),
    Added(
        id="our-scheduler",
        containers=(container({"gpu-mem": "5000"}),),
        scheduler=SCHEDULER,
        slots=("containers/0",),
    ),
    Added(
        id="no-scheduler",
        containers=(container({"gpu-mem": "5000"}),),
        scheduler=None,
        slots=("containers/0",),
        named=True,
    ),
    Added(
        id="bytes-get-a-slot-too-before-they-are-refused",
        containers=(container({"gpu-mem": "10Gi"}),),
        slots=("containers/0",),
        named=True,
    ),
)
