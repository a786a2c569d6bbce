"""The dashboard and the alerts: they ask for what the programs export, and say what to do."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import metrics
from tests.chart import promql
from tests.chart.rendering import CHART, NAMESPACE, Object, render

Json = dict[str, Any]

DASHBOARD: Json = json.loads((CHART / "dashboards" / "gpushare.json").read_text())
RULES = CHART / "rules" / "gpushare.yaml"
ALERTS: list[Json] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
CASES = Path(__file__).with_name("alerts.yaml")
DOCUMENT = Path(__file__).parents[2] / "docs" / "monitoring.md"

ALL = {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboard": {"enabled": True}}
_VARIABLES = {"$__rate_interval": "2m", "$node": ".*", "$ask": "8"}


def panels() -> Iterator[Json]:
    """Every panel, those in closed rows too."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


GRAPHS = [panel for panel in panels() if panel["type"] != "row"]
QUERIES = [
    pytest.param(panel, target, id=f"{panel['title']}-{target['refId']}")
    for panel in GRAPHS
    for target in panel["targets"]
]


def filled(expression: str) -> str:
    """An expression with Grafana's variables replaced, as Prometheus gets it."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


# What is asked.


@pytest.mark.parametrize(("panel", "target"), QUERIES)
def test_a_panel_asks_for_what_is_exported(panel: Json, target: Json) -> None:
    labels = promql.labels(filled(target["expr"]))
    named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert named <= labels, f"{panel['title']}: its legend names labels that the series do not have"


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_an_alert_asks_for_what_is_exported_and_says_what_to_do(alert: Json) -> None:
    labels = promql.labels(alert["expr"])
    assert alert["labels"]["severity"] in {"warning", "critical"}
    texts = alert["annotations"]
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values())))
    assert named <= labels, "its text names labels that the series do not have"
    assert texts.keys() == {"summary", "description", "runbook"}
    assert "{{" not in texts["summary"], (
        "a summary is the same for all of its kind, so that they can be grouped"
    )
    assert texts["runbook"] == f"docs/monitoring.md#{alert['alert'].lower()}"


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("gpushare_card_bytes", "exported by nobody"),
        ("gpushare_request_duration_seconds", "is a histogram"),
        ("sum by (nod) (gpushare_card_booked_bytes)", "no label nod"),
        ('gpushare_card_booked_bytes{pode="a"}', "has no label pode"),
        ("rate(gpushare_card_booked_bytes[5m])", "no counter"),
        ("sum by (node) (gpushare_card_booked_bytes) / gpushare_card_memory_bytes", "never match"),
        ("gpushare_waiting_pods unless on (node) gpushare_active", "no label node"),
        (
            "histogram_quantile(0.9, sum by (verb) (rate(gpushare_request_duration_seconds_bucket[5m])))",
            "without le",
        ),
    ],
)
def test_what_nobody_exports_is_found_out(expression: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        promql.labels(expression)


def test_everything_that_the_extender_says_of_cards_and_pods_is_shown() -> None:
    asked = " ".join(target["expr"] for panel in GRAPHS for target in panel["targets"])
    unseen = {each.name for each in metrics.CATALOGUE if each.name not in asked}
    assert unseen == set()


# The dashboard's form.


def test_panels_have_ids_and_titles_of_their_own() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    titles = [(panel["type"], panel["title"]) for panel in panels()]
    assert len(titles) == len(set(titles))
    assert all(panel["description"] for panel in GRAPHS)


def test_no_panel_lies_on_another() -> None:
    places: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, f"{panel['title']} is wider than the grid"
        own = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert own, f"{panel['title']} has no room"
        assert not own & places, f"{panel['title']} lies on another panel"
        places |= own


def test_closed_rows_hold_their_panels_and_open_ones_none() -> None:
    for row in (panel for panel in DASHBOARD["panels"] if panel["type"] == "row"):
        assert bool(row["panels"]) == row["collapsed"], row["title"]


def test_every_query_goes_to_the_data_source_that_is_chosen() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["node"]["datasource"] == chosen
    assert promql.labels(variables["node"]["query"]["query"].removeprefix("label_values(").split(",")[0])
    for panel in GRAPHS:
        assert panel["datasource"] == chosen, panel["title"]
        assert panel["targets"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]
        assert all(target["datasource"] == chosen and target["expr"] for target in panel["targets"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used == variables.keys() | {"__rate_interval", "__all"}


# The chart.


def monitoring(**parts: Mapping[str, Any]) -> list[Object]:
    kinds = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"}
    objects = render({"monitoring": parts}).objects
    return [
        each
        for each in objects
        if each["kind"] in kinds and (each["kind"] != "ConfigMap" or "gpushare.json" in each["data"])
    ]


def test_nothing_of_it_is_there_unless_asked_for() -> None:
    assert monitoring() == []


def test_the_dashboard_arrives_as_it_is_where_grafana_looks() -> None:
    (config,) = monitoring(
        dashboard={"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "GPUs"}}
    )
    assert json.loads(config["data"]["gpushare.json"]) == DASHBOARD
    assert config["metadata"]["namespace"] == "grafana"
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"grafana_folder": "GPUs"}


def test_the_rules_arrive_as_they_are() -> None:
    (rule,) = monitoring(rules={"enabled": True, "labels": {"release": "prometheus"}})
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("mode", ["pair", "external"])
def test_monitors_find_the_programs_and_keep_their_labels(mode: str) -> None:
    values = {
        "scheduler": {"mode": mode},
        "monitoring": {"serviceMonitor": {"enabled": True, "interval": "1m"}},
    }
    release = render(values)
    component = {"pair": "scheduler", "external": "extender"}[mode]
    (of_service,) = release.of("ServiceMonitor")
    service = release.one("Service", f"gpushare-{component}")
    (endpoint,) = of_service["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert of_service["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (of_pods,) = release.of("PodMonitor")
    template = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]
    (pods,) = of_pods["spec"]["podMetricsEndpoints"]
    ports = [port["name"] for box in template["spec"]["containers"] for port in box.get("ports", [])]
    assert pods["port"] in ports
    assert of_pods["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    for scraped in (endpoint, pods):
        assert scraped["honorLabels"], "`namespace` and `pod` of container_memory_bytes are the container's"
        assert scraped["interval"] == "1m"


def test_a_cluster_without_our_device_plugin_has_no_monitor_of_it() -> None:
    release = render({"devicePlugin": {"enabled": False}, "monitoring": ALL})
    assert release.of("PodMonitor") == []


# What fires when.


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    firing = set(re.findall(r'alertname="(\w+)"', CASES.read_text()))
    assert firing == {alert["alert"] for alert in ALERTS}


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(CASES)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_documentation_has_a_heading_for_every_alert() -> None:
    headings = set(re.findall(r"^#+ (\w+)$", DOCUMENT.read_text(), flags=re.MULTILINE))
    assert {alert["alert"] for alert in ALERTS} <= headings
