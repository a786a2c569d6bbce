"""What the containers are told: the programs' own settings take it, and it fits the ports and the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deviceplugin.settings import PluginSettings
from deviceplugin.simulated import read_cards
from extender.settings import ExtenderSettings
from kubeapi.settings import Settings, read
from tests.chart.rendering import NAMESPACE, Release, render
from tests.chart.sets import SETS


@pytest.fixture(autouse=True)
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The downward API gives the node's name."""
    monkeypatch.setenv("NODE_NAME", "node-1")


@pytest.mark.parametrize("kubernetes", ["1.25", "1.36"])
@pytest.mark.parametrize("name", SETS)
def test_every_program_takes_what_it_is_told(name: str, kubernetes: str) -> None:
    release = render(SETS[name], kubernetes=kubernetes)
    resource = {"memory": "aliyun.com/gpu-mem", "unit": "MiB", **SETS[name].get("resource", {})}

    programs = dict(told(release))
    for owner, settings in programs.items():
        assert (settings.resource, settings.unit) == (resource["memory"], resource["unit"]), owner
    assert any(isinstance(settings, ExtenderSettings) for settings in programs.values())


@pytest.mark.parametrize("kubernetes", ["1.25", "1.36"])
@pytest.mark.parametrize("name", SETS)
def test_ports_are_those_that_the_flags_open(name: str, kubernetes: str) -> None:
    release = render(SETS[name], kubernetes=kubernetes)
    for owner, container in ours(release):
        settings = settings_of(container)
        opened = {port["containerPort"] for port in container.get("ports", ())}
        if isinstance(settings, ExtenderSettings):
            beyond = [settings.view_listen, settings.admission_listen]
            beyond += [] if settings.listen.startswith("127.") else [settings.listen]
        else:
            assert isinstance(settings, PluginSettings)
            beyond = [settings.metrics_listen]
        assert opened == {int(each.rpartition(":")[2]) for each in beyond if each}, owner


@pytest.mark.parametrize("name", SETS)
def test_files_that_the_flags_name_are_mounted(name: str) -> None:
    for owner, container in ours(render(SETS[name], kubernetes="1.30")):
        folders = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        files = [flag.partition("=")[2] for flag in container["args"] if "=/etc/gpushare/" in flag]
        for file in files:
            assert str(Path(file).parent) in folders, (owner, file)


def test_the_pair_answers_kube_scheduler_on_loopback_and_nobody_else() -> None:
    settings = extender(render())

    assert settings.listen == "127.0.0.1:39999"
    assert settings.view_listen == "[::]:39998"
    assert not settings.leader_elect
    assert not settings.insecure


def test_the_service_asks_for_a_certificate_and_lets_one_replica_answer() -> None:
    settings = extender(render({"scheduler": {"mode": "external"}}))

    assert settings.listen == "[::]:39999"
    assert settings.verbs_tls is not None
    assert settings.client_ca
    assert settings.leader_elect
    assert settings.lease_namespace == NAMESPACE
    assert settings.shutdown_grace == 5
    assert (settings.leader_label, settings.pod_namespace) == ("gpushare/leader", NAMESPACE)
    assert not settings.insecure


@pytest.mark.parametrize(
    ("kubernetes", "mode", "listens"),
    [("1.36", "auto", False), ("1.35", "auto", True), ("1.36", "webhook", True), ("1.30", "none", False)],
)
def test_reviews_are_answered_where_a_webhook_asks(kubernetes: str, mode: str, listens: bool) -> None:  # noqa: FBT001
    settings = extender(render({"admission": {"mode": mode}}, kubernetes=kubernetes))

    assert (settings.admission_listen is not None) is listens
    assert (settings.admission_tls is not None) is listens


def test_what_the_values_say_of_the_extender_reaches_it() -> None:
    settings = extender(
        render({"scheduler": {"policy": "spread", "reserve": 1000000, "auditInterval": 60.5, "ui": True}})
    )

    assert (settings.policy, settings.reserve, settings.audit_interval) == ("spread", 1000000, 60.5)
    assert settings.ui


