"""The doctor at a cluster over HTTP: the real extender, the sandbox's API server, a front for the rest."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from doctor import cli
from doctor.findings import Status, Verdict
from doctor.rights import RIGHTS
from sandbox.apiserver.faults import Rule
from tests.build import NAMES
from tests.doctor.clinic import APPS, RUNTIME, Clinic
from tests.rights import use_of, uses

GPU = "gpushare-scheduler"


def unlike(found: dict[str, Verdict], status: Status = Status.OK) -> dict[str, str]:
    """What is not as it should be."""
    return {name: each.message for name, each in found.items() if each.status is not status}


def failing(found: dict[str, Verdict]) -> set[str]:
    return {name for name, each in found.items() if each.status is Status.FAIL}


async def bound(clinic: Clinic, name: str, memory: int = 4000, node: str = "n1") -> dict[str, Any]:
    pod = await clinic.cluster.pod(name, memory)
    assert not await clinic.scheduler.bind(pod, node=node)
    await clinic.scheduler.seen(pod["metadata"]["uid"])
    return pod


async def named(clinic: Clinic, name: str, *, scheduler: str = GPU, node: str | None = None) -> None:
    """A pod that asks for memory, as somebody without admission could make it."""
    admission = clinic.cluster.api.admission
    admission.mutating, mutating = None, admission.mutating
    admission.validating, validating = None, admission.validating
    container = {"name": "main", "image": "x", "resources": {"limits": {NAMES.memory: "1000"}}}
    spec = {"schedulerName": scheduler, "containers": [container]} | ({"nodeName": node} if node else {})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await clinic.cluster.request("POST", "/api/v1/namespaces/default/pods", body)
    admission.mutating, admission.validating = mutating, validating


async def test_a_cluster_in_which_all_is_well(clinic: Clinic) -> None:
    await bound(clinic, "a")
    found = await clinic.examine()
    # The webhook of the extender leaves the scheduler's name alone: the chart's policies set it.
    assert unlike(found).keys() <= {"admission-slot"}, unlike(found)
    assert found["unit"].message == "aliyun.com/gpu-mem counts MiB everywhere"
    assert found["node-cards"].message == "4 cards on 2 nodes"


async def test_I1_a_pod_that_passed_the_extender_by_is_named_with_the_cause(clinic: Clinic) -> None:
    await named(clinic, "stray", scheduler="default-scheduler", node="n1")
    await clinic.scheduler.shut("n1")
    found = await clinic.examine()
    assert failing(found) == {"pods-without-card", "nodes-closed"}
    (said,) = found["pods-without-card"].objects
    assert said == "default/stray on n1: bound by default-scheduler, which does not ask the extender"


async def test_I1_a_pod_that_nobody_schedules_is_named(clinic: Clinic) -> None:
    await named(clinic, "ours")
    await named(clinic, "theirs", scheduler="default-scheduler")
    clinic.renew(later=90)
    found = await clinic.examine(later=90)
    assert failing(found) == {"extender-called", "pods-scheduler"}
    assert found["extender-called"].objects == ("default/ours",)
    assert found["pods-scheduler"].objects == ("default/theirs: schedulerName default-scheduler",)


async def test_all_is_well_where_the_control_planes_own_kube_scheduler_asks(clinic: Clinic) -> None:
    await clinic.make_external()
    await named(clinic, "waits", scheduler="default-scheduler")
    found = await clinic.examine()
    assert unlike(found).keys() == {"scheduler-config", "scheduler-version"}
    assert {found[name].status for name in unlike(found)} == {Status.SKIP}


async def test_I1_there_too_a_call_that_fails_is_told_with_kube_schedulers_words(clinic: Clinic) -> None:
    await clinic.make_external()
    await named(clinic, "waits", scheduler="default-scheduler")
    said = 'Post "https://10.96.0.7:39999/…/filter": x509: certificate signed by unknown authority'
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": said}
    path = "/api/v1/namespaces/default/pods/waits/status"
    await clinic.cluster.patch(path, {"status": {"conditions": [condition]}})
    found = await clinic.examine()
    assert failing(found) == {"extender-called"}
    assert found["extender-called"].objects == (f"default/waits: {said}",)


async def test_a_device_plugin_without_its_runtime_class_has_no_pods_at_all(clinic: Clinic) -> None:
    (daemonset,) = clinic.front.lists[f"{APPS}/daemonsets"]
    counts = {"desiredNumberScheduled": 2, "currentNumberScheduled": 0, "numberReady": 0}
    clinic.front.lists[f"{APPS}/daemonsets"] = [{**daemonset, "status": counts}]
    assert "RuntimeClass" not in (await clinic.examine())["plugin-running"].message
    del clinic.front.objects[RUNTIME]
    found = (await clinic.examine())["plugin-running"]
    assert found.message.endswith("for 2 nodes no pod could be created, for there is no RuntimeClass nvidia")
    assert "devicePlugin.runtimeClassName=" in found.remedy


async def test_workloads_whose_pods_are_refused_are_named(clinic: Clinic) -> None:
    classless = 'Error creating: pods "c-" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    told = 'pods "web-" is forbidden: admission webhook "pods.gpushare-admission.svc" denied the request: no'
    for name, reason, message in (
        ("web", "FailedCreate", told),
        ("small", "FailedCreate", 'pods "small-" is forbidden: exceeded quota: cpu'),
        ("classless", "FailedCreate", classless),
        ("other", "FailedCreate", 'RuntimeClass "nvidia" not found'),
        ("late", "SuccessfulCreate", told),
    ):
        involved = {"kind": "Job", "namespace": "default", "name": name}
        about = {"involvedObject": involved, "reason": reason, "message": message, "type": "Warning"}
        body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.1"}}
        await clinic.cluster.request("POST", "/api/v1/namespaces/default/events", body | about)
    found = (await clinic.examine())["workloads-refused"]
    assert found.objects == (
        f"Job default/classless, 0 min ago: {classless}",
        "Job default/web, 0 min ago: no",
    )
    assert "see admission-slot" in found.remedy


async def test_where_nobody_answered_no_status_is_told(clinic: Clinic) -> None:
    clinic.front.view = None
    said = (await clinic.examine())["unit"].message
    assert "the extender's inspect is not to be seen" in said
    assert "connection refused" in said
    assert "seen: 0 " not in said


@pytest.mark.parametrize("namespace", ["kube-system", "gpushare-system"])
async def test_a_namespace_that_admission_leaves_alone_tells_nothing_of_it(
    clinic: Clinic, namespace: str
) -> None:
    clinic.cluster.api.admission.mutating = clinic.cluster.api.admission.validating = None
    clinic.subject = replace(clinic.subject, probe_namespace=namespace)
    found = await clinic.examine()
    for check in ("admission-slot", "admission-refusal"):
        assert found[check].status is Status.SKIP, found[check]
        assert f"leaves the namespace {namespace} alone" in found[check].message


async def test_calls_of_kube_scheduler_are_counted_by_the_extenders_metrics(clinic: Clinic) -> None:
    pod = await clinic.cluster.pod("huge", 20000)
    await named(clinic, "waits")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    path = "/api/v1/namespaces/default/pods/waits/status"
    await clinic.cluster.patch(path, {"status": {"conditions": [condition]}})
    clinic.renew(later=90)
    before = (await clinic.examine(later=90))["extender-called"]
    await clinic.scheduler.filter(pod, nodes=["n1", "n2"])
    after = (await clinic.examine(later=90))["extender-called"]
    assert (before.status, before.objects) == (Status.WARN, ("default/waits: no room",))
    assert (after.status, after.message) == (Status.OK, "2 filter calls so far; 1 pod waiting")  # of two pods


async def test_an_extender_that_does_not_answer(clinic: Clinic) -> None:
    clinic.front.view = None
    found = await clinic.examine()
    assert {"extender-reachable", "extender-ready"} <= failing(found)
    assert "connection refused" in found["extender-reachable"].message


async def test_an_extender_that_is_not_ready_says_why(clinic: Clinic) -> None:
    clinic.cluster.faults.add(Rule(action="answer", status=403, path="/pods", client="unsynced"))
    async with clinic.cluster.extender(synced=False, client="unsynced") as other:
        clinic.front.view = other.url
        found = await clinic.examine()
    assert found["extender-reachable"].status is Status.OK
    assert found["extender-ready"].status is Status.FAIL
    assert "pods" in found["extender-ready"].objects[0]


async def test_the_extender_can_be_asked_without_the_proxy(clinic: Clinic) -> None:
    clinic.front.forbidden = [("GET", "/proxy")]
    hidden = await clinic.examine()
    assert hidden["extender-reachable"].status is Status.SKIP
    clinic.subject = replace(clinic.subject, extender_url=clinic.scheduler.url)
    found = await clinic.examine()
    assert found["extender-ready"].message == f"ready: {clinic.scheduler.url}"
    assert found["unit"].status is Status.OK


async def test_the_release_is_found_in_whatever_namespace(clinic: Clinic) -> None:
    lists = clinic.front.lists
    for plural in ("deployments", "daemonsets"):
        (found,) = lists[f"{APPS}/{plural}"]
        lists[f"{APPS}/{plural}"] = [{**found, "metadata": {**found["metadata"], "namespace": "elsewhere"}}]
    clinic.subject = replace(clinic.subject, namespace=None)
    found = await clinic.examine()
    assert found["extender-running"].message.startswith("Deployment elsewhere/gpushare-scheduler: 2 of 2")


@pytest.mark.parametrize(
    ("admission", "check", "status"),
    [
        ("mutating", "admission-slot", Status.FAIL),
        ("validating", "admission-refusal", Status.WARN),
    ],
)
async def test_admission_is_tried_and_not_believed(
    clinic: Clinic, admission: str, check: str, status: Status
) -> None:
    setattr(clinic.cluster.api.admission, admission, None)
    found = await clinic.examine()
    assert found["admission-installed"].status is Status.OK  # the objects are there
    assert found[check].status is status


async def test_a_webhook_that_cannot_be_called_stops_every_pod(clinic: Clinic) -> None:
    clinic.cluster.api.admission.mutating = "http://127.0.0.1:9/admission/mutate"
    found = await clinic.examine()
    assert {"admission-slot", "admission-refusal"} <= failing(found)


async def test_nothing_stays_of_the_trial_pods(clinic: Clinic) -> None:
    before = clinic.cluster.api.objects("pods")
    await clinic.examine()
    assert clinic.cluster.api.objects("pods") == before


@pytest.mark.parametrize(
    ("method", "part", "right"),
    [
        ("GET", "/api/v1/nodes", "list nodes"),
        ("GET", "/api/v1/pods", "list pods -A"),
        ("GET", f"{APPS}/daemonsets", "list daemonsets.apps -A"),
        ("GET", "/api/v1/events", "list events -A"),
        ("GET", "/configmaps", "get configmaps -n gpushare-system"),
        ("GET", "/leases", "get leases.coordination.k8s.io -n gpushare-system"),
        ("GET", "/proxy", "get pods --subresource=proxy -n gpushare-system"),
        ("POST", "/namespaces/default/pods", "create pods -n default"),
    ],
)
async def test_a_missing_right_is_named_and_hides_only_what_it_hides(
    clinic: Clinic, method: str, part: str, right: str
) -> None:
    clinic.front.forbidden = [(method, part)]
    found = await clinic.examine()
    assert not failing(found)
    skipped = [each.remedy for each in found.values() if each.status is Status.SKIP]
    assert f"needs the right: kubectl auth can-i {right}" in skipped
    assert len(skipped) < len(found)


async def test_I4_the_doctor_uses_its_rights_and_no_others(clinic: Clinic) -> None:
    await clinic.cluster.pod("waits", 20000)  # then it looks at the metrics too
    await clinic.examine()
    used = {
        use_of(method=method, path=path.partition("/proxy/")[0] + ("/proxy" if "/proxy/" in path else ""))
        for method, path in clinic.front.asked
        if path != "/version"  # which everybody may read
    }
    assert used == uses(RIGHTS)


class TestCommand:
    async def run(self, clinic: Clinic, *flags: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "doctor.cli", "--kubeconfig", str(clinic.kubeconfig), *flags]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def test_says_one_line_a_check_and_ends_with_0_where_nothing_failed(self, clinic: Clinic) -> None:
        code, out, err = await self.run(clinic)
        assert (code, err) == (0, "")
        assert "OK    extender-ready" in out
        assert out.endswith("fail, 0 skip\n")

    async def test_ends_with_1_and_says_what_to_do_where_something_failed(self, clinic: Clinic) -> None:
        await named(clinic, "stray", node="n1")
        code, out, _ = await self.run(clinic)
        assert code == 1
        assert "FAIL  pods-without-card" in out
        assert "      - default/stray on n1" in out
        assert "      → delete them" in out

    async def test_json_lists_every_check(self, clinic: Clinic) -> None:
        code, out, _ = await self.run(clinic, "--output", "json")
        assert code == 0
        values = json.loads(out)
        assert {frozenset(each) for each in values} == {
            frozenset({"check", "status", "message", "remedy", "objects"})
        }
        assert {each["status"] for each in values} <= {"OK", "WARN"}

    async def test_a_namespace_without_the_release_fails(self, clinic: Clinic) -> None:
        code, out, _ = await self.run(clinic, "--namespace", "elsewhere")
        assert code == 1
        assert "FAIL  extender-running" in out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--kubeconfig", "/nowhere"], "/nowhere is not usable: no such file"),
        (["--resource", "gpu-mem"], "domain/name"),
        (["--output", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_bad_flags_end_with_2(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_api_server_out_of_reach_ends_with_2(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["--kubeconfig", str(config)])
    assert ended.value.code == 2
    assert "out of reach" in capsys.readouterr().err
