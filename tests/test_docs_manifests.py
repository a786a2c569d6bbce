"""YAML and Helm commands in the documents: manifests are valid, values are ones that the chart takes."""

from __future__ import annotations

import ast
import copy
import itertools
import shlex
from collections.abc import Iterator
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml

from extender.podrules import PodRules, ReviewedPod
from tests.build import NAMES
from tests.chart.rendering import NEWEST, render
from tests.documents import DOCUMENTS, ROOT, Block, Command, blocks, commands

YAML = [block for document in DOCUMENTS for block in blocks(document, "yaml")]
PYTHON = [block for document in DOCUMENTS for block in blocks(document, "python")]


def helm_commands() -> Iterator[Command]:
    """`helm install` and `helm upgrade` of our chart, as far as they are written out."""
    for document in DOCUMENTS:
        for block in blocks(document, "sh", "console"):
            for command in commands(block):
                if command.text.startswith(("helm install", "helm upgrade")):
                    yield command


HELM = list(helm_commands())


def objects(block: Block) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(block.text) if each is not None]


def test_the_documents_show_manifests_and_helm_commands() -> None:
    assert YAML
    assert HELM


@pytest.mark.parametrize("block", YAML, ids=str)
def test_yaml_in_documents_is_what_it_seems(block: Block) -> None:
    """A Kubernetes object, the settings of a program (`version: v1`), or values of the chart."""
    found = objects(block)
    assert found
    for each in found:
        if "kind" in each:
            kubernetes_validate.validate(copy.deepcopy(each), f"1.{NEWEST}", strict=True)
        elif each.get("version") != "v1":
            render(each)


@pytest.mark.parametrize("block", YAML, ids=str)
def test_pods_in_documents_would_be_admitted_without_a_warning(block: Block) -> None:
    for each in objects(block):
        if each.get("kind") == "Pod":
            pod = msgspec.convert(each, ReviewedPod, strict=False)
            verdict = PodRules(names=NAMES, unit="MiB").judge(pod)
            assert (verdict.refusals, verdict.warnings) == ((), ())


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_in_documents_parses(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("command", HELM, ids=str)
def test_the_chart_takes_the_values_of_helm_commands(command: Command) -> None:
    words = shlex.split(command.text, comments=True)
    values: dict[str, Any] = {}
    for flag, argument in itertools.pairwise(words):
        if flag in ("--values", "-f"):
            values |= yaml.safe_load((ROOT / argument).read_text())
        elif flag == "--set":
            path, equals, value = argument.partition("=")
            assert equals, f"{argument} is no KEY=VALUE"
            _put(path.split("."), yaml.safe_load(value), into=values)
    assert "charts/gpushare" in words, "the chart is named as it lies in the repository"
    release = render(values)
    assert release.objects


def _put(path: list[str], value: object, *, into: dict[str, Any]) -> None:
    for key in path[:-1]:
        into = into.setdefault(key, {})
    into[path[-1]] = value