def test_what_the_values_say_of_the_device_plugin_reaches_it() -> None:
    settings = plugin(render(SETS["everything"]))

    assert (settings.slots, settings.reserve) == (8, 1024)
    assert settings.exclude == "0,GPU-8c,node-a:1"
    assert settings.memory_of == "node-b:0=98304"
    assert settings.device_list_strategy == ("volume-mounts", "cdi-cri")
    assert settings.pass_device_specs
    assert str(settings.nvidia_dev_root) == "/run/nvidia/driver"
    assert (settings.health_interval, settings.health_failures, settings.health_recoveries) == (2.5, 5, 1)
    assert (settings.disable_healthchecks, settings.enable_healthchecks) == ("all", "79,109")
    assert settings.log_level == "warning"


def test_units_are_what_kubelet_counts_in_mode_units() -> None:
    settings = plugin(render(SETS["units"]))

    assert (settings.mode, settings.unit, settings.max_devices) == ("units", "GiB", 1000000)


def test_the_plugin_sees_every_card_by_nvidias_runtime() -> None:
    spec = render().one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}

    assert spec["runtimeClassName"] == "nvidia"
    assert env == {
        "NODE_NAME": None,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }
    without = render({"devicePlugin": {"runtimeClassName": ""}}).one("DaemonSet", "gpushare-device-plugin")
    assert "runtimeClassName" not in without["spec"]["template"]["spec"]


def test_simulated_cards_are_what_the_plugin_reads_and_need_no_runtime(tmp_path: Path) -> None:
    release = render(SETS["kind"])
    spec = release.one("DaemonSet", "gpushare-device-plugin")["spec"]["template"]["spec"]
    file = tmp_path / "cards.yaml"
    file.write_text(release.one("ConfigMap", "gpushare-simulated-cards")["data"]["cards.yaml"])

    first, second = read_cards(file)

    assert (first.uuid, first.memory, first.model, first.healthy) == ("GPU-a", 16276, "Tesla T4", True)
    assert (second.uuid, second.memory, second.healthy, second.reason) == ("GPU-b", 1048576, False, "a demo")
    assert plugin(release).cards == "/etc/gpushare/cards/cards.yaml"
    assert "runtimeClassName" not in spec
    assert [each["name"] for each in spec["containers"][0]["env"]] == ["NODE_NAME"]


def test_a_new_plugin_starts_before_the_old_one_goes() -> None:
    strategy = render().one("DaemonSet", "gpushare-device-plugin")["spec"]["updateStrategy"]

    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def ours(release: Release) -> list[tuple[str, Any]]:
    """The containers that run one of our programs."""
    return [
        (owner, container)
        for owner, spec in release.pod_specs()
        for container in spec["containers"]
        if container["command"] != ["kube-scheduler"] and not owner.startswith("Job/")
    ]


def told(release: Release) -> list[tuple[str, Settings]]:
    every = [
        (owner, container)
        for owner, spec in release.pod_specs()
        for container in spec["containers"]
        if container["command"] != ["kube-scheduler"]
    ]
    return [(owner, settings_of(container)) for owner, container in every]


def settings_of(container: Any) -> Settings:
    """The settings as the program itself reads them; fails as it would."""
    (program,) = container["command"]
    kinds: dict[str, type[Settings]] = {
        "gpushare-extender": ExtenderSettings,
        "gpushare-device-plugin": PluginSettings,
    }
    return read(kinds[program], program=program, argv=container["args"])


def extender(release: Release) -> ExtenderSettings:
    (found,) = [settings for _, settings in told(release) if isinstance(settings, ExtenderSettings)]
    return found


def plugin(release: Release) -> PluginSettings:
    found = [
        settings
        for owner, settings in told(release)
        if isinstance(settings, PluginSettings) and owner.startswith("DaemonSet/")
    ]
    return found[0]
