"""The demo as people run it, and whether it would notice if something were wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpushare.cards import Card
from sandbox.demo.board import PlacedPod, ShownNode
from sandbox.demo.processes import DemoError, Processes
from sandbox.demo.script import Expected, Story, sample_files
from sandbox.demo.verdict import Seen, faults
from tests.build import NAMES, pod
from tests.waiting import until

DEMO = Path(sysconfig.get_path("scripts")) / "gpushare-sandbox"
README = Path(__file__).parents[2] / "README.md"
Outcome = tuple[dict[str, Any], str]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """What one run printed: the JSON, and its progress."""
    # Foreign settings must not reach the demo's programs.
    environment = os.environ | {"GPUSHARE_POLICY": "spread", "http_proxy": "http://127.0.0.1:1"}
    ran = subprocess.run(
        [DEMO, "demo", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def test_every_pod_of_the_run_is_listed(outcome: Outcome) -> None:
    result, progress = outcome
    names = {item["name"].partition("-")[0] for item in result["pods"]}
    assert len(result["pods"]) == 13
    assert names == {"inference", "init", "two", "batch", "one", "spread", "exact"}
    assert [item["name"] for item in result["refused"]] == ["too-large"]
    for path in sample_files():
        assert f"samples/{path.name}" in progress
    assert "make demo KEEP=1 keeps them up" in progress.splitlines()[-1]


def test_containers_see_the_cards_that_their_pods_were_given(outcome: Outcome) -> None:
    result, _ = outcome
    cards = {(node["name"], card["index"]): card for node in result["nodes"] for card in node["cards"]}
    for item in result["pods"]:
        assert item["uuids"] == [cards[item["node"], index]["uuid"] for index in item["cards"]]
        sharing = {name: env for name, env in item["env"].items() if name != "logs"}
        assert sharing
        for env in sharing.values():
            assert env["NVIDIA_VISIBLE_DEVICES"] == ",".join(item["uuids"])
            assert env["ALIYUN_COM_GPU_MEM_POD"] == str(item["memory"])


def test_each_container_is_told_its_own_share(outcome: Outcome) -> None:
    pods = {item["name"]: item for item in outcome[0]["pods"]}

    def shares(name: str) -> dict[str, str | None]:
        found = pods[name]["env"].items()
        return {container: env.get("ALIYUN_COM_GPU_MEM_CONTAINER") for container, env in found}

    assert shares("two-containers") == {"model": "6138", "tokenizer": "2000", "logs": None}
    assert shares("init-container") == {"warm-up": "4069", "encoder": "1000", "main": "2000"}
    assert (pods["init-container"]["memory"], pods["two-cards"]["memory"]) == (4069, 12207)
    assert pods["two-cards"]["cards"] == [0, 1]


def test_booked_is_the_sum_of_the_pods_and_never_more_than_the_card(outcome: Outcome) -> None:
    result, _ = outcome
    for node in result["nodes"]:
        for card in node["cards"]:
            held = [
                item["memory"]
                for item in result["pods"]
                if item["node"] == node["name"] and card["index"] in item["cards"]
            ]
            assert card["booked"] == sum(held) <= card["memory"] == 16276
    assert [len(node["cards"]) for node in result["nodes"]] == [2, 2, 2, 4]


def test_the_scenarios_end_as_the_numbers_demand(outcome: Outcome) -> None:
    result, _ = outcome
    places = {item["name"]: (item["node"], item["cards"]) for item in result["pods"]}
    assert places["one-card-left"] == ("gpu-a", [1])
    assert places["exact-fit"] == ("gpu-d", [1])
    assert result["refused"][0]["reason"] == (
        "0/4 nodes are available: 1 GPU memory request is larger than any card of the node, "
        "3 Insufficient aliyun.com/gpu-mem."
    )


def test_samples_are_complete_objects_that_leave_to_admission_what_it_adds() -> None:
    for path in sample_files():
        for manifest in yaml.safe_load_all(path.read_text()):
            assert {"apiVersion", "kind", "metadata", "spec"} <= manifest.keys()
            spec = manifest["spec"].get("template", manifest)["spec"]
            assert spec["schedulerName"] == "gpushare-scheduler"
            for each in (*spec.get("initContainers", ()), *spec["containers"]):
                assert "env" not in each
                limits = each.get("resources", {}).get("limits", {})
                assert limits.get(NAMES.slot) in (None, 2)


async def test_kept_up_its_page_is_live_until_ctrl_c_which_is_a_good_end() -> None:
    demo = await asyncio.create_subprocess_exec(
        DEMO, "demo", "--keep", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    try:
        async with asyncio.timeout(50), httpx.AsyncClient() as http:
            while not (found := re.search(rb"stays up until Ctrl-C: (\S+)", await demo.stdout.readline())):
                pass
            assert "gpushare" in (await http.get(found[1].decode())).text
            told = re.search(rb"export KUBECONFIG=(\S+)", await demo.stdout.readline())
            assert told is not None
            table, remarks = await inspect_gpushare(kubeconfig=told[1].decode())
            assert table in README.read_text()
            assert remarks == "1 pod waits for GPU memory: -d says why\n", "the extender itself has answered"
            async with http.stream("GET", f"{found[1].decode()}events") as answer:
                lines = answer.aiter_lines()
                while "event: waiting" not in await anext(lines):
                    pass
                assert "too-large" in await anext(lines)
                demo.send_signal(signal.SIGINT)
                assert await demo.wait() == 0
    finally:
        if demo.returncode is None:
            demo.kill()
        _, said = await demo.communicate()
    assert said == b""


async def inspect_gpushare(*, kubeconfig: str) -> tuple[str, str]:
    """The table of `kubectl inspect gpushare`, without blanks at the ends of lines, and its remarks."""
    command = await asyncio.create_subprocess_exec(
        DEMO.with_name("kubectl-inspect-gpushare"),
        f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, remarks = await command.communicate()
    table = "".join(f"{line.rstrip()}\n" for line in printed.decode().splitlines() if line.strip())
    return table, remarks.decode()


# What the demo would say if something were wrong.

CARDS = tuple(Card(index=index, uuid=f"GPU-{index}", memory=16276) for index in range(2))
ENV = {
    "NVIDIA_VISIBLE_DEVICES": "GPU-1",
    NAMES.index: "1",
    NAMES.pod_memory: "4000",
    NAMES.container_memory: "4000",
    NAMES.card_memory: "16276",
}
BOUND = pod("a", memory=4000, on="n1", cards=[CARDS[1]])
PLACED = PlacedPod(
    namespace="default",
    name="a",
    node="n1",
    cards=(1,),
    memory=4000,
    phase="Running",
    refusal="",
    annotations=dict(BOUND.annotations),
    spec=BOUND.spec,
)
SEEN = Seen(
    nodes=[ShownNode(name="n1", cards=CARDS, is_ready=True)],
    pods=[PLACED],
    booked={"n1": {0: 0, 1: 4000}},
    environments={("default", "a"): {"main": ENV}},
)
STORY = Story(expected=(Expected(pod="a", node="n1", cards=(1,)),), sentences=(), pods=("a",))


def seen(**changes: Any) -> Seen:
    """The good ending with its pod changed."""
    return dataclasses.replace(SEEN, pods=[dataclasses.replace(PLACED, **changes)])


def started_with(**changes: str) -> Seen:
    """The good ending with its container's environment changed."""
    return dataclasses.replace(SEEN, environments={("default", "a"): {"main": ENV | changes}})


