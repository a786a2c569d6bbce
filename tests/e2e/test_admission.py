"""The rules for new pods as a real API server applies them: by the chart's policies, and by its webhooks."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from tests.admission_cases import CASES, Case
from tests.build import NAMES
from tests.chart.rendering import render
from tests.e2e.api import Api, Object
from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import VALUES, Installation
from tests.e2e.pair import ACCOUNT, DEPLOYMENT
from tests.e2e.programs import Program, eventually, free_port, own

PODS = "/api/v1/namespaces/{}/pods"
MIB = [case for case in CASES if case.unit == "MiB"]
WRONG = next(case for case in MIB if case.refusals and not case.api_server)
DUBIOUS = next(case for case in MIB if case.warnings and not case.refusals)
POLICIES = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
ABOUT_PODS = ("gpushare-pods", "gpushare-warnings")


def try_pod(api: Api, manifest: Mapping[str, Any], *, namespace: str = "default") -> httpx.Response:
    """What the API server says to it; nothing is kept."""
    return api.ask("POST", PODS.format(namespace), manifest, params={"dryRun": "All"})


def warned(answer: httpx.Response) -> str:
    """What kubectl shows as warnings: the Warning headers (RFC 7234), without a policy's name."""
    texts = [re.fullmatch(r'299 - "(.*)"', each) for each in answer.headers.get_list("warning")]
    assert all(texts)
    return "; ".join(text.group(1).rpartition("'gpushare-warnings': ")[2] for text in texts if text)


def workload(kind: str, pod: Mapping[str, Any]) -> Object:
    """A workload that would make such pods."""
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        spec: Object = {"selector": {"matchLabels": labels}, "template": template}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    job = {"template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}}
    spec = job if kind == "Job" else {"schedule": "@daily", "jobTemplate": {"spec": job}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}


def slot_added(api: Api) -> bool:
    created = try_pod(api, pod_of("V14-1e3")).json()
    return NAMES.slot in created["spec"]["containers"][0]["resources"]["limits"]


def pod_of(case: str) -> Object:
    return next(each for each in MIB if each.id == case).manifest


def in_force(api: Api) -> bool:
    """Whether all rules are applied: the API server takes a moment to read each."""
    return (
        slot_added(api)
        and try_pod(api, WRONG.manifest).status_code >= 400
        and warned(try_pod(api, DUBIOUS.manifest)) != ""
    )


@contextlib.contextmanager
def webhooks_instead(installation: Installation) -> Iterator[None]:
    """`admission.mode: webhook`: the policies about pods are gone, and the extender answers."""
    plane = installation.plane
    policies = [
        item
        for item in installation.release.objects
        if item["kind"].startswith(POLICIES) and item["metadata"]["name"] in ABOUT_PODS
    ]
    other = Installation(plane, render({**VALUES, "admission": {"mode": "webhook"}}))
    pair = plane.keys.issue("admission", user="gpushare-admission")
    address = f"127.0.0.1:{free_port()}"
    instead = {
        "--listen": f"127.0.0.1:{free_port()}",
        "--view-listen": f"127.0.0.1:{free_port()}",
        "--kubeconfig": str(installation.kubeconfig(ACCOUNT)),
        "--admission-listen": address,
        "--admission-tls-cert": str(pair.cert),
        "--admission-tls-key": str(pair.key),
    }
    command = other.command(DEPLOYMENT, "extender", folder=plane.folder, instead=instead)
    hooks = [item for kind in WEBHOOKS for item in other.release.of(kind)]
    for item in hooks:
        for hook in item["webhooks"]:
            # There is no network for Services here.
            path = hook["clientConfig"]["service"]["path"]
            bundle = base64.b64encode(plane.keys.ca.cert.read_bytes()).decode()
            hook["clientConfig"] = {"url": f"https://{address}{path}", "caBundle": bundle}
    with Program(
        "admission-extender", [own("gpushare-extender"), *command.arguments], folder=plane.folder
    ) as extender:
        for item in policies:
            plane.api.delete(f"{plane.api.collection(item)}/{item['metadata']['name']}")
        eventually(lambda: not slot_added(plane.api), what="the policies are not applied any more")
        extender.until(lambda: "started" in extender.text(), what="the extender listens")
        try:
            for item in hooks:
                plane.api.create(item)
            yield
        finally:
            for item in hooks:
                plane.api.delete(f"{plane.api.collection(item)}/{item['metadata']['name']}")
            for item in policies:
                plane.api.create(item)
            eventually(lambda: in_force(plane.api), what="the policies are in force again")


@pytest.fixture(scope="module", params=["policy", "webhook"])
def api(request: pytest.FixtureRequest, plane: ControlPlane, installation: Installation) -> Iterator[Api]:
    by = webhooks_instead(installation) if request.param == "webhook" else contextlib.nullcontext()
    with by:
        eventually(lambda: in_force(plane.api), what="the rules are in force")
        yield plane.api


@pytest.mark.parametrize("case", MIB, ids=[case.id for case in MIB])
def test_verdict(api: Api, case: Case) -> None:
    answer = try_pod(api, case.manifest)
    if case.api_server:
        assert answer.status_code >= 400
        assert case.api_server in answer.json()["message"]
    elif case.refusals:
        assert answer.status_code == 422, answer.text
        for refusal in case.refusals:
            assert refusal in answer.json()["message"]
    else:
        assert answer.status_code == 201, answer.text
        assert warned(answer) == "; ".join(case.warnings)


def test_pods_of_the_system_are_left_alone(api: Api, request: pytest.FixtureRequest) -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default"},
        "automountServiceAccountToken": False,
    }
    api.ensure(account, namespace="kube-system")
    assert try_pod(api, WRONG.manifest, namespace="kube-system").status_code == 201
    # The pods that answer the webhooks have to start without them; for the rules nobody has to.
    is_exempt = request.node.callspec.params["api"] == "webhook"
    own = try_pod(api, WRONG.manifest, namespace="gpushare-system")
    assert own.status_code == (201 if is_exempt else 422)


