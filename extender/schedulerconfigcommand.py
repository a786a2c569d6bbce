"""`gpushare-extender scheduler-config`: prints what kube-scheduler has to be told, see `schedulerconfig`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence

import yaml

from extender.schedulerconfig import (
    CONTROL_PLANES_ELECTION,
    CONTROL_PLANES_KUBECONFIG,
    DEFAULT_URL,
    WEIGHT,
    Call,
    Document,
    Election,
    Profile,
    SchedulerConfigError,
    Tls,
    configuration,
    policy,
)
from gpushare.errors import ResourceNameError, quoted
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names
from gpushare.placement import Policy
from gpushare.release import NAMESPACE, PAIR

COMMAND = "scheduler-config"
PROGRAM = f"gpushare-extender {COMMAND}"

_EPILOG = """\
The pair of the chart, which needs nothing of this:    gpushare-extender scheduler-config
The control plane's own kube-scheduler, with an extender behind a Service:
    gpushare-extender scheduler-config --beside-default --url https://10.96.0.7:39999/gpushare-scheduler \\
        --tls-server-name gpushare-extender.gpushare-system.svc --ca-file /etc/kubernetes/gpushare/ca.crt \\
        --cert-file /etc/kubernetes/gpushare/tls.crt --key-file /etc/kubernetes/gpushare/tls.key
Clusters before 1.23:    gpushare-extender scheduler-config --policy-json
"""


def run(argv: Sequence[str]) -> None:
    """Print the document; exit code 2 with a sentence for flags that make no sense."""
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        print(_text(given), end="")
    except (SchedulerConfigError, ResourceNameError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(2)


def _text(given: argparse.Namespace) -> str:
    call = Call(
        url=given.url,
        tls=Tls(
            ca=given.ca_file, cert=given.cert_file, key=given.key_file, server_name=given.tls_server_name
        ),
        resource=Names.of(given.resource).memory,
        weight=given.weight,
    )
    if given.policy_json:
        return json.dumps(policy(call=call), indent=2) + "\n"
    usual = CONTROL_PLANES_ELECTION if given.beside_default else Election()
    election = Election(
        namespace=_or(given.lease_namespace, usual.namespace), name=_or(given.lease_name, usual.name)
    )
    document: Document = configuration(
        call=call,
        profile=Profile(
            name=given.scheduler_name, policy=Policy(given.policy), beside_default=given.beside_default
        ),
        election=election if given.leader_elect else None,
        kubeconfig=_or(given.kubeconfig, CONTROL_PLANES_KUBECONFIG if given.beside_default else ""),
        kubernetes=given.kubernetes,
    )
    return yaml.safe_dump(document, sort_keys=False, width=100)


def _or(given: str | None, usual: str) -> str:
    """What was given, be it empty."""
    return usual if given is None else given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Prints the configuration with which kube-scheduler asks the extender, for its --config.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--kubernetes", type=_version, default=(1, 36), metavar="VERSION", help=_KUBERNETES)
    add("--policy-json", action="store_true", help=_POLICY_JSON)
    add(
        "--url",
        default=DEFAULT_URL,
        help=f"where the extender answers kube-scheduler (default: {DEFAULT_URL})",
    )
    add("--ca-file", default="", metavar="FILE", help="CA of the extender's certificate")
    add("--cert-file", default="", metavar="FILE", help="certificate that kube-scheduler shows the extender")
    add("--key-file", default="", metavar="FILE", help="its private key")
    add(
        "--tls-server-name",
        default="",
        metavar="NAME",
        help="name in the extender's certificate, if --url has an address",
    )
    add(
        "--resource",
        default=DEFAULT_MEMORY_RESOURCE,
        help=f"the memory resource (default: {DEFAULT_MEMORY_RESOURCE})",
    )
    add(
        "--weight",
        type=int,
        default=WEIGHT,
        help=f"the extender's weight; above 10 it wins over kube-scheduler's packing (default: {WEIGHT})",
    )
    only = parser.add_argument_group("not with --policy-json")
    add = only.add_argument
    add(
        "--scheduler-name",
        default=PAIR,
        metavar="NAME",
        help=f"what pods name as schedulerName (default: {PAIR})",
    )
    add(
        "--beside-default",
        action="store_true",
        help="also serve default-scheduler, as the control plane's own kube-scheduler has to, with "
        "kubeadm's kubeconfig and kube-scheduler's own Lease",
    )
    add(
        "--policy",
        choices=[each.value for each in Policy],
        default=Policy.BINPACK.value,
        help="the extender's --policy (default: binpack)",
    )
    add(
        "--kubeconfig",
        metavar="FILE",
        help="kube-scheduler's kubeconfig (default: its pod's service account; with --beside-default "
        f"{CONTROL_PLANES_KUBECONFIG})",
    )
    add(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether there are several kube-schedulers (default: yes)",
    )
    add(
        "--lease-namespace",
        metavar="NAMESPACE",
        help=f"namespace of their Lease (default: {NAMESPACE}; with --beside-default "
        f"{CONTROL_PLANES_ELECTION.namespace})",
    )
    add(
        "--lease-name",
        metavar="NAME",
        help=f"its name (default: {PAIR}; with --beside-default {CONTROL_PLANES_ELECTION.name})",
    )
    return parser


_KUBERNETES = "the cluster's version: v1 from 1.25, v1beta3 for 1.23 and 1.24 (default: 1.36)"
_POLICY_JSON = "print the Policy of clusters before 1.23 (kube-scheduler --policy-config-file) instead"


def _version(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"v?(\d{1,3})\.(\d{1,3})([.+-].*)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is no version such as 1.36")
    return int(match[1]), int(match[2])
