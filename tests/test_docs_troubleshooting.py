"""docs/troubleshooting.md knows every check of the doctor and every alert of the chart."""

from __future__ import annotations

import re

import pytest
import yaml

from doctor.checks import CHECKS
from gpushare.refusals import Reason
from tests.documents import ROOT, anchors, rows, section

DOCUMENT = ROOT / "docs" / "troubleshooting.md"
RULES = yaml.safe_load((ROOT / "charts/gpushare/rules/gpushare.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
NAMES_OF_CHECKS = [check.name for check in CHECKS]


def test_every_check_of_the_doctor_has_its_row_in_its_order() -> None:
    listed = [row[0].strip("`") for row in rows(section(DOCUMENT, "## Checks"))]
    assert listed == NAMES_OF_CHECKS


def test_symptoms_name_only_checks_that_there_are() -> None:
    for symptom in rows(section(DOCUMENT, "## Symptoms").partition("### ")[0]):
        assert len(symptom) == 3, symptom
        named = re.findall(r"`([a-z-]+)`", symptom[1])
        assert set(named) <= set(NAMES_OF_CHECKS), symptom[0]


def test_every_check_that_can_fail_explains_a_symptom_or_refers_to_one() -> None:
    text = section(DOCUMENT, "## Symptoms") + section(DOCUMENT, "## Checks")
    assert [name for name in NAMES_OF_CHECKS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_leads_to_its_section(alert: dict[str, dict[str, str]]) -> None:
    path, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / path)


def test_every_alert_has_its_row_in_its_order() -> None:
    listed = rows(section(DOCUMENT, "## Alerts"))
    assert [re.findall(r"\[`(\w+)`\]", row[0])[0] for row in listed] == [rule["alert"] for rule in ALERTS]
    for row in listed:
        assert set(re.findall(r"`([a-z-]+)`", row[1])) <= set(NAMES_OF_CHECKS), row[0]


def test_the_ten_most_reported_symptoms_are_there() -> None:
    numbered = re.findall(r"^\| \*\*(\d+)\.\*\*", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert numbered == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(
    "reason", [Reason.NO_ROOM, Reason.TOO_LARGE, Reason.CLOSED], ids=lambda each: each.name
)
def test_reasons_are_quoted_as_the_extender_words_them(reason: Reason) -> None:
    assert str(reason) in DOCUMENT.read_text()


KUBELETS_OWN = (
    "no healthy devices present",
    "cannot allocate unregistered device",
    "previously allocated devices are no longer healthy",
)


def test_refusals_on_the_node_are_quoted_as_they_are_worded() -> None:
    sources = "".join(
        path.read_text() for folder in ("deviceplugin", "gpushare") for path in (ROOT / folder).glob("*.py")
    )
    for row in rows(section(DOCUMENT, "### UnexpectedAdmissionError")):
        for quoted in re.findall(r"`([^`]+)`", row[0]):
            parts = [part.strip() for part in quoted.split("…") if part.strip()]
            assert quoted.startswith(KUBELETS_OWN) or all(part in sources for part in parts), quoted