def test_each_container_that_asks_gets_a_slot_and_the_pod_its_scheduler(api: Api) -> None:
    created = try_pod(api, pod_of("A7-containers-of-one-pod")).json()
    limits = [each["resources"].get("limits", {}) for each in created["spec"]["containers"]]
    assert [each.get(NAMES.slot) for each in limits] == [None, "1", None, "1"]
    assert created["spec"]["schedulerName"] == "gpushare-scheduler"


def test_whoever_named_a_scheduler_keeps_it(api: Api) -> None:
    asked = pod_of("V14-1e3")
    asked["spec"]["schedulerName"] = "other"
    assert try_pod(api, asked).json()["spec"]["schedulerName"] == "other"


def test_pods_that_ask_get_the_runtime_class_where_they_name_none(
    plane: ControlPlane, installation: Installation
) -> None:
    eventually(lambda: in_force(plane.api), what="the rules are in force")
    api = plane.api
    # The API server refuses names of classes that are not there.
    for name in ("nvidia", "kata"):
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
        api.ensure({**runtime, "metadata": {"name": name}})
    with_class = render({**VALUES, "admission": {"setRuntimeClassName": "nvidia"}})
    # Beside the release's own, which the webhooks may have replaced.
    policy = with_class.one("MutatingAdmissionPolicy", "gpushare-pods")
    binding = with_class.one("MutatingAdmissionPolicyBinding", "gpushare-pods")
    policy["metadata"]["name"] = binding["metadata"]["name"] = "gpushare-runtime"
    binding["spec"]["policyName"] = "gpushare-runtime"

    def runtime_of(case: str, **spec: str) -> str | None:
        asked = pod_of(case)
        answer = try_pod(api, {**asked, "spec": {**asked["spec"], **spec}})
        assert answer.status_code == 201, answer.text
        found: str | None = answer.json()["spec"].get("runtimeClassName")
        return found

    try:
        for item in (policy, binding):
            api.create(item)
        eventually(lambda: runtime_of("V14-1e3") == "nvidia", what="the policy adds it")
        assert runtime_of("V14-1e3", runtimeClassName="kata") == "kata"
        assert runtime_of("others-plain") is None
    finally:
        for item in (binding, policy):
            api.delete(f"{api.collection(item)}/gpushare-runtime")
        eventually(lambda: runtime_of("V14-1e3") is None, what="it adds it no more")
        for name in ("nvidia", "kata"):  # other tests need a cluster without them
            api.delete(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_a_workload_hears_at_apply_what_its_pods_will_be_refused_for(
    plane: ControlPlane, installation: Installation, kind: str
) -> None:
    eventually(lambda: in_force(plane.api), what="the rules are in force")
    item = workload(kind, WRONG.manifest)
    path = plane.api.collection(item, namespace="default")

    def told() -> str:
        answer = plane.api.ask("POST", path, item, params={"dryRun": "All"})
        assert answer.status_code == 201, answer.text
        return " ".join(answer.headers.get_list("warning"))

    eventually(lambda: f"its pods will be refused: {WRONG.refusals[0]}" in told(), what="the warning")
