"""The Dockerfile, as far as it can be read: it is of what the wheel needs, and the chart can run it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import render

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORE = (ROOT / ".dockerignore").read_text()


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_the_wheel_is_made_of_is_let_into_the_image_and_nothing_else(project: Any) -> None:
    lines = [line for line in IGNORE.splitlines() if line and not line.startswith("#")]
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [project["project"]["readme"], *project["project"]["license-files"]]

    assert lines[0] == "*"
    assert let_in == {"pyproject.toml", "constraints.txt", *packages, *files}
    assert all((ROOT / name).exists() for name in let_in)


def test_its_python_is_one_that_the_project_is_for(project: Any) -> None:
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)
    oldest = project["project"]["requires-python"].removeprefix(">=")
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert version(python) >= version(oldest)
    # A virtual environment runs with the Python that made it.
    assert bases == ["python:${PYTHON}-slim"] * 2


def test_dependencies_are_the_pinned_ones() -> None:
    assert re.search(r"PIP_CONSTRAINT=\S*constraints\.txt", DOCKERFILE)


def test_every_command_of_the_chart_is_a_program_of_the_project(project: Any) -> None:
    release = render({"scheduler": {"mode": "pair"}}, kubernetes="1.30")
    commands = {
        container["command"][0]
        for _, spec in release.pod_specs()
        for container in spec["containers"]
        if container["command"] != ["kube-scheduler"]
    }

    assert commands == {"gpushare-extender", "gpushare-device-plugin"}
    assert commands <= project["project"]["scripts"].keys()


def test_it_runs_as_the_user_that_the_chart_runs_it_as() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    pod = render().one("Deployment", "gpushare-scheduler")["spec"]["template"]["spec"]["securityContext"]

    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
