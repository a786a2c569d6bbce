"""How containers get their cards: the device list strategies, device nodes, and the settings for them."""

from pathlib import PurePosixPath

import pytest

from deviceplugin.answers import answer_for
from deviceplugin.cli import PROGRAM
from deviceplugin.errors import PodError
from deviceplugin.handover import Handover, Strategy
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.pods import NodePod
from deviceplugin.settings import PluginSettings
from gpushare.names import VISIBLE_DEVICES
from kubeapi.settings import load
from tests.deviceplugin.cluster import Cluster
from tests.deviceplugin.pods import NAMES, C, bound, card

CARDS = (card(0), card(1))
POD = bound("a", C(memory=3000), cards=[card(1)])
TWO = bound("a", C(memory=3000, slots=2), cards=[card(1), card(0)])
CLASSIC = {NAMES.index: "1", NAMES.pod_memory: "3000", NAMES.container_memory: "3000"}
COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm")
NODES = {"GPU-0": ("/dev/nvidia1",), "GPU-1": ("/dev/nvidia0",)}


def given(handover: Handover, pod: NodePod = POD) -> v1beta1.ContainerAllocateResponse:
    answer = answer_for(pod, container="main", cards=CARDS, names=NAMES)
    return handover.response(answer, pod=pod, container="main", device_nodes=lambda uuid: NODES.get(uuid, ()))


def by(*strategies: Strategy, **more: object) -> Handover:
    return Handover(strategies=frozenset(strategies), common_nodes=lambda: COMMON, **more)  # type: ignore[arg-type]


def test_envvar_lists_the_uuids_and_nothing_else() -> None:
    response = given(Handover(), TWO)
    assert response.envs[VISIBLE_DEVICES] == "GPU-1,GPU-0"
    assert not [*response.mounts, *response.devices, *response.cdi_devices, *response.annotations]


def test_volume_mounts_name_each_card_by_a_mount_of_dev_null() -> None:
    response = given(by(Strategy.VOLUME_MOUNTS), TWO)
    assert response.envs[VISIBLE_DEVICES] == "/var/run/nvidia-container-devices"
    assert [(mount.host_path, mount.container_path) for mount in response.mounts] == [
        ("/dev/null", "/var/run/nvidia-container-devices/GPU-1"),
        ("/dev/null", "/var/run/nvidia-container-devices/GPU-0"),
    ]


def test_cdi_cri_names_each_card_in_kubelets_own_field() -> None:
    response = given(by(Strategy.CDI_CRI), TWO)
    assert [device.name for device in response.cdi_devices] == [
        "nvidia.com/gpu=GPU-1",
        "nvidia.com/gpu=GPU-0",
    ]
    assert not response.annotations


def test_cdi_annotations_name_the_cards_in_one_annotation_of_the_container() -> None:
    response = given(by(Strategy.CDI_ANNOTATIONS), TWO)
    assert dict(response.annotations) == {
        "cdi.k8s.io/gpushare-device-plugin_uid-a": "nvidia.com/gpu=GPU-1,nvidia.com/gpu=GPU-0"
    }
    assert not response.cdi_devices


def test_an_annotations_name_has_room_for_a_real_uid() -> None:
    pod = bound("a", C(memory=3000), cards=[card(1)], uid="8c0a5a9e-6f0e-4f8e-9a53-1c3a2f0d7b11")
    answer = answer_for(pod, container="main", cards=CARDS, names=NAMES)
    handover = by(Strategy.CDI_ANNOTATIONS)
    (key,) = handover.response(answer, pod=pod, container="main", device_nodes=lambda uuid: ()).annotations
    assert len(key.partition("/")[2]) <= 63


@pytest.mark.parametrize("strategy", [Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS])
def test_with_cdi_alone_the_runtime_is_told_to_inject_nothing_by_itself(strategy: Strategy) -> None:
    """Images are built with NVIDIA_VISIBLE_DEVICES=all, which would give the container every card."""
    assert given(by(strategy)).envs[VISIBLE_DEVICES] == "void"


