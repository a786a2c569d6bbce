"""Mode external with the control plane's kube-scheduler, by mutual TLS: pods placed, leaders replaced."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.chart.rendering import NAMESPACE as RELEASE_NAMESPACE
from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane, control_plane
from tests.e2e.external import (
    ACCOUNT,
    DEPLOYMENT_PATH,
    HOST,
    LEADER,
    External,
    Replica,
    running_external,
    secret,
)
from tests.e2e.installation import VALUES, install
from tests.e2e.load import CARDS, NODES, PODS, Load, bound
from tests.e2e.programs import eventually
from tests.e2e.workload import add_node, held, place, pod, refused

PODS_PATH = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster of its own: the other modules' has the chart in the other mode."""
    with control_plane() as started:
        yield started


@pytest.fixture(scope="module")
def external(plane: ControlPlane) -> Iterator[External]:
    add_node(plane.api, HOST, cards=[])
    mode = {"scheduler": {"mode": "external"}, "external": {"clusterIP": "10.0.0.77"}}
    with running_external(install(plane, VALUES | mode)) as started:
        yield started


@pytest.fixture
def api(plane: ControlPlane, external: External) -> Iterator[Api]:
    yield plane.api
    plane.api.clear_pods()
    for node in plane.api.get("/api/v1/nodes")["items"]:
        if node["metadata"]["name"] != HOST:
            plane.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    external.settle()


def test_all_replicas_are_ready_and_the_service_has_the_leader_alone(api: Api, external: External) -> None:
    status = api.get(DEPLOYMENT_PATH)["status"]
    assert status["readyReplicas"] == 2
    assert external.leaders == [external.leader.name]
    budget = api.get(f"/apis/policy/v1/namespaces/{RELEASE_NAMESPACE}/poddisruptionbudgets/{ACCOUNT}")
    assert budget["status"]["disruptionsAllowed"] == 1
    add_node(api, "n1", cards=[8192, 16384])
    assert place(api, pod("large", 12000)) == ("n1", "1")
    refused(api, pod("as-large", 12000), because="no single GPU card has enough memory left")
    assert place(api, pod("small", 8192)) == ("n1", "0")


def test_only_a_caller_with_a_certificate_of_the_releases_is_answered(api: Api, external: External) -> None:
    folder = external.installation.plane.folder / "caller"
    files = secret(external.installation, "gpushare-scheduler-client", folder=folder)
    url = f"https://{external.service.host_and_port}/gpushare-scheduler/filter"
    name = {"sni_hostname": f"{ACCOUNT}.{RELEASE_NAMESPACE}.svc"}
    body = {"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["n1"]}

    def call(context: ssl.SSLContext) -> httpx.Response:
        with httpx.Client(verify=context) as http:
            return http.post(url, json=body, extensions=name)

    stranger = ssl.create_default_context(cafile=str(files["ca.crt"]))
    with pytest.raises(httpx.TransportError):
        call(stranger)
    stranger.load_cert_chain(external.installation.plane.admin.cert, external.installation.plane.admin.key)
    with pytest.raises(httpx.TransportError):
        call(stranger)
    known = ssl.create_default_context(cafile=str(files["ca.crt"]))
    known.load_cert_chain(files["tls.crt"], files["tls.key"])
    assert call(known).json()["NodeNames"] == ["n1"]


def told_to_end(api: Api, replica: Replica) -> None:
    """As a drain does: the Deployment makes another."""
    api.delete(f"{PODS_PATH}/{replica.name}")


def killed(api: Api, replica: Replica) -> None:
    """As for lack of memory: kubelet starts the container again, in the pod with its labels."""
    replica.program.process.kill()


def rolled(api: Api, replica: Replica) -> None:
    """As `kubectl rollout restart` does: all replicas, one after another."""
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    api.merge(DEPLOYMENT_PATH, {"spec": {"template": template}})


@pytest.mark.parametrize("ending", [told_to_end, killed, rolled])
def test_another_replica_takes_over_under_load_and_every_card_is_filled_once(
    api: Api, external: External, ending: Callable[[Api, Replica], None]
) -> None:
    for number in range(NODES):
        add_node(api, f"n{number}", cards=CARDS)
    first = external.leader
    external.gaps.clear()
    with Load(api) as load:
        eventually(lambda: load.created > PODS // 4, what="pods come in")
        external.least_ready = None
        ending(api, first)
        eventually(lambda: len(external.gaps) > 0, what="the leader has no requests any more")
    eventually(lambda: bound(api) == PODS, what=f"all {PODS} pods are placed", seconds=90)
    external.settle()
    assert external.leaders == [external.leader.name]
    if ending is not killed:  # what starts again competes again
        assert external.leader is not first
    assert external.least_ready == (2 if ending is rolled else 1)
    assert set(held(api.pods()).values()) == {16000}
    assert len(held(api.pods())) == NODES * len(CARDS)
    print(f"{ending.__name__}: no endpoint for {[round(each, 1) for each in external.gaps]} s")


def labelled(key: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {key: value}}}


def test_of_pods_the_extenders_account_may_change_the_label_of_its_own_alone(
    api: Api, external: External
) -> None:
    leader = external.leader
    standby = next(each for each in external.replicas.values() if each is not leader)
    extender = external.installation.api(ACCOUNT, pod=standby.name)
    mine, other = (f"{PODS_PATH}/{each.name}" for each in (standby, leader))
    image = {"spec": {"containers": [{"name": "extender", "image": "evil:1"}]}}
    refusals = {
        "own pod only": extender.try_merge(other, labelled(LEADER, None)),
        "may not change the labels team": extender.try_merge(mine, labelled("team", "x")),
        "nothing of its pod but a label": extender.try_merge(mine, {"metadata": {"annotations": {"a": "b"}}}),
    }
    for said, answer in refusals.items():
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["message"]
    assert not extender.try_merge(mine, image).is_success
    assert extender.try_merge(mine, labelled(LEADER, None)).is_success
    extender.close()
