"""`--config FILE`: what it may say, what wins over it, and how its mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, field_validator, model_validator

from kubeapi.configfile import SettingsRefused
from kubeapi.settings import Settings, load, read


class Told(Settings):
    """A program's settings, for these tests."""

    node_name: str = "unnamed"
    """the node to serve"""
    slots: Annotated[int, Field(ge=1)] = 32
    """slots per card"""
    grace: float = 0.0
    """seconds to go on"""
    insecure: bool = False
    """serve anybody"""

    @field_validator("node_name")
    @classmethod
    def _is_short(cls, value: str) -> str:
        if len(value) > 20:
            raise ValueError("must be short")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Told:
        if self.insecure and self.slots == 13:
            raise ValueError("--insecure with --slots 13 is bad luck")
        return self


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "KUBECONFIG", "UNIT", "LOG_LEVEL", "NODE_NAME", "SLOTS", "GRACE", "INSECURE"):
        monkeypatch.delenv(f"GPUSHARE_{name}", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpushare.yaml"


def told(path: Path, text: str, *argv: str) -> Told:
    path.write_text(text)
    return read(Told, program="gpushare-told", argv=["--config", str(path), *argv])


def refused(path: Path, text: str, *argv: str) -> tuple[str, ...]:
    with pytest.raises(SettingsRefused) as caught:
        told(path, text, *argv)
    return caught.value.faults


def test_every_setting_can_stand_in_the_file_by_its_flags_name(path: Path) -> None:
    settings = told(
        path,
        "version: v1\nlog-level: debug\nnode-name: n1\nslots: 7\ngrace: 2\ninsecure: true\nkubeconfig: /k\n",
    )
    assert (settings.log_level, settings.node_name, settings.slots) == ("debug", "n1", 7)
    assert (settings.grace, settings.insecure, settings.kubeconfig) == (2.0, True, Path("/k"))


def test_flags_before_environment_before_file_before_defaults(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHARE_SLOTS", "2")
    monkeypatch.setenv("GPUSHARE_NODE_NAME", "of-environment")
    text = "version: v1\nslots: 3\nnode-name: of-file\ngrace: 3\ninsecure: true\n"
    settings = told(path, text, "--slots", "1", "--no-insecure")
    assert (settings.slots, settings.node_name, settings.grace) == (1, "of-environment", 3.0)
    assert settings.insecure is False
    assert settings.unit == "MiB"


def test_the_file_may_be_named_by_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("version: v1\nslots: 3\n")
    monkeypatch.setenv("GPUSHARE_CONFIG", str(path))
    assert read(Told, program="gpushare-told", argv=[]).slots == 3
    monkeypatch.setenv("GPUSHARE_CONFIG", "")
    assert read(Told, program="gpushare-told", argv=[]).slots == 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: v1\nslot: 3\n", ["unknown key 'slot'", "did you mean 'slots'?"]),
        ("version: v1\nlogLevel: debug\n", ["unknown key 'logLevel'", "did you mean 'log-level'?"]),
        ("version: v1\nnode_name: n1\n", ["unknown key 'node_name'", "did you mean 'node-name'?"]),
        ("version: v1\nconfig: /other\n", ["unknown key 'config'"]),
        ("version: v1\n7: x\n", ["unknown key 7", "known: grace, insecure, kubeconfig,"]),
        ("slots: 3\n", ["version is missing", "'version: v1'"]),
        ("", ["version is missing"]),
        ("version: v2\nslots: 3\n", ["version is 'v2'", "'version: v1'"]),
        ("version: v1\nslots: many\n", ["slots: ", "valid integer", "'many'"]),
        ("version: v1\nslots: '3'\n", ["slots: ", "valid integer", "'3'"]),
        ("version: v1\nslots: true\n", ["slots: ", "valid integer", "True"]),
        ("version: v1\nslots: 3.5\n", ["slots: ", "3.5"]),
        ("version: v1\nslots: 0\n", ["slots: ", "greater than or equal to 1", "0"]),
        ("version: v1\nslots:\n", ["slots: ", "None"]),
        ("version: v1\nslots: [3]\n", ["slots: ", "[3]"]),
        ("version: v1\ngrace: .nan\n", ["grace: "]),
        ("version: v1\nnode-name: 12\n", ["node-name: ", "valid string", "12"]),
        ("version: v1\nnode-name: 2026-11-29\n", ["node-name: ", "must be a text"]),
        ("version: v1\nnode-name: a-name-that-is-too-long\n", ["node-name: must be short"]),
        ("version: v1\nunit: MB\n", ["unit: ", "'MiB' or 'GiB'", "'MB'"]),
        ("version: v1\ninsecure: 1\n", ["insecure: ", "valid boolean"]),
        ("version: v1\nslots: 1\nslots: 2\n", ["key 'slots' stands twice", "line 3"]),
        ("version: v1\n? [a]\n: 1\n", ["is not YAML"]),
        ("- version\n", ["must be a mapping"]),
        ("version: v1\nslots: {\n", ["is not YAML", "line 3"]),
        ("version: v1\nnode-name: 2026-13-41\n", ["is not YAML"]),
        ("version: v1\nnode-name: !!python/name:os.system x\n", ["is not YAML"]),
    ],
    ids=lambda value: value.strip().replace("\n", " ")[:40] if isinstance(value, str) else "",
)
def test_a_mistake_is_named_with_key_and_file(path: Path, text: str, words: list[str]) -> None:
    (fault,) = refused(path, text)
    assert fault.startswith(f"{path}: ")
    assert [word for word in words if word not in fault] == []
    assert len(fault) < 600


def test_every_mistake_is_named_at_once(path: Path) -> None:
    faults = refused(path, "version: v1\nslot: 3\ngrace: x\n", "--unit", "MB")
    assert [fault.removeprefix(f"{path}: ").split(":")[0] for fault in faults] == [
        "unknown key 'slot'",
        "grace",
    ]


def test_a_bad_flag_is_not_blamed_on_the_file(path: Path) -> None:
    (fault,) = refused(path, "version: v1\nslots: 3\n", "--slots", "0")
    assert fault.startswith("--slots (or GPUSHARE_SLOTS): ")


def test_what_settings_do_not_like_together_is_said_without_a_place(path: Path) -> None:
    assert refused(path, "version: v1\nslots: 13\n", "--insecure") == (
        "--insecure with --slots 13 is bad luck",
    )


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "there"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00\x01\x80")
    with pytest.raises(SettingsRefused) as caught:
        read(Told, program="gpushare-told", argv=["--config", str(path)])
    (fault,) = caught.value.faults
    assert fault.startswith(f"{path}: ")


def test_the_program_ends_with_code_2_and_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("version: v1\nslot: 3\nslots: x\n")
    with pytest.raises(SystemExit) as ended:
        load(Told, program="gpushare-told", argv=["--config", str(path)])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"gpushare-told: {path}: ") for line in lines] == [True, True]
