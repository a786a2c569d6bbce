"""`gpushare-device-plugin` as a process: bad settings, start, end, memory."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deviceplugin.cli import PROGRAM, main
from deviceplugin.settings import PluginSettings
from kubeapi.settings import load
from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.pods import NODE

GOOD = "cards:\n- {uuid: GPU-0, memory: 16000}\n"


def settings(*argv: str) -> PluginSettings:
    return load(PluginSettings, program=PROGRAM, argv=argv)


def ended(*argv: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    return caught.value.code


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    file = tmp_path / "cards.yaml"
    file.write_text(GOOD)
    return file


def test_defaults() -> None:
    given = settings("--node-name", "n1")
    assert (given.kubelet_dir, given.cards, given.slots) == (Path("/var/lib/kubelet"), "nvml", 32)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NODE_NAME": "common"}, "common"),
        ({"NODE_NAME": "common", "GPUSHARE_NODE_NAME": "ours"}, "ours"),
    ],
)
def test_the_node_name_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], expected: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert settings().node_name == expected
    assert settings("--node-name", "flag").node_name == "flag"


def test_a_missing_node_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended() == 2
    assert "--node-name (or GPUSHARE_NODE_NAME): the node's name is needed" in capsys.readouterr().err


@pytest.mark.parametrize("slots", ["0", "-1", "many", "1025"])
def test_slots_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str], slots: str) -> None:
    assert ended("--node-name", "n1", "--slots", slots) == 2
    assert "--slots" in capsys.readouterr().err


def test_a_bad_cards_file_is_refused_with_file_line_and_reason(
    capsys: pytest.CaptureFixture[str], cards: Path
) -> None:
    cards.write_text("cards:\n- {uuid: a, memory: 1}\n- {uuid: a, memory: 1}\n")
    assert ended("--node-name", "n1", "--cards", str(cards)) == 2
    assert f"{cards}:3: uuid 'a' is that of the card in line 2 too" in capsys.readouterr().err


def test_an_unusable_kubeconfig_is_refused(capsys: pytest.CaptureFixture[str], cards: Path) -> None:
    assert ended("--node-name", "n1", "--cards", str(cards), "--kubeconfig", str(cards / "none")) == 2
    assert "kubeconfig" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["9449", ":9449", "host:port", "127.0.0.1:99999"])
def test_an_address_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert ended("--node-name", "n1", "--metrics-listen", address) == 2
    assert "--metrics-listen (or GPUSHARE_METRICS_LISTEN): must read HOST:PORT" in capsys.readouterr().err


def test_I3_a_taken_address_is_refused_with_its_port(capsys: pytest.CaptureFixture[str], cards: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert ended("--node-name", "n1", "--cards", str(cards), "--metrics-listen", address) == 2
    assert f"cannot listen on {address}: Address already in use" in capsys.readouterr().err


async def test_it_runs_and_ends_on_sigterm(one_node: Cluster) -> None:
    one_node.write_cards({"uuid": "GPU-0", "memory": 16000})
    arguments = {
        "--node-name": NODE,
        "--kubeconfig": one_node.server.kubeconfig(one_node.folder / "kubeconfig"),
        "--kubelet-dir": one_node.folder,
        "--cards": one_node.cards_file,
        "--metrics-listen": "127.0.0.1:0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-m", "deviceplugin.cli"),
        *(str(word) for pair in arguments.items() for word in pair),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: one_node.slots_known() == 32, what=lambda: process.returncode)
        assert resident_mib(process.pid) <= 120
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(3):
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, log.decode()
    assert "Traceback" not in log.decode()
    assert not list((one_node.folder / "device-plugins").glob("*slot.sock"))


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
