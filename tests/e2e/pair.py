"""The chart's scheduler pair: kube-scheduler and the extender beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import yaml

from tests.chart.rendering import NAMESPACE as RELEASE_NAMESPACE
from tests.e2e import binaries
from tests.e2e.installation import Installation, read_yaml
from tests.e2e.programs import Program, free_port, own

ACCOUNT = "gpushare-scheduler"
DEPLOYMENT = ("Deployment", "gpushare-scheduler")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/leases/gpushare-scheduler"
PREFIX = "/gpushare-scheduler"


class Pair:
    """One replica of the Deployment."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.installation = installation
        self.name = name
        folder = installation.plane.folder / name
        folder.mkdir()
        kubeconfig = installation.kubeconfig(ACCOUNT)
        self.url = f"http://127.0.0.1:{free_port()}"
        """Where kube-scheduler asks the extender."""
        self.view = f"http://127.0.0.1:{free_port()}"
        verbs = installation.command(
            DEPLOYMENT,
            "extender",
            folder=folder,
            instead={
                "--listen": self.url.removeprefix("http://"),
                "--view-listen": self.view.removeprefix("http://"),
                "--kubeconfig": str(kubeconfig),
            },
        )
        self.extender = Program(
            f"{name}-extender", [own("gpushare-extender"), *verbs.arguments], folder=folder
        )
        decides = installation.command(
            DEPLOYMENT,
            "kube-scheduler",
            folder=folder,
            instead={
                "--bind-address": "127.0.0.1",
                "--secure-port": str(free_port()),
                "--authentication-kubeconfig": str(kubeconfig),
                "--authorization-kubeconfig": str(kubeconfig),
            },
        )
        (config,) = decides.files.values()
        document = read_yaml(config)
        document["clientConnection"] = {**document.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        for extender in document["extenders"]:
            extender["urlPrefix"] = extender["urlPrefix"].replace("http://127.0.0.1:39999", self.url)
        config.write_text(yaml.safe_dump(document))
        self.scheduler = Program(
            f"{name}-kube-scheduler",
            [binaries.require("kube-scheduler"), *decides.arguments],
            folder=folder,
        )

    @property
    def pre_stop(self) -> float:
        """Seconds that kubelet lets kube-scheduler go on when it ends the pod: the chart's preStop."""
        spec = self.installation.release.one(*DEPLOYMENT)["spec"]["template"]["spec"]
        (seconds,) = (
            each["lifecycle"]["preStop"]["sleep"]["seconds"]
            for each in spec["containers"]
            if each["name"] == "kube-scheduler"
        )
        return float(seconds)

    @property
    def leads(self) -> bool:
        return "successfully acquired lease" in self.scheduler.text().lower()

    def until_it_leads(self, *, seconds: float = 40.0) -> None:
        """Return once its extender answers and its kube-scheduler holds the Lease."""
        self.extender.until(self._answers, what="the extender is ready")
        self.scheduler.until(lambda: self.leads, what=f"{self.name} holds the lease", seconds=seconds)

    def verb(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the extender as kube-scheduler does."""
        answer = httpx.post(f"{self.url}{PREFIX}/{name}", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def inspect(self) -> dict[str, Any]:
        """Who is on which card, by the extender."""
        found: dict[str, Any] = httpx.get(f"{self.view}{PREFIX}/inspect").json()
        return found

    def used(self, node: str) -> list[int]:
        """Units in use of each card of a node, by the extender."""
        nodes = {each["name"]: each for each in self.inspect()["nodes"]}
        return [card["usedGPU"] for card in nodes[node]["devs"]]

    def stop(self) -> None:
        """End both at once; nothing is under way."""
        for program in (self.scheduler, self.extender):
            program.terminate()
        for program in (self.scheduler, self.extender):
            program.stop()

    def denied(self) -> list[str]:
        return [*self.extender.denied(), *self.scheduler.denied()]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.view}/readyz").status_code == 200
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def running_pair(installation: Installation, name: str) -> Iterator[Pair]:
    """Start a pair that leads; its rights are checked when it ends."""
    # An earlier pair's, which has not always been able to give it up: it would have to run out.
    installation.plane.api.delete(LEASE)
    pair = Pair(installation, name)
    try:
        pair.until_it_leads()
        yield pair
    except BaseException:
        print(pair.extender.tail(), pair.scheduler.tail(), sep="\n")
        raise
    finally:
        pair.stop()
    assert pair.denied() == [], "rights are missing"
