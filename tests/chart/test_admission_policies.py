"""The admission policies in CEL: the same table as the extender's rules, the same sentences."""

from __future__ import annotations

import base64
import functools
import json

import pytest

from extender.admission import Additions, mutate
from tests.admission_cases import ADDED, CASES, SCHEDULER, Added, Case, Pod
from tests.build import NAMES
from tests.chart.policies import Policies, creation
from tests.chart.rendering import Values, render


def policies(values: Values | None = None) -> Policies:
    return _policies(json.dumps(values or {}))


@functools.cache
def _policies(values: str) -> Policies:
    return Policies(render(json.loads(values)))


@pytest.mark.parametrize("case", [case for case in CASES if not case.api_server], ids=lambda case: case.id)
def test_the_policies_say_what_the_extender_says(case: Case) -> None:
    request = creation(case.pod)
    chart = policies({"resource": {"unit": case.unit}})
    refused = chart.refusals(request)
    warned = chart.refusals(request, policy="gpushare-warnings")
    assert refused == (["; ".join(case.refusals)] if case.refusals else [])
    assert "; ".join(warned) == "; ".join(case.warnings)


@pytest.mark.parametrize("added", ADDED, ids=lambda added: added.id)
@pytest.mark.parametrize("scheduler", [SCHEDULER, ""], ids=["named", "unnamed"])
@pytest.mark.parametrize("mode", ["slots", "units"])
def test_both_modes_add_the_same(added: Added, mode: str, scheduler: str) -> None:
    chart = policies({"devicePlugin": {"mode": mode}, "admission": {"setSchedulerName": bool(scheduler)}})
    wanted = added.patch(slots=mode == "slots", scheduler=scheduler)
    assert chart.patch(creation(added.pod)) == wanted
    additions = Additions(slots=mode == "slots", scheduler=scheduler)
    assert by_the_extender(added.pod, additions=additions) == wanted


def by_the_extender(pod: Pod, *, additions: Additions) -> list[dict[str, str]]:
    review = {"request": {"uid": "u", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod}}
    answer = mutate(json.dumps(review).encode(), names=NAMES, additions=additions)
    patch = json.loads(answer)["response"].get("patch")
    decoded: list[dict[str, str]] = json.loads(base64.b64decode(patch)) if patch else []
    return decoded
