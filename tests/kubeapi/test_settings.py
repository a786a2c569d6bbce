"""What a program is told: flags before environment before defaults, and a plain word about bad ones."""

from pathlib import Path

import pytest
from pydantic import field_validator

from kubeapi.settings import Settings, load


class Told(Settings):
    """A program's settings, for these tests."""

    node_name: str
    """the node to serve"""
    slots: int = 32
    """slots per card"""

    @field_validator("slots")
    @classmethod
    def _is_positive(cls, value: int) -> int:
        if value < 1:
            raise ValueError("must be 1 or more")
        return value


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "RESOURCE", "UNIT", "LOG_LEVEL", "NODE_NAME", "SLOTS"):
        monkeypatch.delenv(f"GPUSHARE_{name}", raising=False)


def told(*argv: str) -> Told:
    return load(Told, program="gpushare-told", argv=argv)


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What the program says when it refuses to start, having ended with code 2."""
    with pytest.raises(SystemExit) as ended:
        told(*argv)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "gpushare-told: " in err
    assert "Traceback" not in err
    return err


def test_defaults() -> None:
    settings = told("--node-name", "n1")
    assert (settings.kubeconfig, settings.unit, settings.log_level, settings.slots) == (
        None,
        "MiB",
        "info",
        32,
    )
    assert settings.resource == settings.names.memory == "aliyun.com/gpu-mem"


def test_environment_before_defaults_and_flags_before_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_NODE_NAME", "from-environment")
    monkeypatch.setenv("GPUSHARE_SLOTS", "7")
    monkeypatch.setenv("GPUSHARE_KUBECONFIG", "/etc/environment.conf")
    settings = told("--slots", "9")
    assert (settings.node_name, settings.slots) == ("from-environment", 9)
    assert settings.kubeconfig == Path("/etc/environment.conf")
    assert told("--kubeconfig=/etc/flag.conf").kubeconfig == Path("/etc/flag.conf")


def test_an_empty_kubeconfig_is_none_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_KUBECONFIG", "")
    assert told("--node-name", "n1").kubeconfig is None
    assert told("--node-name", "n1", "--kubeconfig", "").kubeconfig is None


@pytest.mark.parametrize("value", ["123", "null", "true", '{"a": 1}', "[1]", "a,b"])
def test_a_text_stays_the_text_it_is(value: str) -> None:
    assert told("--node-name", value).node_name == value


def test_names_derive_from_the_resource() -> None:
    assert told("--node-name", "n1", "--resource", "example.com/mem").names.slot == "example.com/gpu-slot"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--slot", "1"], ["--slot"]),
        (["--unknown"], ["--unknown"]),
        (["stray"], ["stray"]),
        (["--slots"], ["--slots", "expected one argument"]),
        (["--slots", "many"], ["--slots", "GPUSHARE_SLOTS", "'many'"]),
        (["--slots", "0"], ["--slots", "must be 1 or more", "'0'"]),
        (["--log-level", "loud"], ["--log-level", "GPUSHARE_LOG_LEVEL", "'debug'", "'loud'"]),
        (["--unit", "MB"], ["--unit", "'MiB' or 'GiB'", "'MB'"]),
        (["--resource", "gpu-mem"], ["--resource", "'gpu-mem'", "domain/name"]),
        (["--resource", "m" * 100_000], ["--resource", "domain/name"]),
    ],
    ids=lambda value: " ".join(value)[:30],
)
def test_a_bad_flag_ends_the_program_with_code_2_and_its_name(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: list[str]
) -> None:
    said = complaint(capsys, "--node-name", "n1", *argv)
    assert [word for word in words if word not in said] == []
    assert len(said) < 1000


def test_every_bad_setting_is_named_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHARE_UNIT", "MB")
    said = complaint(capsys, "--slots", "x")
    assert len(said.splitlines()) == 3
    for flag in (
        "--unit (or GPUSHARE_UNIT)",
        "--slots (or GPUSHARE_SLOTS)",
        "--node-name (or GPUSHARE_NODE_NAME)",
    ):
        assert flag in said


def test_a_setting_that_must_be_given_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys) == "gpushare-told: --node-name (or GPUSHARE_NODE_NAME): must be given\n"


def test_help_lists_every_flag_with_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        told("--help")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for words in (
        "--kubeconfig",
        "--resource",
        "--unit",
        "--log-level",
        "--slots",
        "slots per card",
        "--node-name",
    ):
        assert words in said


def test_variables_of_others_are_none_of_our_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_SCHEDULER_PORT", "tcp://10.0.0.1:443")  # Kubernetes' service variables
    assert told("--node-name", "n1").slots == 32
