"""I4: roles hold exactly what the programs call, as their own lists of rights say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from deviceplugin import rights as plugin
from extender import rights as extender
from kubeapi.rights import Right
from tests.chart.rendering import NAMESPACE, Release, render
from tests.chart.sets import SETS
from tests.rights import uses


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        ("gpushare-extender", extender.RIGHTS),
        ("gpushare-plugin", plugin.RIGHTS),
        ("gpushare-uninstall", plugin.UNINSTALL_RIGHTS),
    ],
)
@pytest.mark.parametrize("mode", ["pair", "external"])
def test_I4_a_role_holds_what_the_code_lists_and_none_more(
    mode: str, role: str, rights: Iterable[Right]
) -> None:
    rendered = render({"scheduler": {"mode": mode}}).one("ClusterRole", role)

    assert allowed(rendered) == uses(right for right in rights if right.scope == "cluster")


@pytest.mark.parametrize("mode", ["pair", "external"])
def test_I4_the_election_is_held_in_the_releases_namespace_only(mode: str) -> None:
    release = render({"scheduler": {"mode": mode}})
    role = release.one("Role", "gpushare-election")
    labelling = extender.LABEL_RIGHTS if mode == "external" else ()

    assert role["metadata"]["namespace"] == NAMESPACE
    assert allowed(role) == uses((*extender.ELECTION_RIGHTS, *labelling))


@pytest.mark.parametrize("name", SETS)
def test_I4_no_role_has_a_star_proxies_to_kubelets_or_updates_pods(name: str) -> None:
    for role in roles(render(SETS[name], kubernetes="1.30")):
        for rule in role["rules"]:
            assert "*" not in str(rule), role["metadata"]["name"]
        for _, resource, verb in allowed(role):
            assert resource != "nodes/proxy", role["metadata"]["name"]
            assert (resource, verb) != ("pods", "update"), role["metadata"]["name"]


@pytest.mark.parametrize("name", SETS)
def test_every_binding_gives_a_role_that_is_there_to_an_account_that_is_there(name: str) -> None:
    release = render(SETS[name])
    accounts = {each["metadata"]["name"] for each in release.of("ServiceAccount")}
    known = {(each["kind"], each["metadata"]["name"]) for each in roles(release)} | {
        ("ClusterRole", "system:kube-scheduler"),  # Kubernetes' own (1.36)
        ("ClusterRole", "system:volume-scheduler"),
        ("Role", "extension-apiserver-authentication-reader"),
    }
    bindings = [*release.of("ClusterRoleBinding"), *release.of("RoleBinding")]
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in known
        for subject in binding["subjects"]:
            assert subject["name"] in accounts
            assert subject["namespace"] == NAMESPACE
    bound = {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings}
    assert {(each["kind"], each["metadata"]["name"]) for each in roles(release)} <= bound


def test_the_pair_may_what_kubernetes_own_scheduler_may() -> None:
    pair, external = render(), render({"scheduler": {"mode": "external"}})

    assert rights_of(pair, "gpushare-scheduler") == {
        "gpushare-extender",
        "gpushare-election",
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    }
    reader = pair.one("RoleBinding", "gpushare-authentication-reader")
    assert reader["metadata"]["namespace"] == "kube-system"
    assert rights_of(external, "gpushare-extender") == {"gpushare-extender", "gpushare-election"}


def test_the_device_plugin_and_the_uninstall_have_one_role_each() -> None:
    release = render()

    assert rights_of(release, "gpushare-device-plugin") == {"gpushare-plugin"}
    assert rights_of(release, "gpushare-uninstall") == {"gpushare-uninstall"}


def roles(release: Release) -> list[Any]:
    return [*release.of("ClusterRole"), *release.of("Role")]


def allowed(role: Any) -> set[tuple[str, str, str]]:
    """API group, resource and verb, one by one."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights_of(release: Release, account: str) -> set[str]:
    bindings = [*release.of("ClusterRoleBinding"), *release.of("RoleBinding")]
    return {
        binding["roleRef"]["name"]
        for binding in bindings
        if any(subject["name"] == account for subject in binding["subjects"])
    }
