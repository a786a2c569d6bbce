"""What kube-scheduler has to be told so that it asks the extender, and does not undo what it answers.

One function makes the `KubeSchedulerConfiguration` of Kubernetes 1.23 and later, another the `Policy` that
schedulers before that read; both are pure. The chart renders the same document.

How the scores add up (kube-scheduler 1.36): a plugin gives 0 to 100, times its weight. The extender's 0 to 10
count ten times as much, times its weight. So with a weight above 10 one rank of the extender's outweighs all
that NodeResourcesFit can say; and plugins that speak for the user keep their default weights, times the
extender's, so that a preferred affinity or a soft taint outweighs all that the extender can say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpushare.errors import GpuShareError, quoted
from gpushare.names import DEFAULT_MEMORY_RESOURCE
from gpushare.placement import Policy
from gpushare.release import NAMESPACE, PAIR

Document = dict[str, Any]

DEFAULT_URL = "http://127.0.0.1:39999/gpushare-scheduler"
WEIGHT = 20
"""One rank is 200 points: more than NodeResourcesFit and one more plugin of weight 1 can give together."""
HTTP_TIMEOUT = 10
"""Seconds. A bind takes 3.9 s at most; kube-scheduler's own 5 s leave too little to a busy machine."""

DEFAULT_SCHEDULER = "default-scheduler"

# kube-scheduler's own weights of what users say outright (1.36).
_OUTRIGHT = {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}
# They would pull pods apart by CPU, or to where an image is.
_OFF = ("NodeResourcesBalancedAllocation", "ImageLocality")

_OLDEST = (1, 23)
_V1 = (1, 25)


class SchedulerConfigError(GpuShareError):
    """Something was asked for that no kube-scheduler understands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """How kube-scheduler speaks HTTPS: paths as its process sees them; empty for none."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    """The name in the extender's certificate, where the URL has an address instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """Where the extender is and what it is asked about."""

    url: str = DEFAULT_URL
    tls: Tls = Tls()
    resource: str = DEFAULT_MEMORY_RESOURCE
    weight: int = WEIGHT


@dataclass(frozen=True, kw_only=True, slots=True)
class Election:
    """The Lease by which one kube-scheduler of several is active."""

    namespace: str = NAMESPACE
    name: str = PAIR


CONTROL_PLANES_ELECTION = Election(namespace="kube-system", name="kube-scheduler")
"""kube-scheduler's default, and the only Lease that user system:kube-scheduler may write (1.36)."""
CONTROL_PLANES_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
"""Where kubeadm puts it; `--config` makes kube-scheduler ignore the flag `--kubeconfig` (1.36)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The scheduler that users name in their pods."""

    name: str = PAIR
    policy: Policy = Policy.BINPACK
    beside_default: bool = False
    """Whether the same process also serves `default-scheduler`, as the control plane's own has to."""


def configuration(
    *,
    call: Call = Call(),
    profile: Profile = Profile(),
    election: Election | None = Election(),
    kubeconfig: str = "",
    kubernetes: tuple[int, int] = (1, 36),
) -> Document:
    """The KubeSchedulerConfiguration (`kube-scheduler --config`), of v1 or, before 1.25, of v1beta3.

    Without `election` there is one kube-scheduler. Without a `kubeconfig` it uses its pod's service account.
    Raises `SchedulerConfigError` for a Kubernetes that is older than that.
    """
    if kubernetes < _OLDEST:
        raise SchedulerConfigError(
            f"Kubernetes {'.'.join(map(str, kubernetes))} is older than 1.23: give --policy-json, and the "
            "file to kube-scheduler's --policy-config-file"
        )
    if profile.beside_default and profile.name == DEFAULT_SCHEDULER:
        raise SchedulerConfigError(f"a profile called {DEFAULT_SCHEDULER} cannot stand beside itself")
    version = "v1" if kubernetes >= _V1 else "v1beta3"
    profiles = [{"schedulerName": DEFAULT_SCHEDULER}] if profile.beside_default else []
    return {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        **({"clientConnection": {"kubeconfig": kubeconfig}} if kubeconfig else {}),
        "leaderElection": _election(election),
        # Otherwise it stops at a sample of the nodes that fit by their sums (500 of 5,000), and the one with
        # a card that fits may not be among them.
        "percentageOfNodesToScore": 100,
        "profiles": [*profiles, _profile(profile, call=call)],
        "extenders": [_extender(call, enable="enableHTTPS", timeout=f"{HTTP_TIMEOUT}s")],
    }


def policy(*, call: Call = Call()) -> Document:
    """The Policy (`kube-scheduler --policy-config-file`) of clusters before 1.23.

    Predicates and priorities stay kube-scheduler's defaults: this file rules all pods of the cluster.
    """
    timeout = HTTP_TIMEOUT * 1_000_000_000  # a Go duration in JSON: nanoseconds
    return {
        "kind": "Policy",
        "apiVersion": "v1",
        "extenders": [_extender(call, enable="enableHttps", timeout=timeout)],
    }


def _election(election: Election | None) -> Document:
    if election is None:
        return {"leaderElect": False}
    return {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceNamespace": election.namespace,
        "resourceName": election.name,
    }


def _profile(profile: Profile, *, call: Call) -> Document:
    weights = [{"name": name, "weight": own * call.weight} for name, own in _OUTRIGHT.items()]
    spread = profile.policy is Policy.SPREAD
    return {
        "schedulerName": profile.name,
        "plugins": {
            "multiPoint": {"enabled": weights, "disabled": [{"name": name} for name in _OFF]},
        },
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "LeastAllocated" if spread else "MostAllocated",
                        "resources": [{"name": call.resource, "weight": 1}],
                    }
                },
            },
            # The built-in constraints would spread the pods of every Deployment.
            {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": []}},
        ],
    }


def _extender(call: Call, *, enable: str, timeout: str | int) -> Document:
    """The extender's part; Policy and KubeSchedulerConfiguration differ in two spellings."""
    https = call.url.startswith("https://")
    if not https and not call.url.startswith("http://"):
        raise SchedulerConfigError(f"URL {quoted(call.url)} must start with http:// or https://")
    if call.tls != Tls() and not https:
        raise SchedulerConfigError(f"certificates are of no use with {quoted(call.url)}: it must be https://")
    if bool(call.tls.cert) != bool(call.tls.key):
        raise SchedulerConfigError("a client certificate and its key need each other")
    if call.weight < 1:
        raise SchedulerConfigError(f"weight {call.weight}: kube-scheduler takes whole numbers from 1")
    return {
        "urlPrefix": call.url.rstrip("/"),
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": call.weight,
        enable: https,
        **({"tlsConfig": _tls(call.tls)} if https else {}),
        "httpTimeout": timeout,
        "nodeCacheCapable": True,
        # `ignorable` would also let a pod be bound without a card while the extender is away.
        "ignorable": False,
        # Nothing more: an empty list would send every pod of the cluster, the extender's own included.
        "managedResources": [{"name": call.resource, "ignoredByScheduler": False}],
    }


def _tls(tls: Tls) -> Document:
    parts = {
        "serverName": tls.server_name,
        "caFile": tls.ca,
        "certFile": tls.cert,
        "keyFile": tls.key,
    }
    return {"insecure": False, **{key: value for key, value in parts.items() if value}}
