"""The API rights of the extender."""

from __future__ import annotations

from kubeapi.rights import Right

RIGHTS = (
    Right(resource="nodes", verbs=("list", "watch"), why="which cards there are"),
    Right(
        resource="pods",
        verbs=("get", "list", "watch"),
        why="who holds what; by name where an answer was lost or the watch may lag behind",
    ),
    Right(resource="pods/binding", verbs=("create",), why="bind: node and card in one write"),
    Right(
        resource="events",
        verbs=("create", "patch"),
        why="beside the pods they are about; those about nodes in the namespace default",
    ),
)
"""Of every replica."""

ELECTION_RIGHTS = (
    Right(
        group="coordination.k8s.io",
        resource="leases",
        verbs=("get", "create", "update"),
        why="which replica leads, with --leader-elect; in the namespace of --lease-namespace",
        scope="namespace",
    ),
)
"""In addition, where replicas elect a leader."""

LABEL_RIGHTS = (
    Right(
        resource="pods",
        verbs=("patch",),
        why="the leader's label on its own pod, with --leader-label; in the namespace of --pod-namespace",
        scope="namespace",
    ),
)
"""In addition, where a Service finds the leader by its label."""
