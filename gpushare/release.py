"""What the chart calls its objects: the names are fixed, since a cluster has one installation.

Whoever looks for gpushare in a cluster, or tells kube-scheduler about it, takes them from here.
"""

from __future__ import annotations

NAMESPACE = "gpushare-system"
"""Where the chart recommends to install it."""
PAIR = "gpushare-scheduler"
"""The Deployment, Service, Lease and ConfigMap of the extender beside its own kube-scheduler, and the
`schedulerName` of its pods by default."""
EXTERNAL = "gpushare-extender"
"""The Deployment and Service of the extender alone, in `scheduler.mode: external`."""
PLUGIN = "gpushare-device-plugin"
"""The DaemonSet."""
VIEW = "view"
"""The port of both Services for what only reads."""
