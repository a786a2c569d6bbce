"""The API rights of the device plugin, and those of its uninstall."""

from __future__ import annotations

from kubeapi.rights import Right

RIGHTS = (
    Right(
        resource="pods",
        verbs=("get", "list", "watch"),
        why="the pods of its node: what they ask for and which card they were given; the one that kubelet is "
        "admitting is read by name",
    ),
    Right(
        resource="pods",
        verbs=("patch",),
        why="their annotations: that kubelet was answered, and a card that differs from kubelet's record",
    ),
    Right(resource="nodes", verbs=("list", "watch"), why="its own node, by a field selector on the name"),
    Right(resource="nodes", verbs=("patch",), why="the annotation that lists the cards"),
    Right(resource="nodes/status", verbs=("patch",), why="the capacities: memory and number of cards"),
    Right(
        resource="events",
        verbs=("create", "patch"),
        why="beside the pods they are about; those about nodes in the namespace default",
    ),
)
"""Of the DaemonSet's service account."""

UNINSTALL_RIGHTS = (
    Right(
        resource="nodes",
        verbs=("list",),
        why="which nodes carry the annotation, with --all-nodes; for one node only, `get` in its place",
    ),
    Right(resource="nodes", verbs=("patch",), why="takes the annotation off"),
    Right(resource="nodes/status", verbs=("patch",), why="takes the capacities off"),
)
"""Of the service account that runs `--uninstall --all-nodes` once for the cluster."""
