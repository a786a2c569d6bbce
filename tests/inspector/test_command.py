"""The command, against an API server and an extender on real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from gpushare.inspection import Inspection
from inspector.cli import parse, run
from sandbox.apiserver import Rule
from tests.extender.cluster import PREFIX, Cluster, Scheduler
from tests.inspector.conftest import publish
from tests.inspector.front import Front
from tests.kubeapi.scripted import kubeconfig
from tests.waiting import until

COMMAND = Path(sys.executable).parent / "kubectl-inspect-gpushare"
COMPUTED = "computing from the API server's nodes and pods instead"


class Person:
    """Somebody who types the command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def types(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run the command; standard output and standard error."""
        found = await run(parse(arguments))
        out, errors = self._capsys.readouterr()
        assert found == code, errors
        return out, errors


@pytest.fixture
def person(capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(capsys)


async def populate(cluster: Cluster, scheduler: Scheduler) -> None:
    """Two nodes; a pod on the second card of n1, and one that waits."""
    await cluster.node("n1", cards=[8192, 16384])
    await cluster.node("n2", cards=[24576])
    await scheduler.seen_nodes("n1", "n2")
    pod = await cluster.pod("a", 9000)
    assert await scheduler.bind(pod, node="n1") == ""
    await scheduler.seen(pod["metadata"]["uid"])
    await cluster.pod("large", 30000)
    await until(lambda: len(scheduler.extender.waiting) == 1, what="one is seen to wait")


TABLE = """\
NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(MiB)
n1    unknown    0/8192                 9000/16384             9000/24576
n2    unknown    0/24576                0/0                    0/24576
------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
9000/49152 (18%)  
"""  # noqa: W291
WAITS = "1 pod waits for GPU memory: -d says why\n"


async def test_the_extender_is_asked_through_the_api_servers_proxy(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    reachable.asked.clear()
    assert await person.types() == (TABLE, WAITS)
    assert [path for path in reachable.asked if "/proxy/" not in path] == ["/api/v1/services"]


async def test_every_way_gives_the_same_answer(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    for arguments in (("-o", "json"), ("-o", "json", "n2"), ("-o", "json", "n2", "n1")):
        reachable.refusal = None
        asked, remark = await person.types(*arguments)
        assert remark == ""
        reachable.refusal = 403
        computed, remark = await person.types(*arguments)
        assert COMPUTED in remark
        assert computed == asked
    assert [node["name"] for node in json.loads(asked)["nodes"]] == ["n2", "n1"]
    assert json.loads(asked)["waiting"][0]["reasons"] == [
        {"reason": "GPU memory request is larger than any card of the node", "nodes": 2}
    ]


NOBODY = "no gpushare extender found in gpushare-system (give -n where it is installed)"


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (403, "service gpushare-system/gpushare-scheduler answered 403: services"),
        (404, NOBODY),
        (503, "no gpushare extender answers in gpushare-system (services"),
    ],
)
async def test_where_the_extender_is_not_to_be_had_the_lists_serve(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person, refusal: int, told: str
) -> None:
    await populate(cluster, scheduler)
    reachable.refusal = refusal
    table, remarks = await person.types()
    assert table == TABLE
    assert remarks.startswith(told)
    assert remarks.splitlines()[0].endswith(f"; {COMPUTED}")


async def test_an_installed_extender_that_is_down_is_not_called_missing(
    cluster: Cluster, front: Front, person: Person
) -> None:
    await cluster.node("n1", cards=[100])
    await publish(cluster, url=None, name="gpushare-extender")
    down = 'no gpushare extender answers in gpushare-system (no endpoints available for service "{}")'
    assert down.format("gpushare-extender") in (await person.types())[1]


async def test_whoever_may_neither_ask_nor_list_is_told_both_reasons(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    reachable.refusal = 403
    cluster.faults.add(Rule(action="answer", path="^/api/v1/nodes$", client=COMMAND.name, status=403))
    out, errors = await person.types(code=1)
    assert out == ""
    first, second = errors.splitlines()
    assert first.startswith("error: service gpushare-system/gpushare-scheduler answered 403: ")
    assert second.startswith("error: nor can it be computed from nodes and pods: API server answered 403 ")


async def test_an_extender_that_has_not_synced_is_not_believed(
    cluster: Cluster, front: Front, person: Person
) -> None:
    await cluster.node("n1", cards=[100])
    cluster.faults.add(Rule(action="answer", path="/api/v1/pods", client="gpushare-extender"))
    async with cluster.extender(synced=False) as scheduler:
        await publish(cluster, url=scheduler.url)
        table, remarks = await person.types()
        assert "n1" in table
        assert "not synced" in remarks


async def test_an_older_extender_is_not_misread(
    cluster: Cluster, front: Front, person: Person, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[100])
    await publish(cluster, url=front.url)
    table, remarks = await person.types()
    assert "n1" in table
    assert "cannot be read" in remarks


async def test_the_service_is_found_by_its_labels_or_by_namespace(
    cluster: Cluster, scheduler: Scheduler, front: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    await publish(cluster, url=scheduler.url, namespace="elsewhere", name="gpushare-extender")
    assert NOBODY in (await person.types())[1]
    assert (await person.types("-n", "elsewhere"))[1] == WAITS
    labels = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "extender"}
    service = "/api/v1/namespaces/elsewhere/services/gpushare-extender"
    await cluster.patch(service, {"metadata": {"labels": labels}})
    assert (await person.types())[1] == WAITS


async def test_a_node_that_does_not_exist_is_an_error(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    expected = ("", 'error: node "ghost" not found\n')
    assert await person.types("ghost", code=1) == expected
    assert await person.types("n1", "ghost", code=1) == expected
    reachable.refusal = 403
    assert await person.types("n1", "ghost", code=1) == expected


async def test_another_resource_than_the_extenders_is_computed(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    table, remarks = await person.types("--resource", "example.org/gpu-mem")
    assert table.splitlines()[0] == "NAME  IPADDRESS  GPU Memory"
    assert "the extender counts aliyun.com/gpu-mem, not example.org/gpu-mem" in remarks
    assert "no node shares cards as example.org/gpu-mem" in remarks
    assert (await person.types("--resource", "aliyun.com/gpu-mem"))[0] == TABLE


async def test_json_and_yaml_are_the_extenders_answer(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    answer = (await scheduler.http.get(f"{scheduler.url}{PREFIX}/inspect")).json()
    assert json.loads((await person.types("-o", "json"))[0]) == answer
    assert yaml.safe_load((await person.types("-o", "yaml"))[0]) == answer
    assert Inspection.model_validate(answer).nodes[0].name == "n1"


async def test_details_and_nodes_may_stand_in_any_order(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    shown, _ = await person.types("n1", "-d", "n1")
    assert shown.count("NAME:") == 1
    assert "main=9000" in shown
    assert shown == (await person.types("-d", "n1"))[0]


async def test_wide_shows_what_the_plugins_say_is_in_use(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    sample = 'gpushare_plugin_card_used_bytes{node="n1",card="1",uuid="GPU-n1-1"} 5.24288e+08\n'
    reachable.metrics["n1", "plugin-1"] = f"# TYPE gpushare_plugin_card_used_bytes gauge\n{sample}other 1\n"
    reachable.metrics["n2", "plugin-2"] = ""
    shown, remarks = await person.types("-o", "wide")
    rows = {tuple(line.split()[:3]): line.split() for line in shown.splitlines()[1:4]}
    assert rows["n1", "unknown", "1"][-2:] == ["500", "MiB"]
    assert rows["n1", "unknown", "0"][-2:] == ["-", "MiB"]
    assert rows["n2", "unknown", "0"][-2:] == ["-", "MiB"]
    assert remarks == (
        "memory in use is not known everywhere: pod gpushare-system/plugin-2: "
        "API server answered 503 Unknown: no answer from the pod\n"
    )
    reachable.metrics["n2", "plugin-2"] = 'gpushare_plugin_card_used_bytes{uuid="x'
    assert "plugin-2" in (await person.types("-o", "wide"))[1]


async def test_an_api_server_out_of_reach_is_an_error(
    person: Person, tmp_path: Path, unused_tcp_port: int
) -> None:
    path = kubeconfig(tmp_path / "k", server=f"http://127.0.0.1:{unused_tcp_port}")
    _, errors = await person.types("--kubeconfig", str(path), code=1)
    assert errors.startswith("error: API server http://127.0.0.1")
    assert errors.count("out of reach") == 1
    _, errors = await person.types("--kubeconfig", str(tmp_path / "gone"), code=1)
    assert "no such file" in errors
    _, errors = await person.types("--kubeconfig", str(path), "--context", "prod", code=1)
    assert "prod" in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "csv"], "invalid choice"),
        (["-d", "-o", "wide"], "leave out -o wide"),
        (["--interval", "0"], "more than 0"),
        (["--interval", "nan"], "more than 0"),
        (["--resource", "gpu"], "domain/name"),
        (["../x"], "'../x' cannot be a node's name"),
        (["a/b?c"], "cannot be a node's name"),
        (["n1\n"], "cannot be a node's name"),
        (["a" * 254], "cannot be a node's name"),
        (["-n", "../../x"], "'../../x' cannot be a namespace's name"),
        (["-n", ""], "cannot be a namespace's name"),
        (["-n", "a.b"], "cannot be a namespace's name"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


async def test_watching_prints_again_when_something_changed_and_ends_on_ctrl_c(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, capfd: pytest.CaptureFixture[str]
) -> None:
    await populate(cluster, scheduler)
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        "--watch",
        "--interval",
        "0.05",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = await asyncio.wait_for(process.stdout.readexactly(len(TABLE)), 20)
    assert first.decode() == TABLE, "no terminal, no control characters"
    seen = len(reachable.asked)
    await until(lambda: len(reachable.asked) > seen + 3, what="it has looked again")
    await cluster.delete("a")
    again = await asyncio.wait_for(process.stdout.readuntil(b"%)  \n"), 20)
    assert again.decode().startswith("\nNAME")
    assert again.decode().endswith("0/49152 (0%)  \n")
    reachable.refusal = 503
    await until(lambda: "/api/v1/nodes" in reachable.asked, what="it has fallen back")
    process.send_signal(signal.SIGINT)
    rest, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert b"Traceback" not in errors
    assert rest.count(b"NAME") <= 1, "the same table again, for the sake of the remark"


async def test_watching_goes_on_when_the_api_server_is_away_for_a_while(
    cluster: Cluster, scheduler: Scheduler, reachable: Front
) -> None:
    await populate(cluster, scheduler)
    process = await asyncio.create_subprocess_exec(
        COMMAND, "-w", "--interval", "0.05", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert await asyncio.wait_for(process.stdout.readexactly(len(TABLE)), 20)
    behind, reachable.behind, reachable.refusal = reachable.behind, "http://127.0.0.1:1", 503
    while b"error: " not in await asyncio.wait_for(process.stderr.readline(), 20):
        pass
    reachable.behind, reachable.refusal = behind, None
    await cluster.delete("a")
    assert await asyncio.wait_for(process.stdout.readuntil(b"0/49152 (0%)  \n"), 20)
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0


async def test_watching_a_node_that_does_not_exist_ends_at_once(
    cluster: Cluster, scheduler: Scheduler, reachable: Front, person: Person
) -> None:
    await populate(cluster, scheduler)
    assert await person.types("-w", "ghost", code=1) == ("", 'error: node "ghost" not found\n')


async def test_whoever_has_read_enough_may_leave(
    cluster: Cluster, scheduler: Scheduler, reachable: Front
) -> None:
    await populate(cluster, scheduler)
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        COMMAND, "-w", "--interval", "0.05", stdout=writing, stderr=asyncio.subprocess.PIPE
    )
    os.close(writing)
    assert await asyncio.to_thread(os.read, reading, 4) == b"NAME"
    os.close(reading)
    await cluster.delete("a")
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert b"Traceback" not in errors


async def test_on_a_terminal_watching_redraws_the_screen(
    cluster: Cluster, scheduler: Scheduler, reachable: Front
) -> None:
    await populate(cluster, scheduler)
    terminal, shown_on = os.openpty()
    process = await asyncio.create_subprocess_exec(
        COMMAND, "-w", "--interval", "0.05", stdout=shown_on, stderr=asyncio.subprocess.PIPE
    )
    os.close(shown_on)

    def read_until(end: bytes) -> bytes:
        seen = b""
        while not seen.endswith(end):
            seen += os.read(terminal, 1)
        return seen.replace(b"\r\n", b"\n")

    clear = b"\x1b[H\x1b[2J"
    assert await asyncio.to_thread(read_until, b"(18%)  \r\n") == clear + TABLE.encode()
    await cluster.delete("a")
    assert (await asyncio.to_thread(read_until, b"(0%)  \r\n")).startswith(clear + b"NAME")
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.communicate(), 20)
    os.close(terminal)
    assert process.returncode == 0
