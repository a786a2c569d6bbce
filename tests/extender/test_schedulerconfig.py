"""What kube-scheduler is told: the documents, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import schedulerconfigcommand
from extender.cli import main
from extender.schedulerconfig import (
    Call,
    Election,
    Profile,
    SchedulerConfigError,
    Tls,
    configuration,
    policy,
)
from extender.settings import ExtenderSettings
from gpushare.placement import Policy
from tests.chart.rendering import noted_configuration, render

SHIPPED = Path(__file__).parents[2] / "scheduler-policy.json"
HTTPS = Call(
    url="https://10.96.0.7:39999/gpushare-scheduler",
    tls=Tls(ca="/c/ca.crt", cert="/c/tls.crt", key="/c/tls.key", server_name="gpushare-extender.ns.svc"),
)

OF_THE_CHART = (
    *("--url", "https://10.96.0.7:39999/gpushare-scheduler"),
    *("--tls-server-name", "gpushare-extender.gpushare-system.svc"),
    *("--ca-file", "/etc/kubernetes/gpushare/ca.crt"),
    *("--cert-file", "/etc/kubernetes/gpushare/tls.crt"),
    *("--key-file", "/etc/kubernetes/gpushare/tls.key"),
)


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    schedulerconfigcommand.run(flags)
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as ended:
        schedulerconfigcommand.run(flags)
    assert ended.value.code == 2
    return capsys.readouterr().err


def profile_of(document: dict[str, Any], name: str = "gpushare-scheduler") -> dict[str, Any]:
    (found,) = [each for each in document["profiles"] if each["schedulerName"] == name]
    return dict(found)


def plugin_args(profile: dict[str, Any], plugin: str) -> dict[str, Any]:
    (found,) = [each["args"] for each in profile["pluginConfig"] if each["name"] == plugin]
    return dict(found)


class TestConfiguration:
    @pytest.mark.parametrize("resource", ["aliyun.com/gpu-mem", "example.com/vram"])
    def test_I2_is_v1_not_ignorable_and_manages_exactly_the_memory(self, resource: str) -> None:
        document = configuration(call=Call(resource=resource))
        assert document["apiVersion"] == "kubescheduler.config.k8s.io/v1"
        (extender,) = document["extenders"]
        assert extender["ignorable"] is False
        assert extender["nodeCacheCapable"] is True
        assert extender["managedResources"] == [{"name": resource, "ignoredByScheduler": False}]

    def test_asks_for_every_verb_where_the_extender_listens_by_default(self) -> None:
        (extender,) = configuration()["extenders"]
        assert ExtenderSettings(lease_namespace="x").listen in extender["urlPrefix"]
        verbs = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")
        assert [extender[verb] for verb in verbs] == ["filter", "prioritize", "preempt", "bind"]

    @pytest.mark.parametrize(("minor", "version"), [(23, "v1beta3"), (24, "v1beta3"), (25, "v1"), (40, "v1")])
    def test_is_of_the_version_that_the_cluster_reads(self, minor: int, version: str) -> None:
        newest = configuration()
        document = configuration(kubernetes=(1, minor))
        assert document == newest | {"apiVersion": f"kubescheduler.config.k8s.io/{version}"}

    def test_older_clusters_are_told_what_they_read(self) -> None:
        with pytest.raises(SchedulerConfigError, match="--policy-json"):
            configuration(kubernetes=(1, 22))

    def test_looks_at_every_node(self) -> None:
        assert configuration()["percentageOfNodesToScore"] == 100

    @pytest.mark.parametrize(
        ("policy", "strategy"), [(Policy.BINPACK, "MostAllocated"), (Policy.SPREAD, "LeastAllocated")]
    )
    def test_kube_scheduler_packs_as_the_extender_does(self, policy: Policy, strategy: str) -> None:
        args = plugin_args(profile_of(configuration(profile=Profile(policy=policy))), "NodeResourcesFit")
        resources = [{"name": "aliyun.com/gpu-mem", "weight": 1}]
        assert args["scoringStrategy"] == {"type": strategy, "resources": resources}

    def test_deployments_are_not_spread_by_themselves(self) -> None:
        args = plugin_args(profile_of(configuration()), "PodTopologySpread")
        assert args == {"defaultingType": "List", "defaultConstraints": []}

    def test_one_rank_outweighs_packing_and_the_user_outweighs_all_ranks(self) -> None:
        document = configuration()
        plugins = profile_of(document)["plugins"]["multiPoint"]
        off = {each["name"] for each in plugins["disabled"]}
        assert off == {"NodeResourcesBalancedAllocation", "ImageLocality"}
        rank = 10 * document["extenders"][0]["weight"]
        fit = 100  # the only plugin left that says something of its own accord, of weight 1
        assert rank > fit
        for each in plugins["enabled"]:
            assert 100 * each["weight"] > 10 * rank + fit, each["name"]

    def test_the_control_planes_own_goes_on_serving_everybody_else_as_before(self) -> None:
        document = configuration(
            call=HTTPS,
            profile=Profile(beside_default=True),
            kubeconfig="/etc/kubernetes/scheduler.conf",
            election=Election(namespace="kube-system", name="kube-scheduler"),
        )
        assert profile_of(document, "default-scheduler") == {"schedulerName": "default-scheduler"}
        assert profile_of(document)["plugins"]
        assert document["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
        assert document["leaderElection"] == {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceNamespace": "kube-system",
            "resourceName": "kube-scheduler",
        }

    def test_https_shows_and_asks_for_certificates(self) -> None:
        (extender,) = configuration(call=HTTPS)["extenders"]
        assert extender["enableHTTPS"] is True
        assert extender["tlsConfig"] == {
            "insecure": False,
            "serverName": "gpushare-extender.ns.svc",
            "caFile": "/c/ca.crt",
            "certFile": "/c/tls.crt",
            "keyFile": "/c/tls.key",
        }

    def test_one_kube_scheduler_needs_no_election(self) -> None:
        assert configuration(election=None)["leaderElection"] == {"leaderElect": False}

    @pytest.mark.parametrize(
        ("call", "said"),
        [
            (Call(url="ftp://x"), "http://"),
            (Call(url="http://x", tls=Tls(ca="ca")), "must be https"),
            (Call(url="https://x", tls=Tls(cert="c")), "need each other"),
            (Call(weight=0), "weight 0"),
        ],
    )
    def test_what_kube_scheduler_would_not_take_is_refused(self, call: Call, said: str) -> None:
        with pytest.raises(SchedulerConfigError, match=said):
            configuration(call=call)


class TestPolicy:
    def test_I2_is_v1_not_ignorable_and_manages_exactly_the_memory(self) -> None:
        document = policy()
        assert (document["kind"], document["apiVersion"]) == ("Policy", "v1")
        (extender,) = document["extenders"]
        assert extender["ignorable"] is False
        assert extender["managedResources"] == [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}]

    def test_spells_its_fields_as_schedulers_before_1_23_read_them(self) -> None:
        (extender,) = policy(call=HTTPS)["extenders"]
        assert set(extender) == {
            *("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "weight"),
            *("enableHttps", "tlsConfig", "httpTimeout", "nodeCacheCapable", "ignorable", "managedResources"),
        }
        assert extender["httpTimeout"] == 10_000_000_000  # nanoseconds

    def test_I2_the_shipped_file_is_the_commands_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert SHIPPED.read_text() == printed(capsys, "--policy-json")


class TestCommand:
    def test_prints_the_document_as_yaml(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert yaml.safe_load(printed(capsys)) == configuration()

    @pytest.mark.parametrize("policy", ["binpack", "spread"])
    def test_I2_beside_default_is_what_the_chart_tells_the_control_planes_own(
        self, policy: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        chart = render(
            {
                "scheduler": {"mode": "external", "policy": policy},
                "external": {"clusterIP": "10.96.0.7"},
            }
        )
        assert yaml.safe_load(
            printed(capsys, "--beside-default", "--policy", policy, *OF_THE_CHART)
        ) == noted_configuration(chart)

    def test_I2_what_is_given_wins_over_what_beside_default_means(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ("--kubeconfig", "", "--lease-namespace", "here", "--lease-name", "there")
        document = yaml.safe_load(printed(capsys, "--beside-default", *given))
        assert "clientConnection" not in document
        assert document["leaderElection"]["resourceNamespace"] == "here"
        assert document["leaderElection"]["resourceName"] == "there"

    def test_every_flag_is_heard(self, capsys: pytest.CaptureFixture[str]) -> None:
        flags = {
            "--url": HTTPS.url,
            "--ca-file": HTTPS.tls.ca,
            "--cert-file": HTTPS.tls.cert,
            "--key-file": HTTPS.tls.key,
            "--tls-server-name": HTTPS.tls.server_name,
            "--resource": "example.com/vram",
            "--weight": "33",
            "--scheduler-name": "gpus",
            "--policy": "spread",
            "--lease-namespace": "here",
            "--lease-name": "there",
            "--kubeconfig": "/k",
            "--kubernetes": "v1.24.3",
        }
        written = [part for pair in flags.items() for part in pair]
        assert yaml.safe_load(printed(capsys, *written, "--beside-default")) == configuration(
            call=Call(url=HTTPS.url, tls=HTTPS.tls, resource="example.com/vram", weight=33),
            profile=Profile(name="gpus", policy=Policy.SPREAD, beside_default=True),
            election=Election(namespace="here", name="there"),
            kubeconfig="/k",
            kubernetes=(1, 24),
        )
        assert not yaml.safe_load(printed(capsys, "--no-leader-elect"))["leaderElection"]["leaderElect"]

    def test_prints_json_where_that_is_what_is_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = json.loads(printed(capsys, "--policy-json", "--resource", "example.com/vram"))
        assert shown == policy(call=Call(resource="example.com/vram"))

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (["--resource", "gpu-mem"], "domain/name"),
            (["--kubernetes", "1.19"], "--policy-json"),
            (["--kubernetes", "latest"], "no version such as 1.36"),
            (["--url", "10.96.0.7:39999"], "must start with http"),
            (["--beside-default", "--scheduler-name", "default-scheduler"], "beside itself"),
            (["--policies"], "--policies"),
        ],
    )
    def test_flags_that_make_no_sense_end_with_code_2_and_a_sentence(
        self, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert said in refused(capsys, *flags)

    def test_is_reached_through_the_programs_first_argument(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.argv", ["gpushare-extender", "scheduler-config", "--policy-json"])
        main()
        assert capsys.readouterr().out == SHIPPED.read_text()
