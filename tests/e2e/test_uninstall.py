"""What `helm uninstall` leaves on the nodes: nothing of ours."""

from __future__ import annotations

import pytest

from tests.build import NAMES
from tests.e2e.api import Object
from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.programs import Program, own
from tests.e2e.workload import add_node

pytestmark = pytest.mark.usefixtures("clean")

ACCOUNT = "gpushare-uninstall"
JOB = ("Job", ACCOUNT)


def test_the_charts_job_takes_annotation_and_capacities_off_every_node(
    plane: ControlPlane, installation: Installation
) -> None:
    api = plane.api
    for name in ("n1", "n2"):
        add_node(api, name, cards=[16000, 8000])
    for item in installation.release.objects:
        if item["metadata"]["name"] == ACCOUNT and item["kind"] not in ("Job", "NetworkPolicy"):
            api.ensure(item, namespace="gpushare-system")
    (container,) = installation.release.one(*JOB)["spec"]["template"]["spec"]["containers"]
    instead = {"--kubeconfig": str(installation.kubeconfig(ACCOUNT))}
    command = installation.command(JOB, container["name"], folder=plane.folder, instead=instead)
    with Program(
        "uninstall", [own("gpushare-device-plugin"), *command.arguments], folder=plane.folder
    ) as program:
        assert program.wait(60) == 0, program.tail()

    def ours(node: Object) -> set[str]:
        return {NAMES.cards, NAMES.memory, NAMES.count} & {
            *node["metadata"].get("annotations", {}),
            *node["status"]["capacity"],
        }

    assert [ours(api.get(f"/api/v1/nodes/{name}")) for name in ("n1", "n2")] == [set(), set()]
