"""The documents' commands run as written, and what they say is there is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def console_blocks(document: Path) -> list[str]:
    return re.findall(r"```console\n(.*?)```", document.read_text(), flags=re.DOTALL)


def test_the_readmes_session_with_the_sandbox_runs_as_written(tmp_path: Path) -> None:
    (session,) = [block for block in console_blocks(ROOT / "README.md") if "gpushare-sandbox api" in block]
    bin_folder = str(Path(sys.executable).parent)
    commands = [
        line[2:].replace(".venv/bin", bin_folder) for line in session.splitlines() if line[:2] == "$ "
    ]
    expected = [line for line in session.splitlines() if line[:2] != "$ "]
    script = "\n".join(["set -m", *commands, "wait"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    shown = [line for line in done.stdout.splitlines() if not line.startswith("API server ready")]
    assert "".join(shown) == "".join(expected), done.stderr


def test_the_readme_shows_the_table_that_the_demo_prints() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "gpushare-sandbox", "demo"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if line[:1] in "┏┃┡│├└"]
    readme = [line for line in (ROOT / "README.md").read_text().splitlines() if line and line[0] in "┏┃┡│├└"]
    assert [anonymous(line) for line in readme] == [anonymous(line) for line in table]


def anonymous(line: str) -> str:
    """Without the random end of a pod's name."""
    return re.sub(r"inference-[a-z0-9]{5}", "inference-*****", line)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_and_paths_that_documents_name_exist(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b(?= *(?:#|`|$))", text, flags=re.MULTILINE)) <= targets
    named = re.findall(
        r"`((?:gpushare|kubeapi|extender|deviceplugin|sandbox|tests|docs|proto|samples)/[\w./-]*)`", text
    )
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    missing = [path for path in named if not (ROOT / path).exists()]
    missing += [path for path in linked if not (document.parent / path).exists()]
    assert missing == []