def test_several_strategies_are_given_together() -> None:
    response = given(by(Strategy.ENVVAR, Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS))
    assert response.envs[VISIBLE_DEVICES] == "GPU-1"
    assert len(response.cdi_devices) == len(response.annotations) == 1


def test_names_of_cdi_are_configurable() -> None:
    handover = by(
        Strategy.CDI_CRI,
        Strategy.CDI_ANNOTATIONS,
        cdi_kind="example.com/card",
        cdi_annotation_prefix="nvidia.cdi.k8s.io/",
    )
    response = given(handover)
    assert [device.name for device in response.cdi_devices] == ["example.com/card=GPU-1"]
    assert dict(response.annotations) == {
        "nvidia.cdi.k8s.io/gpushare-device-plugin_uid-a": "example.com/card=GPU-1"
    }


@pytest.mark.parametrize("strategy", Strategy)
def test_the_classic_variables_are_given_with_every_strategy(strategy: Strategy) -> None:
    assert dict(given(by(strategy)).envs).items() >= CLASSIC.items()


@pytest.mark.parametrize("strategy", Strategy)
def test_A8_the_same_answer_is_the_same_response(strategy: Strategy) -> None:
    handover = by(strategy, pass_device_specs=True)
    assert given(handover) == given(handover)


def test_device_nodes_are_the_common_ones_and_each_cards_own() -> None:
    response = given(by(Strategy.ENVVAR, pass_device_specs=True), TWO)
    assert [(each.container_path, each.host_path, each.permissions) for each in response.devices] == [
        (node, node, "rw") for node in (*COMMON, "/dev/nvidia0", "/dev/nvidia1")
    ]


def test_a_node_that_two_instances_share_is_given_once() -> None:
    answer = answer_for(TWO, container="main", cards=CARDS, names=NAMES)
    response = by(Strategy.ENVVAR, pass_device_specs=True).response(
        answer,
        pod=TWO,
        container="main",
        device_nodes=lambda uuid: ("/dev/nvidia0", f"/dev/nvidia-caps/{uuid}"),
    )
    paths = [each.container_path for each in response.devices]
    assert paths == [*COMMON, "/dev/nvidia0", "/dev/nvidia-caps/GPU-1", "/dev/nvidia-caps/GPU-0"]


def test_the_hosts_nodes_may_lie_elsewhere() -> None:
    handover = by(Strategy.ENVVAR, pass_device_specs=True, dev_root=PurePosixPath("/run/nvidia/driver"))
    last = given(handover).devices[-1]
    assert (last.container_path, last.host_path) == ("/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0")


def test_a_card_whose_nodes_nobody_knows_is_refused_and_says_what_to_do() -> None:
    answer = answer_for(POD, container="main", cards=CARDS, names=NAMES)
    handover = by(Strategy.ENVVAR, pass_device_specs=True)
    with pytest.raises(PodError, match=r"nodes of card 1 \(GPU-1\) are not known; run .* without") as caught:
        handover.response(answer, pod=POD, container="main", device_nodes=lambda uuid: ())
    assert caught.value.uid == "uid-a"


# Through kubelet.


async def test_A5_the_minor_number_is_not_the_index(one_node: Cluster) -> None:
    """NVML's order is [b, a] and the minor numbers [1, 0]: card 0 is b, and its node /dev/nvidia1."""
    one_node.write_cards(
        {"uuid": "GPU-b", "memory": 16000, "minor": 1}, {"uuid": "GPU-a", "memory": 16000, "minor": 0}
    )
    async with one_node.plugin(handover=by(Strategy.ENVVAR, pass_device_specs=True)):
        env = await one_node.run("p", C(memory=1000), cards=[0])
        paths = [each.container_path for each in one_node.recorded("p").answer.devices]
    assert (env["main"][VISIBLE_DEVICES], env["main"][NAMES.index]) == ("GPU-b", "0")
    assert paths == [*COMMON, "/dev/nvidia1"]


