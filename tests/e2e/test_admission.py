"""The rules for new pods, as a real API server applies the chart's policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.admission_cases import CASES, Case
from tests.build import NAMES
from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.programs import eventually

PODS = "/api/v1/namespaces/default/pods"
MIB = [case for case in CASES if case.unit == "MiB"]


def try_pod(api: Api, manifest: Mapping[str, Any]) -> httpx.Response:
    """What the API server says to it; nothing is kept."""
    return api.ask("POST", PODS, manifest, params={"dryRun": "All"})


def warned(answer: httpx.Response) -> str:
    """What kubectl shows as warnings: the Warning headers (RFC 7234), without the policy's name."""
    texts = [re.fullmatch(r'299 - "(.*)"', each) for each in answer.headers.get_list("warning")]
    assert all(texts)
    return "; ".join(text.group(1).partition("'gpushare-warnings': ")[2] for text in texts if text)


@pytest.fixture(scope="module")
def api(plane: ControlPlane, installation: Installation) -> Api:
    """Once all policies are in force: the API server takes a moment to read each."""

    def all_in_force() -> bool:
        wrong = next(case for case in MIB if case.refusals and not case.api_server)
        added = try_pod(plane.api, MIB[1].manifest).json()
        dubious = next(case for case in MIB if case.warnings and not case.refusals)
        return (
            NAMES.slot
            in added.get("spec", {}).get("containers", [{}])[0].get("resources", {}).get("limits", {})
            and try_pod(plane.api, wrong.manifest).status_code == 422
            and warned(try_pod(plane.api, dubious.manifest)) != ""
        )

    eventually(all_in_force, what="the policies are in force")
    return plane.api


@pytest.mark.parametrize("case", MIB, ids=[case.id for case in MIB])
def test_verdict(api: Api, case: Case) -> None:
    answer = try_pod(api, case.manifest)
    if case.api_server:
        assert answer.status_code >= 400
        assert case.api_server in answer.json()["message"]
        return
    if not case.refusals:
        assert answer.status_code == 201, answer.text
        assert warned(answer) == "; ".join(case.warnings)
        return
    assert answer.status_code == 422, answer.text
    for refusal in case.refusals:
        assert refusal in answer.json()["message"]


def test_pods_of_the_system_are_left_alone(api: Api, installation: Installation) -> None:
    wrong = next(case for case in MIB if case.id.startswith("V13") and case.refusals)
    path = "/api/v1/namespaces/kube-system/pods"
    api.ensure(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "kube-system"},
            "automountServiceAccountToken": False,
        }
    )
    assert api.ask("POST", path, wrong.manifest, params={"dryRun": "All"}).status_code == 201
