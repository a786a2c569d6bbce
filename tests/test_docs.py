"""The documents' commands run as written, and what they name is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.chart.promql import METRICS
from tests.documents import (
    DOCUMENTS,
    LANGUAGES,
    ROOT,
    Block,
    Command,
    anchors,
    blocks,
    commands,
    links,
    spans,
)

BIN = Path(sys.executable).parent
by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)

NOT_OURS = {
    # Flags that the documents name in prose, and whose they are.
    "--config": "kube-scheduler",
    "--policy-config-file": "kube-scheduler",
    "--pod-max-in-unschedulable-pods-duration": "kube-scheduler",
    "--memory-unit": "the classic device plugin",
    "--gpu-memory-utilization": "vLLM",
    "--gpu-reset": "nvidia-smi",
    "--no-hooks": "helm uninstall",
    "--set-as-default": "nvidia-ctk",
    "--wait": "helm",
    "--replicas": "kubectl scale",
    "--strict": "mypy",
}
PROGRAMS = tuple(re.findall(r"^([\w-]+) = \"[\w.]+:main\"$", (ROOT / "pyproject.toml").read_text(), re.M))


@cache
def flags_of(program: str, *subcommand: str) -> frozenset[str]:
    """What a program's own help names."""
    done = subprocess.run(
        [BIN / program, *subcommand, "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]+", done.stdout))


def all_flags() -> frozenset[str]:
    subcommands = [
        ("gpushare-extender", "scheduler-config"),
        *(("gpushare-sandbox", each) for each in ("api", "node", "scheduler", "demo")),
    ]
    known = [flags_of(program) for program in PROGRAMS]
    return frozenset().union(*known, *(flags_of(*each) for each in subcommands))


# Blocks.


@by_name
def test_every_block_says_what_it_is(document: Path) -> None:
    assert [
        f"{block}: ```{block.language}" for block in blocks(document) if block.language not in LANGUAGES
    ] == []


def runnable() -> list[Block]:
    """`console` blocks, but those of make targets: each target has tests of its own, or is the tests."""
    found = [block for document in DOCUMENTS for block in blocks(document, "console")]
    return [block for block in found if not all(c.text.startswith("make") for c in commands(block))]


@pytest.mark.parametrize("block", runnable(), ids=str)
def test_a_console_block_runs_and_prints_what_it_shows(block: Block, tmp_path: Path) -> None:
    """In a folder that has what the repository has; a block that shows no output may print what it likes."""
    for path in ("charts", "docs", "samples", "scheduler-policy.json"):
        if (ROOT / path).exists():
            (tmp_path / path).symlink_to(ROOT / path)
    steps = commands(block)
    script = "\n".join(["set -m", *(step.text.replace(".venv/bin", str(BIN)) for step in steps), "wait"])
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        env=environment,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert "command not found" not in said, said
    expected = "".join(step.output for step in steps)
    if expected:
        shown = [line for line in done.stdout.splitlines() if not line.startswith("API server ready")]
        assert "".join(shown) == expected.replace("\n", ""), said
    else:
        assert done.returncode == 0, said


@pytest.mark.parametrize(
    "block", [block for document in DOCUMENTS for block in blocks(document, "sh")], ids=str
)
def test_a_block_for_a_cluster_is_shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_shows_the_table_that_the_demo_prints() -> None:
    done = subprocess.run([BIN / "gpushare-sandbox", "demo"], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if line[:1] in "┏┃┡│├└"]
    readme = [line for line in (ROOT / "README.md").read_text().splitlines() if line and line[0] in "┏┃┡│├└"]
    assert [anonymous(line) for line in readme] == [anonymous(line) for line in table]


def anonymous(line: str) -> str:
    """Without the random end of a pod's name."""
    return re.sub(r"inference-[a-z0-9]{5}", "inference-*****", line)


# Names.


@by_name
def test_make_targets_and_paths_that_documents_name_exist(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b(?= *(?:#|`|$))", text, flags=re.MULTILINE)) <= targets
    folders = (
        "gpushare|kubeapi|extender|deviceplugin|doctor|inspector|sandbox|tests|docs|proto|samples|charts"
    )
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@by_name
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@by_name
def test_flags_that_documents_name_exist(document: Path) -> None:
    """In prose a flag may be of any program of ours; after a program's name it must be that one's."""
    known = all_flags() | NOT_OURS.keys()
    unknown = [
        flag
        for span in spans(document)
        if not re.match(r"(kubectl|helm|nvidia-smi|make|kind|docker) ", span)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)
        if flag not in known
    ]
    unknown += [f"{command}: {flag}" for command in our_commands(document) for flag in foreign_flags(command)]
    assert unknown == []


def our_commands(document: Path) -> list[Command]:
    every = [each for block in blocks(document, "console", "sh", "text") for each in commands(block)]
    return [each for each in every if program_of(each)]


def program_of(command: Command) -> str:
    """Which of our programs a command runs, if any."""
    for word in command.text.split():
        name = word.removeprefix(".venv/bin/")
        if name in PROGRAMS:
            return name
        if "=" not in word:
            return ""
    return ""


def foreign_flags(command: Command) -> list[str]:
    program = program_of(command)
    words = shlex.split(command.text, comments=True)
    words = words[next(place for place, word in enumerate(words) if word.endswith(program)) + 1 :]
    subcommand = tuple(word for word in words[:1] if re.fullmatch(r"[a-z][a-z-]+", word))
    known = flags_of(program, *subcommand)
    named = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [flag for flag in named if flag not in known]


@by_name
def test_helm_values_that_documents_name_exist(document: Path) -> None:
    values = yaml.safe_load((ROOT / "charts/gpushare/values.yaml").read_text())
    named = [
        match[1]
        for span in spans(document)
        if (match := re.match(rf"((?:{'|'.join(values)})(?:\.\w+)+)(?:[:=]|$)", span))
    ]
    assert [path for path in named if not exists(path, values)] == []


def exists(path: str, values: object) -> bool:
    """Whether a dotted path is in the chart's values; below an empty or free mapping everything is."""
    for key in path.split("."):
        if not isinstance(values, dict):
            return False
        if key not in values:
            return not values
        values = values[key]
    return True


@by_name
def test_metrics_that_documents_name_are_exported(document: Path) -> None:
    named = set(re.findall(r"\bgpushare_[a-z_]+[a-z]\b", document.read_text()))
    whole = {re.sub("_(bucket|count|sum)$", "", name) if name not in METRICS else name for name in named}
    assert whole - METRICS.keys() == set()