def test_a_good_ending_has_no_faults() -> None:
    assert faults(SEEN, story=STORY, names=NAMES) == []


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (started_with(NVIDIA_VISIBLE_DEVICES="GPU-0"), "NVIDIA_VISIBLE_DEVICES=GPU-0, not GPU-1"),
        (started_with(**{NAMES.container_memory: "1"}), "not 4000"),
        (dataclasses.replace(SEEN, environments={}), "main was not started"),
        (dataclasses.replace(SEEN, booked={"n1": {0: 4000, 1: 0}}), "the extender has booked 4000"),
        (dataclasses.replace(SEEN, pods=[]), "created were ['a'], there are []"),
        (seen(memory=3999), "asks for [4000] and was given 3999"),
        (seen(memory=20000), "card 1 has 16276 units and holds 20000"),
        (seen(cards=(0,)), "on n1 cards [0] instead of n1 cards [1]"),
        (seen(cards=(0, 1)), "asks for [4000] and was given 4000 on cards [0, 1]"),
        (seen(cards=(7,)), "was given ['GPU-1'], but cards [7] of n1 are others"),
        (seen(annotations={}), "default/a has no card allocation"),
        (seen(phase="Failed"), "does not run"),
        (seen(refusal="0/1 nodes are available"), "was refused"),
    ],
)
def test_whatever_is_wrong_is_said(ending: Seen, words: str) -> None:
    assert any(words in fault for fault in faults(ending, story=STORY, names=NAMES))


# No child outlives the demo.

START_A_CHILD = """
import sys, time
from pathlib import Path
from sandbox.demo.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    processes.start("api", "gpushare-sandbox", "api")
    print(processes.ids()["api"], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
async def test_children_end_with_the_demo_even_when_it_is_killed(tmp_path: Path, end: signal.Signals) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        START_A_CHILD,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_alive(child)
    parent.send_signal(end)
    await parent.wait()
    await until(lambda: not is_alive(child), what="the child has ended")


async def test_a_child_that_ends_is_named_and_its_last_words_are_shown(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("extender", "gpushare-extender", "--listen=nowhere")

        def has_ended() -> bool:
            try:
                processes.check()
            except DemoError as error:
                return str(error) == "extender ended with code 2"
            return False

        await until(has_ended, what="the child has ended")
        assert "--- extender\ngpushare-extender: --listen" in processes.tails()


def is_alive(process: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False
