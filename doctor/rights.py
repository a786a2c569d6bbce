"""The API rights with which the doctor skips nothing. Whoever has fewer is told which."""

from __future__ import annotations

from kubeapi.rights import Right

ADMISSION_RULES = (
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
)
"""Resources of admissionregistration.k8s.io that say what admission does."""

RIGHTS = (
    Right(resource="nodes", verbs=("list",), why="cards, capacities, labels"),
    Right(resource="pods", verbs=("list",), why="who asks for memory, who runs the parts"),
    Right(group="apps", resource="deployments", verbs=("list",), why="is it installed, and how often"),
    Right(group="apps", resource="daemonsets", verbs=("list",), why="the device plugin's, the classic one's"),
    Right(
        group="node.k8s.io",
        resource="runtimeclasses",
        verbs=("get",),
        why="is the one that the device plugin's DaemonSet names there",
    ),
    Right(resource="events", verbs=("list",), why="workloads whose pods are refused"),
    *(
        Right(
            group="admissionregistration.k8s.io",
            resource=resource,
            verbs=("list",),
            why="is admission in place",
        )
        for resource in ADMISSION_RULES
    ),
    Right(
        resource="configmaps",
        verbs=("get",),
        why="kube-scheduler's, in the release's namespace",
        scope="namespace",
    ),
    Right(
        group="coordination.k8s.io",
        resource="leases",
        verbs=("get",),
        why="who is active, in the release's namespace",
        scope="namespace",
    ),
    Right(
        resource="services/proxy",
        verbs=("get",),
        why="is the extender reached, in the release's namespace",
        scope="namespace",
    ),
    Right(
        resource="pods/proxy",
        verbs=("get",),
        why="is every replica ready and called, in the release's namespace",
        scope="namespace",
    ),
    Right(
        resource="pods",
        verbs=("create",),
        why="dry runs, in the namespace of --probe-namespace",
        scope="namespace",
    ),
)