async def test_A5_a_card_that_is_gone_is_never_replaced_by_its_index(one_node: Cluster) -> None:
    one_node.write_cards(
        {"uuid": "GPU-b", "memory": 16000, "minor": 1}, {"uuid": "GPU-a", "memory": 16000, "minor": 0}
    )
    pod = await one_node.create("p", C(memory=1000))
    annotated = {"uuid": "GPU-a", "memory": 16000, "minor": 0}
    one_node.node.hold_admission()
    await one_node.bind(pod, 0)
    one_node.write_cards(annotated)
    async with one_node.plugin(handover=by(Strategy.ENVVAR, pass_device_specs=True)):
        one_node.node.release_admission()
        refusal = await one_node.refusal("p")
    assert "was given card 0 (GPU-b), which the node does not have" in refusal


async def test_a_strategys_response_reaches_kubelet_whole(one_node: Cluster) -> None:
    handover = by(Strategy.VOLUME_MOUNTS, Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS)
    async with one_node.plugin(handover=handover):
        await one_node.run("p", C(memory=1000), cards=[1])
        answer = one_node.recorded("p").answer
    assert [mount.container_path for mount in answer.mounts] == ["/var/run/nvidia-container-devices/GPU-1"]
    assert [device.name for device in answer.cdi_devices] == ["nvidia.com/gpu=GPU-1"]
    uid = one_node.pod("p")["metadata"]["uid"]
    assert dict(answer.annotations) == {f"cdi.k8s.io/gpushare-device-plugin_{uid}": "nvidia.com/gpu=GPU-1"}


async def test_a_refused_handover_fails_the_pod_with_its_reason(one_node: Cluster) -> None:
    async with one_node.plugin(handover=by(Strategy.ENVVAR, pass_device_specs=True)):
        await one_node.bind(await one_node.create("p", C(memory=1000)), 0)
        assert "the device nodes of card 0 (GPU-0) are not known" in await one_node.refusal("p")


# Settings.


def settings(*argv: str) -> PluginSettings:
    return load(PluginSettings, program=PROGRAM, argv=("--node-name", "n1", *argv))


def test_the_default_is_the_variable_alone() -> None:
    assert settings().handover == Handover()


@pytest.mark.parametrize(
    "argv",
    [
        ("--device-list-strategy", "volume-mounts,cdi-cri"),
        ("--device-list-strategy", "cdi-cri", "--device-list-strategy", "volume-mounts"),
    ],
)
def test_strategies_come_with_commas_or_one_flag_each(argv: tuple[str, ...]) -> None:
    assert settings(*argv).handover.strategies == {Strategy.VOLUME_MOUNTS, Strategy.CDI_CRI}


def test_strategies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_DEVICE_LIST_STRATEGY", "cdi-cri, envvar")
    assert settings().handover.strategies == {Strategy.ENVVAR, Strategy.CDI_CRI}


REFUSED = {
    "unknown strategy": (("--device-list-strategy", "envvar,cdi"), "'cdi' is none of envvar, volume-mounts"),
    "no strategy": (("--device-list-strategy", ""), "is none of envvar"),
    "index": (("--device-id-strategy", "index"), "cards are named by UUID here: an index shifts"),
    "other id strategy": (("--device-id-strategy", "name"), "the only strategy is uuid"),
    "kind": (("--cdi-kind", "gpu"), "a CDI kind reads vendor/class"),
    "prefix": (("--cdi-annotation-prefix", "cdi.k8s.io"), "a prefix is a domain and a slash"),
    "relative root": (("--nvidia-dev-root", "driver"), "named from the host's root"),
    "nodes with CDI": (
        ("--pass-device-specs", "--device-list-strategy", "cdi-cri"),
        "--pass-device-specs is of no use with CDI alone",
    ),
}


@pytest.mark.parametrize(("argv", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_settings_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        settings(*argv)
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err
