"""What Kubernetes does to pods and nodes: defaults, refusals, priorities, gates and binding."""

from typing import Any

import httpx
import pytest

from tests.sandbox.calls import NODES, PODS, asking, bind, binding, create, patch, pod

GPU = "aliyun.com/gpu-mem"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def causes(response: httpx.Response) -> list[tuple[str, str]]:
    """Field and message of everything that was refused."""
    assert response.status_code == 422, response.text
    assert response.json()["reason"] == "Invalid"
    return [(cause["field"], cause["message"]) for cause in response.json()["details"]["causes"]]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("registry.example:5000/app", "Always"),
        ("registry.example:5000/app:2", "IfNotPresent"),
        ("app@sha256:0123", "IfNotPresent"),
    ],
)
async def test_pull_policy_follows_the_tag(client: httpx.AsyncClient, image: str, policy: str) -> None:
    created = await create(client, PODS, pod(containers=[{"name": "c", "image": image}]))
    assert created["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({"limits": {GPU: "1"}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        (
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}},
            "Guaranteed",
        ),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"memory": "1Mi"}}, "Burstable"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
    ],
)
async def test_qos_class(client: httpx.AsyncClient, resources: dict[str, Any], qos: str) -> None:
    assert (await create(client, PODS, asking(**resources)))["status"]["qosClass"] == qos


async def test_init_containers_get_the_same_defaults(client: httpx.AsyncClient) -> None:
    init = {
        "name": "i",
        "image": "x",
        "restartPolicy": "Always",
        "resources": {"limits": {GPU: 3000, "cpu": 0.5}},
    }
    created = await create(client, PODS, pod(initContainers=[init]))
    stored = created["spec"]["initContainers"][0]
    assert stored["resources"] == {
        "limits": {GPU: "3k", "cpu": "500m"},
        "requests": {GPU: "3k", "cpu": "500m"},
    }
    assert (stored["restartPolicy"], stored["terminationMessagePolicy"]) == ("Always", "File")


async def test_fields_that_say_nothing_are_not_stored(client: httpx.AsyncClient) -> None:
    container = {"name": "c", "image": "x", "env": [{"name": "A", "value": ""}], "resources": {"limits": {}}}
    empty: dict[str, Any] = {
        "nodeName": "",
        "nodeSelector": {},
        "hostNetwork": False,
        "priorityClassName": "",
        "volumes": [],
    }
    created = await create(client, PODS, pod(containers=[container], **empty))
    assert not set(empty) & set(created["spec"])
    stored = created["spec"]["containers"][0]
    assert (stored["env"], stored["resources"]) == ([{"name": "A"}], {})


async def test_ports_on_the_hosts_network_are_the_hosts_ports(client: httpx.AsyncClient) -> None:
    container = {"name": "c", "image": "x", "ports": [{"containerPort": 80}]}
    created = await create(client, PODS, pod(containers=[container], hostNetwork=True))
    assert created["spec"]["containers"][0]["ports"] == [
        {"hostPort": 80, "containerPort": 80, "protocol": "TCP"}
    ]


