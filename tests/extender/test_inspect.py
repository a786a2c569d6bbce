"""`inspect` as the extender serves it."""

from __future__ import annotations

import pytest

from gpushare import inspection
from gpushare.inspection import Inspection, inspect
from sandbox.apiserver import Rule
from tests.extender.cluster import PREFIX, Cluster, Scheduler
from tests.waiting import until

MODELS = [
    inspection.Inspection,
    inspection.InspectedNode,
    inspection.InspectedCard,
    inspection.InspectedPod,
    inspection.InspectedContainer,
    inspection.UnreadablePod,
    inspection.WaitingPod,
    inspection.ReasonCount,
]


async def test_the_streamed_answer_is_the_one_computed_from_the_ledger(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    for number in range(3):
        await cluster.node(f"n{number}", cards=[16384, 8192])
    await scheduler.seen_nodes("n0", "n1", "n2")
    pod = await cluster.pod("a", 3000)
    assert await scheduler.bind(pod, node="n1") == ""
    await scheduler.seen(pod["metadata"]["uid"])
    waiting = [await cluster.pod("large", 20000), await cluster.pod("odd", 3, slots=2)]
    extender = scheduler.extender
    await until(lambda: len(extender.waiting) == len(waiting), what="both are seen to wait")
    for path, only in ((f"{PREFIX}/inspect", None), (f"{PREFIX}/inspect/n1", "n1")):
        answer = await scheduler.http.get(f"{scheduler.url}{path}")
        assert answer.headers["Content-Type"] == "application/json"
        computed = inspect(extender.ledger, waiting=extender.waiting.values(), only=only)
        assert Inspection.model_validate_json(answer.content, strict=True) == computed
    assert {each["name"]: each["problem"] is None for each in answer.json()["waiting"]} == {
        "large": True,
        "odd": False,
    }


async def test_nothing_is_answered_before_both_watches_have_synced(cluster: Cluster) -> None:
    cluster.faults.add(Rule(action="answer", path="/api/v1/pods"))
    async with cluster.extender(synced=False) as scheduler:
        await until(scheduler.extender.reflectors[0].synced.is_set, what="nodes are synced")
        for path in (f"{PREFIX}/inspect", f"{PREFIX}/inspect/n1"):
            answer = await scheduler.http.get(f"{scheduler.url}{path}")
            assert answer.status_code == 503
            assert "/api/v1/pods not synced" in answer.json()["error"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
async def test_the_schema_describes_every_field(
    scheduler: Scheduler, model: type[inspection._Answer]
) -> None:
    schema = (await scheduler.http.get(f"{scheduler.url}/openapi.json")).json()
    described = schema["components"]["schemas"][model.__name__]["properties"]
    aliases = {field.alias for field in model.model_fields.values()}
    assert described.keys() == aliases
    for name, field in described.items():
        assert field.get("description"), f"{model.__name__}.{name} has no description"


async def test_the_schema_names_every_answer_of_both_paths(scheduler: Scheduler) -> None:
    schema = (await scheduler.http.get(f"{scheduler.url}/openapi.json")).json()
    for path, statuses in (
        (f"{PREFIX}/inspect", {"200", "503"}),
        (f"{PREFIX}/inspect/{{node}}", {"200", "404", "503"}),
    ):
        responses = schema["paths"][path]["get"]["responses"]
        assert responses.keys() == statuses
        for status, response in responses.items():
            name = "Inspection" if status == "200" else "Problem"
            assert response["content"]["application/json"]["schema"] == {
                "$ref": f"#/components/schemas/{name}"
            }
    (parameter,) = schema["paths"][f"{PREFIX}/inspect/{{node}}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"]) == ("node", "path")
    assert schema["components"]["schemas"]["Problem"]["properties"].keys() == {"error"}


async def test_the_schema_promises_no_status_that_is_never_answered(scheduler: Scheduler) -> None:
    schema = (await scheduler.http.get(f"{scheduler.url}/openapi.json")).json()
    for path, methods in schema["paths"].items():
        for method in methods.values():
            assert "422" not in method["responses"], path
