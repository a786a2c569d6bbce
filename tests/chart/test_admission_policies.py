"""The admission policies in CEL: the same table as the extender's rules, the same sentences."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import helm_python
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.admission import Additions, mutate
from extender.podrules import PodRules, ReviewedPod
from gpushare.names import Names
from tests.admission_cases import ADDED, CASES, SCHEDULER, Added, Case, Pod, container
from tests.build import NAMES
from tests.chart.policies import Policies, creation, matches
from tests.chart.rendering import Values, invalid, render

OTHER = "example-42.com/Vram_of.1"


def policies(values: Values | None = None) -> Policies:
    return _policies(json.dumps(values or {}))


def policies_for(case: Case) -> Policies:
    return policies({"resource": {"unit": case.unit}, "devicePlugin": {"mode": case.mode}})


@functools.cache
def _policies(values: str) -> Policies:
    return Policies(render(json.loads(values)))


@pytest.mark.parametrize("case", [case for case in CASES if not case.api_server], ids=lambda case: case.id)
def test_the_policies_say_what_the_extender_says(case: Case) -> None:
    request = creation(case.pod)
    chart = policies_for(case)
    refused = chart.refusals(request)
    warned = chart.refusals(request, policy="gpushare-warnings")
    assert refused == (["; ".join(case.refusals)] if case.refusals else [])
    assert "; ".join(warned) == "; ".join(case.warnings)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.refusals and not case.api_server], ids=lambda case: case.id
)
def test_workloads_are_warned_of_what_their_pods_will_be_refused_for(case: Case) -> None:
    chart = policies_for(case)
    told = [f"its pods will be refused: {'; '.join(case.refusals)}"]
    deployment = {"metadata": {"name": "d"}, "spec": {"template": case.pod}}
    assert chart.refusals(creation(deployment), policy="gpushare-templates") == told
    cron = {"metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": case.pod}}}}
    assert chart.refusals(creation(cron), policy="gpushare-cron-templates") == told


def test_workloads_whose_pods_are_welcome_hear_nothing() -> None:
    deployment = {
        "metadata": {"name": "d"},
        "spec": {"template": Case(id="fine", limits={"gpu-mem": "8138"}).pod},
    }
    assert policies().refusals(creation(deployment), policy="gpushare-templates") == []


AMOUNTS = st.one_of(
    st.sampled_from(["0", "1", "63", "8138", "1k", "10Gi", "8G", "1Mi", "2Mi", "1e3", "2Ti"]),
    st.integers(0, 9 * 10**15).map(str),
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "gpu-mem": AMOUNTS,
        "gpu-slot": st.sampled_from(["0", "1", "2", "3", "16", "256", "257", "1k"]),
        "gpu-memory": st.just("1"),
        "nvidia.com/gpu": st.just("1"),
    },
)
CONTAINERS = st.lists(
    st.builds(
        container,
        LIMITS,
        name=st.sampled_from(["a", "b", "a-rather-long-name"]),
        env=st.sampled_from([(), ("A",), ("A", "NVIDIA_VISIBLE_DEVICES")]),
    ),
    max_size=6,
)
KEYS = st.one_of(
    st.from_regex(r"aliyun\.com/gpu-?[a-z-]{1,12}[a-z]", fullmatch=True),
    st.sampled_from(
        ["aliyun.com/gpu-policy", "aliyun.com/" + "x" * 71, NAMES.index, NAMES.assigned, "a.b/c"]
    ),
)
TEXTS = st.one_of(st.sampled_from(["binpack", "spread", "Spread", "it's", "x" * 81]), st.text(max_size=5))


@settings(max_examples=40, deadline=None)
@given(
    init=CONTAINERS,
    apps=CONTAINERS,
    annotations=st.dictionaries(KEYS, TEXTS, max_size=3),
    labels=st.dictionaries(KEYS, st.just("x"), max_size=2),
    node_name=st.sampled_from([None, "n1", "n" * 81]),
    unit=st.sampled_from(["MiB", "GiB"]),
    mode=st.sampled_from(["slots", "units"]),
)
def test_they_agree_about_any_pod(
    init: list[Pod],
    apps: list[Pod],
    annotations: dict[str, str],
    labels: dict[str, str],
    node_name: str | None,
    unit: str,
    mode: str,
) -> None:
    case = Case(
        id="any",
        init=tuple(init),
        containers=tuple(apps),
        annotations=annotations,
        labels=labels,
        node_name=node_name,
        unit=unit,
        mode=mode,
    )
    rules = PodRules(names=NAMES, unit=unit, slots=mode == "slots")
    verdict = rules.judge(msgspec.convert(case.pod, ReviewedPod))
    chart = policies_for(case)
    told = chart.refusals(creation(case.pod))
    assert told == (["; ".join(verdict.refusals[:10])] if verdict.refusals else [])
    warned = "; ".join(chart.refusals(creation(case.pod), policy="gpushare-warnings"))
    assert warned == "; ".join(verdict.warnings)


def test_the_names_follow_the_resource() -> None:
    names = Names.of(OTHER)
    limits = {names.memory: "10Gi", f"{names.domain}/vram": "1"}
    annotations = {names.policy: "tight", names.index: "1", "aliyun.com/gpu-polcy": "x"}
    case = Case(id="other", limits=limits, env=("NVIDIA_VISIBLE_DEVICES",), annotations=annotations)
    verdict = PodRules(names=names, unit="MiB").judge(msgspec.convert(case.pod, ReviewedPod))
    assert len(verdict.refusals) == 3
    assert len(verdict.warnings) == 2
    chart = policies({"resource": {"memory": OTHER}})
    assert chart.refusals(creation(case.pod)) == ["; ".join(verdict.refusals)]
    warned = "; ".join(chart.refusals(creation(case.pod), policy="gpushare-warnings"))
    assert warned == "; ".join(verdict.warnings)
    (slot,) = (each for each in chart.patch(creation(case.pod)) if "limits" in each["path"])
    assert slot["path"].endswith("/limits/example-42.com~1gpu-slot")


def test_more_sentences_than_the_api_server_passes_on_are_cut() -> None:
    wrong = [container({"gpu-mem": "10Gi"}, name=f"c{number}") for number in range(11)]
    (told,) = policies().refusals(creation(Case(id="many", containers=tuple(wrong)).pod))
    assert told.count("did you mean 10240?") == 10


@pytest.mark.parametrize(
    "spec", [{}, {"containers": None}, {"containers": []}], ids=["none", "null", "empty"]
)
def test_a_pod_without_containers_is_left_to_the_api_server(spec: dict[str, Any]) -> None:
    assert policies().patch(creation({"metadata": {"name": "a"}, "spec": spec})) == []


@pytest.mark.parametrize("added", ADDED, ids=lambda added: added.id)
@pytest.mark.parametrize("scheduler", [SCHEDULER, ""], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    ("mode", "runtime"), [("slots", ""), ("units", ""), ("slots", "nvidia"), ("units", "nvidia")]
)
def test_both_modes_add_the_same(added: Added, mode: str, scheduler: str, runtime: str) -> None:
    admission = {"setSchedulerName": bool(scheduler), "setRuntimeClassName": runtime}
    chart = policies({"devicePlugin": {"mode": mode}, "admission": admission})
    wanted = added.patch(slots=mode == "slots", scheduler=scheduler, runtime=runtime)
    assert chart.patch(creation(added.pod)) == wanted
    additions = Additions(slots=mode == "slots", scheduler=scheduler, runtime_class=runtime)
    assert by_the_extender(added.pod, additions=additions) == wanted


def by_the_extender(pod: Pod, *, additions: Additions) -> list[dict[str, str]]:
    review = {"request": {"uid": "u", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod}}
    answer = mutate(json.dumps(review).encode(), names=NAMES, additions=additions)
    patch = json.loads(answer)["response"].get("patch")
    decoded: list[dict[str, str]] = json.loads(base64.b64decode(patch)) if patch else []
    return decoded


@pytest.mark.parametrize("namespace", ["gpus", "default"])
def test_only_new_pods_outside_the_systems_namespaces_are_looked_at(namespace: str) -> None:
    release = render({"admission": {"exemptNamespaces": ["istio-system"]}}, namespace=namespace)
    found = [*release.of("MutatingAdmissionPolicy"), *release.of("ValidatingAdmissionPolicy")]
    constraints = {
        (each["kind"], each["metadata"]["name"]): each["spec"]["matchConstraints"]
        for each in found
        if "fence" not in each["metadata"]["name"]
    }
    assert len(constraints) == 5
    for (_, name), each in constraints.items():
        (named,) = each["namespaceSelector"]["matchExpressions"]
        assert (named["key"], named["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        # The release's own too: nobody has to be up for the rules, and none of ours asks for GPU memory.
        assert named["values"] == ["kube-system", "istio-system"]
        if "templates" not in name:
            (rule,) = each["resourceRules"]
            assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])


def test_every_policy_is_bound_to_what_it_does() -> None:
    release = render()
    bound = {
        each["spec"]["policyName"]: each["spec"].get("validationActions")
        for kind in ("MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding")
        for each in release.of(kind)
        if each["spec"]["policyName"] != "gpushare-pods" or kind.startswith("V")
    }
    assert bound == {
        "gpushare-pods": ["Deny"],
        "gpushare-warnings": ["Warn"],
        "gpushare-templates": ["Warn"],
        "gpushare-cron-templates": ["Warn"],
        "gpushare-node-fence": ["Deny"],
    }
    assert release.has("MutatingAdmissionPolicyBinding", "gpushare-pods")
    assert invalid(release) == []


def test_what_is_switched_off_is_not_there() -> None:
    assert not render({"admission": {"warnings": False}}).has(
        "ValidatingAdmissionPolicy", "gpushare-warnings"
    )
    nothing = render({"admission": {"mode": "none"}, "nodeFence": {"enabled": False}})
    assert [each for each in nothing.objects if each["apiVersion"].startswith("admissionregistration")] == []
    units = render({"devicePlugin": {"mode": "units"}, "admission": {"setSchedulerName": False}})
    assert units.of("MutatingAdmissionPolicy") == []
    assert units.has("ValidatingAdmissionPolicy", "gpushare-pods")


def test_policies_are_refused_where_kubernetes_has_none() -> None:
    with pytest.raises(helm_python.HelmError, match=r"since 1\.36: choose webhook, or leave it at auto"):
        render({"admission": {"mode": "policy"}}, kubernetes="1.35")
    with pytest.raises(helm_python.HelmError, match=r"since 1\.30.*leave it at auto"):
        render({"nodeFence": {"enabled": True}}, kubernetes="1.29")


def test_pods_that_ask_for_nothing_are_not_even_looked_at() -> None:
    release = render()
    policy = release.one("MutatingAdmissionPolicy", "gpushare-pods")["spec"]["matchConditions"]
    rules = release.one("ValidatingAdmissionPolicy", "gpushare-pods")["spec"]["matchConditions"]
    for case in CASES:
        asks = any(
            key in (each.get("resources") or {}).get("limits", {})
            for each in (*case.init, *case.pod["spec"]["containers"])
            for key in (NAMES.memory, NAMES.slot)
        )
        assert matches(policy, creation(case.pod)) is asks
        assert matches(rules, creation(case.pod)) is asks