async def test_own_tolerations_of_a_lost_node_are_not_doubled(client: httpx.AsyncClient) -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    created = await create(client, PODS, pod(tolerations=[own]))
    keys = [toleration["key"] for toleration in created["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = await create(client, PODS, pod("q", tolerations=[{"operator": "Exists"}]))
    assert everything["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            {"limits": {GPU: "2"}, "requests": {GPU: "1"}},
            [("requests", f'Invalid value: "1": must be equal to {GPU} limit of 2')],
        ),
        (
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            [("requests", 'Invalid value: "2": must be less than or equal to cpu limit of 1')],
        ),
        (
            {"limits": {GPU: "-1"}},
            [
                (f"limits[{GPU}]", 'Invalid value: "-1": must be greater than or equal to 0'),
                (f"requests[{GPU}]", 'Invalid value: "-1": must be greater than or equal to 0'),
            ],
        ),
        (
            {"requests": {"gpu": "1"}},
            [
                (
                    "requests[gpu]",
                    'Invalid value: "gpu": must be a standard resource type or fully qualified',
                ),
                ("requests[gpu]", 'Invalid value: "gpu": must be a standard resource for containers'),
            ],
        ),
    ],
)
async def test_amounts_that_cannot_be(
    client: httpx.AsyncClient, resources: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    refused = await client.post(PODS, json=asking(**resources))
    assert causes(refused) == [(f"spec.containers[0].resources.{field}", text) for field, text in expected]


@pytest.mark.parametrize("amount", ["", "1 1", "a", True, [], {"a": 1}])
async def test_what_is_no_quantity_is_400(client: httpx.AsyncClient, amount: Any) -> None:
    refused = await client.post(PODS, json=asking(limits={GPU: amount}))
    assert (refused.status_code, refused.json()["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dash-", "a..b", "x" * 254, "é"])
async def test_names_are_dns_names(client: httpx.AsyncClient, name: str) -> None:
    refused = await client.post(PODS, json=pod(name))
    assert [field for field, _ in causes(refused)] == ["metadata.name"]


async def test_every_broken_rule_is_named(client: httpx.AsyncClient) -> None:
    manifest = pod(containers=[{"name": "A"}, {"name": "b", "image": "x"}, {"name": "b", "image": "x"}, {}])
    manifest["metadata"] = {"labels": {"a b": "c", "ok": "-"}, "annotations": {"/x": ""}}
    fields = [field for field, _ in causes(await client.post(PODS, json=manifest))]
    assert fields == [
        "metadata.name",
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.containers[2].name",
        "spec.containers[3].name",
        "spec.containers[3].image",
    ]
    assert causes(await client.post(PODS, json={"metadata": {"name": "p"}})) == [
        ("spec.containers", "Required value")
    ]


async def test_a_capital_letter_in_an_annotations_key_is_fine(client: httpx.AsyncClient) -> None:
    manifest = pod()
    manifest["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "1", "aliyun.com/gpu-allocation": "{}"}
    await create(client, PODS, manifest)


async def test_priority_comes_from_the_class(client: httpx.AsyncClient) -> None:
    await create(client, CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    high = (await create(client, PODS, pod("a", priorityClassName="high")))["spec"]
    assert (high["priority"], high["preemptionPolicy"]) == (1000, "Never")
    system = await create(client, PODS, pod("b", priorityClassName="system-node-critical"))
    assert system["spec"]["priority"] == 2_000_001_000
    refused = await client.post(PODS, json=pod("c", priorityClassName="none"))
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        'pods "c" is forbidden: no PriorityClass with name none was found',
    )
    assert (await client.post(PODS, json=pod("c", priority=5))).status_code == 403
    await create(client, CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    usual = (await create(client, PODS, pod("c")))["spec"]
    assert (usual["priority"], usual["priorityClassName"]) == (5, "usual")
    assert (await patch(client, f"{CLASSES}/high", {"value": 1})).status_code == 422


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec": {"containers": [{"name": "main", "image": "other:2"}]}}, 200),
        ({"spec": {"activeDeadlineSeconds": 5}}, 200),
        ({"spec": {"nodeName": "n1"}}, 422),
        ({"spec": {"schedulerName": "other"}}, 422),
        ({"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}, 422),
        ({"spec": {"containers": [{"name": "second", "image": "x"}]}}, 422),
        ({"spec": {"schedulingGates": [{"name": "late"}]}}, 422),
        ({"spec": {"tolerations": []}}, 200),  # they come back
        (
            {
                "spec": {
                    "tolerations": [
                        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
                    ]
                }
            },
            422,
        ),
        ({"metadata": {"labels": {"a": "b"}}}, 200),
    ],
)
async def test_a_pods_spec_is_fixed_but_for_a_few_fields(
    client: httpx.AsyncClient, change: dict[str, Any], code: int
) -> None:
    await create(client, PODS, pod())
    response = await patch(client, f"{PODS}/p", change, media_type="application/strategic-merge-patch+json")
    assert response.status_code == code, response.text
    if code == 422:
        assert response.json()["message"].startswith('Pod "p" is invalid: spec')


async def test_a_gated_pod_can_be_bound_once_its_gates_are_gone(client: httpx.AsyncClient) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    await create(client, PODS, pod(schedulingGates=gates))
    narrowed = {"spec": {"schedulingGates": gates[:1], "nodeSelector": {"a": "b"}}}
    assert (await patch(client, f"{PODS}/p", narrowed)).status_code == 200
    assert (await bind(client, "p")).status_code == 409
    opened = await patch(client, f"{PODS}/p", {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in opened.json()["spec"]
    assert (await bind(client, "p")).status_code == 201
    refused = await client.post(PODS, json=pod("q", nodeName="n", schedulingGates=gates))
    assert [field for field, _ in causes(refused)] == ["spec.nodeName"]


async def test_binding_merges_annotations_and_labels_in_one_write(client: httpx.AsyncClient) -> None:
    manifest = pod(labels={"app": "a"})
    manifest["metadata"]["annotations"] = {"kept": "1", "IDX": "forged"}
    created = await create(client, PODS, manifest)
    bound = await bind(
        client, "p", "n1", annotations={"IDX": "0"}, labels={"zone": "z"}, uid=created["metadata"]["uid"]
    )
    assert bound.status_code == 201
    found = (await client.get(f"{PODS}/p")).json()
    assert int(found["metadata"]["resourceVersion"]) == int(created["metadata"]["resourceVersion"]) + 1
    assert found["metadata"]["annotations"] == {"kept": "1", "IDX": "0"}
    assert found["metadata"]["labels"] == {"app": "a", "zone": "z"}
    assert found["spec"]["nodeName"] == "n1"


async def test_the_old_bindings_resource_binds_too(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    response = await client.post("/api/v1/namespaces/default/bindings", json=binding("p", "n1"))
    assert (response.status_code, response.json()["status"]) == (201, "Success")
    assert (await client.get(f"{PODS}/p")).json()["spec"]["nodeName"] == "n1"


async def test_a_pod_that_is_being_deleted_cannot_be_bound(client: httpx.AsyncClient) -> None:
    manifest = pod()
    manifest["metadata"]["finalizers"] = ["example.com/wait"]
    await create(client, PODS, manifest)
    await client.delete(f"{PODS}/p")
    refused = await bind(client, "p")
    assert (refused.status_code, refused.json()["message"]) == (
        409,
        'Operation cannot be fulfilled on pods/binding "p": '
        "pod p is being deleted, cannot be assigned to a host",
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"metadata": {"name": "other"}, "target": {"name": "n"}}, 400),
        ({"metadata": {"name": "p", "namespace": "kube-system"}, "target": {"name": "n"}}, 400),
        ({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n"}}, 422),
        ({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": ""}}, 422),
        ({"metadata": {"name": "p"}}, 422),
        ({"metadata": {"name": "p", "annotations": {"a": 1}}, "target": {"name": "n"}}, 400),
        ({"kind": "Pod", "metadata": {"name": "p"}, "target": {"name": "n"}}, 400),
        ([], 400),
        ("x", 400),
    ],
)
async def test_a_binding_that_makes_no_sense_is_refused_and_binds_nothing(
    client: httpx.AsyncClient, body: Any, code: int
) -> None:
    await create(client, PODS, pod())
    assert (await client.post(f"{PODS}/p/binding", json=body)).status_code == code
    assert "nodeName" not in (await client.get(f"{PODS}/p")).json()["spec"]


async def test_a_nodes_allocatable_starts_as_its_capacity_and_is_its_own_afterwards(
    client: httpx.AsyncClient,
) -> None:
    created = await create(client, NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 16}}})
    assert created["status"]["allocatable"] == created["status"]["capacity"] == {"cpu": "16"}
    change = {"status": {"capacity": {GPU: "49152"}}}
    changed = (await patch(client, f"{NODES}/n/status", change)).json()["status"]
    assert changed["capacity"] == {"cpu": "16", GPU: "49152"}
    assert changed["allocatable"] == {"cpu": "16"}
    refused = await patch(client, f"{NODES}/n/status", {"status": {"capacity": {GPU: "1.5"}}})
    assert causes(refused) == [(f"status.capacity.{GPU}", 'Invalid value: "1500m": must be an integer')]
    ignored = await patch(
        client, f"{NODES}/n", {"status": {"capacity": {"cpu": "1"}}, "spec": {"unschedulable": True}}
    )
    assert ignored.json()["spec"] == {"unschedulable": True}
    assert ignored.json()["status"] == changed
