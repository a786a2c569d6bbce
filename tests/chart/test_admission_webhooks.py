"""Admission by webhooks, for clusters before 1.36: who is sent to the extender, and how it is reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import helm_python
import pytest

from extender.app import admission_routes
from tests.admission_cases import CASES, Case
from tests.build import NAMES
from tests.chart.policies import creation, matches
from tests.chart.rendering import Release, Values, invalid, render
from tests.chart.secrets import upgrade

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def webhooks(release: Release) -> dict[str, dict[str, Any]]:
    return {
        f"{kind[0]}:{each['name']}": each
        for kind in (MUTATING, VALIDATING)
        for configuration in release.of(kind)
        for each in configuration["webhooks"]
    }


def asks(case: Case) -> bool:
    return any(
        key in (each.get("resources") or {}).get("limits", {})
        for each in (*case.init, *case.pod["spec"]["containers"])
        for key in (NAMES.memory, NAMES.slot)
    )


@pytest.mark.parametrize("kubernetes", ["1.25", "1.28", "1.35"])
@pytest.mark.parametrize(
    "values",
    [{}, {"scheduler": {"mode": "external"}}, {"certificates": {"mode": "cert-manager"}}],
    ids=["pair", "external", "cert-manager"],
)
def test_they_are_valid_where_there_are_no_policies(values: Values, kubernetes: str) -> None:
    release = render(values, kubernetes=kubernetes)
    assert invalid(release) == []
    assert webhooks(release)
    assert not release.of("MutatingAdmissionPolicy")
    assert not release.has("ValidatingAdmissionPolicy", "gpushare-pods")


def test_a_pod_that_asks_is_never_let_in_unseen() -> None:
    for each in webhooks(render(kubernetes="1.30")).values():
        is_warning = each["name"].startswith("warnings.")
        assert each["failurePolicy"] == ("Ignore" if is_warning else "Fail")
        assert each["sideEffects"] == "None"
        assert each["timeoutSeconds"] <= 5
        (rule,) = each["rules"]
        assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
        assert each["admissionReviewVersions"] == ["v1"]


def test_what_the_cluster_needs_to_start_depends_on_nobody() -> None:
    release = render(
        {"admission": {"exemptNamespaces": ["istio-system"]}}, kubernetes="1.25", namespace="gpus"
    )
    for each in webhooks(release).values():
        (named,) = each["namespaceSelector"]["matchExpressions"]
        assert named["operator"] == "NotIn"
        assert named["values"] == ["kube-system", "gpus", "istio-system"]


@pytest.mark.parametrize("kubernetes", ["1.25", "1.35"])
def test_nobody_is_installed_where_pods_of_users_would_be_exempt(kubernetes: str) -> None:
    with pytest.raises(helm_python.HelmError, match="--namespace gpushare-system --create-namespace"):
        render(kubernetes=kubernetes, namespace="default")
    assert render({"admission": {"mode": "none"}}, kubernetes=kubernetes, namespace="default")
    # Whoever has been there goes on.
    assert upgrade(there=[], kubernetes=kubernetes, at="default")


def test_only_pods_that_ask_wait_for_the_extender() -> None:
    found = webhooks(render(kubernetes="1.28"))
    for case in CASES:
        for name in ("M:pods.gpushare-admission.svc", "V:pods.gpushare-admission.svc"):
            assert matches(found[name]["matchConditions"], creation(case.pod)) is asks(case)


def test_I7_who_asks_for_nothing_may_still_be_warned() -> None:
    warning = webhooks(render(kubernetes="1.28"))["V:warnings.gpushare-admission.svc"]
    for case in CASES:
        is_sent = matches(warning["matchConditions"], creation(case.pod))
        assert not (is_sent and asks(case))
        if case.warnings and not asks(case):
            assert is_sent
    assert not matches(warning["matchConditions"], creation(Case(id="plain").pod))
    silent = webhooks(render({"admission": {"warnings": False}}, kubernetes="1.28"))
    assert "V:warnings.gpushare-admission.svc" not in silent


def test_before_1_28_a_webhook_has_no_conditions() -> None:
    found = webhooks(render(kubernetes="1.27"))
    assert set(found) == {"M:pods.gpushare-admission.svc", "V:pods.gpushare-admission.svc"}
    assert all("matchConditions" not in each for each in found.values())


@pytest.mark.parametrize("mode", ["pair", "external"])
def test_they_reach_the_extender(mode: str) -> None:
    release = render({"scheduler": {"mode": mode}}, kubernetes="1.30")
    service = release.one("Service", "gpushare-admission")
    (port,) = service["spec"]["ports"]
    deciding = {"pair": "gpushare-scheduler", "external": "gpushare-extender"}[mode]
    deployment = release.one("Deployment", deciding)["spec"]["template"]
    assert service["spec"]["selector"].items() <= deployment["metadata"]["labels"].items()
    served = {
        each["name"]: each["containerPort"]
        for container in deployment["spec"]["containers"]
        for each in container.get("ports", ())
    }
    assert served[port["targetPort"]] == 9443
    untimed = SimpleNamespace(metrics=SimpleNamespace(timed=lambda _: lambda route: route))
    paths = {route.path for route in admission_routes(untimed).routes}  # type: ignore[attr-defined,arg-type]
    for each in webhooks(release).values():
        asked = each["clientConfig"]["service"]
        assert (asked["name"], asked["namespace"]) == ("gpushare-admission", "gpushare-system")
        assert asked["port"] == port["port"]
        assert asked["path"] in paths
    assert "publishNotReadyAddresses" not in service["spec"]


def test_the_certificates_authority_is_known_to_the_api_server() -> None:
    for each in webhooks(render(kubernetes="1.30")).values():
        assert each["clientConfig"]["caBundle"]
    release = render({"certificates": {"mode": "cert-manager"}}, kubernetes="1.30")
    for kind in (MUTATING, VALIDATING):
        notes = release.one(kind, "gpushare-pods")["metadata"]["annotations"]
        assert notes["cert-manager.io/inject-ca-from"] == "gpushare-system/gpushare-admission-tls"
    assert all("caBundle" not in each["clientConfig"] for each in webhooks(release).values())


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({}, {"--set-scheduler-name=gpushare-scheduler"}),
        ({"scheduler": {"name": "gpus"}}, {"--set-scheduler-name=gpus"}),
        ({"admission": {"setSchedulerName": False}}, set()),
        ({"scheduler": {"mode": "external"}}, set()),
        (
            {"scheduler": {"mode": "external"}, "admission": {"setRuntimeClassName": "nvidia"}},
            {"--set-runtime-class-name=nvidia"},
        ),
        ({"devicePlugin": {"mode": "units"}}, {"--set-scheduler-name=gpushare-scheduler", "--no-add-slots"}),
    ],
    ids=["default", "renamed", "off", "external", "runtime", "units"],
)
def test_the_extender_adds_what_the_policy_would(values: Values, flags: set[str]) -> None:
    release = render(values, kubernetes="1.30")
    arguments = {
        each
        for _, spec in release.pod_specs()
        for container in spec["containers"]
        if container["name"] == "extender"
        for each in container["args"]
        if each.startswith(("--set-", "--no-add-slots"))
    }
    assert arguments == flags


def test_there_is_nothing_to_mutate_where_nothing_is_added() -> None:
    values = {"devicePlugin": {"mode": "units"}, "admission": {"setSchedulerName": False}}
    release = render(values, kubernetes="1.30")
    assert release.of(MUTATING) == []
    assert release.has(VALIDATING, "gpushare-pods")


def test_with_policies_nobody_serves_admission() -> None:
    release = render(kubernetes="1.36")
    assert not release.has("Service", "gpushare-admission")
    assert webhooks(release) == {}
