"""I4: the device plugin does its work with the rights that `rights.py` lists, and has no use for fewer."""

from deviceplugin.rights import RIGHTS, UNINSTALL_RIGHTS
from deviceplugin.uninstall import Pace, Uninstall
from kubeapi.client import MERGE_PATCH, KubeApi
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.pods import NAMES, NODE, C
from tests.rights import Guard, use_of, uses

HOOK = "uninstall-hook"


async def announce_rival(one_node: Cluster, *, count: str | None) -> None:
    body = {"status": {"capacity": {"nvidia.com/gpu": count}}}
    path = f"/api/v1/nodes/{NODE}/status"
    (await one_node.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)).checked()


async def test_I4_the_plugin_uses_its_rights_and_no_others(one_node: Cluster) -> None:
    guard = Guard(one_node.server, client=AGENT, rights=RIGHTS)
    async with one_node.plugin() as plugin:
        await one_node.run("p", C(memory=1000), cards=[1])
        await until(
            lambda: one_node.annotation("p", NAMES.assigned) == "true", what=lambda: one_node.pod("p")
        )
        for count in ("2", None, "2"):  # the second warning raises the count of the first
            await announce_rival(one_node, count=count)
            await until(lambda: bool(plugin.rivals.seen) is bool(count), what=lambda: plugin.rivals.seen)  # noqa: B023
        await until(lambda: guard.used == guard.rights, what=lambda: guard.rights - guard.used)
    assert guard.refused == set()


async def test_I4_uninstalling_uses_its_rights_and_no_others(one_node: Cluster) -> None:
    async with one_node.plugin():
        pass
    guard = Guard(one_node.server, client=HOOK, rights=UNINSTALL_RIGHTS)
    config = one_node.server.kubeconfig(one_node.folder / "hook.kubeconfig")
    async with await KubeApi.connect(config, user_agent=HOOK) as api:
        await Uninstall(api, names=NAMES, pace=Pace(quiet=0.05)).run()
    assert (guard.used, guard.refused) == (guard.rights, set())


def test_I4_no_right_is_to_all_and_none_lets_pods_be_replaced() -> None:
    for _, resource, verb in uses((*RIGHTS, *UNINSTALL_RIGHTS)):
        assert "*" not in (resource, verb)
        assert resource != "nodes/proxy"
        assert not (resource.startswith("pods") and verb in ("update", "delete", "create"))


def test_requests_are_read_as_kubernetes_reads_them() -> None:
    assert use_of(method="GET", path="/api/v1/nodes") == ("", "nodes", "list")
    assert use_of(method="GET", path="/api/v1/nodes", query="watch=1") == ("", "nodes", "watch")
    assert use_of(method="PATCH", path="/api/v1/nodes/n1/status") == ("", "nodes/status", "patch")
    assert use_of(method="GET", path="/api/v1/namespaces/a/pods/b") == ("", "pods", "get")
    assert use_of(method="GET", path="/api/v1/namespaces/a") == ("", "namespaces", "get")
    path = "/api/v1/namespaces/a/pods/b/binding"
    assert use_of(method="POST", path=path) == ("", "pods/binding", "create")
    path = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
    assert use_of(method="PUT", path=path) == ("coordination.k8s.io", "leases", "update")
