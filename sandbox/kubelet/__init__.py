"""A stand-in for kubelet's side of device plugins, on real unix sockets.

`Kubelet` is the part that plugins see: registration, the device list, admission, PodResources, checkpoint.
`Node` puts it into a cluster: it keeps a Node object, watches its pods in the API and reports their status.
The behaviour follows Kubernetes 1.36; where that is odd, the stand-in is odd in the same way.
"""

from sandbox.kubelet.journal import Call, Hold, Journal
from sandbox.kubelet.kubelet import AdmissionRefused, Kubelet
from sandbox.kubelet.node import Node, NodeSettings
from sandbox.kubelet.pods import Container, Pod

__all__ = [
    "AdmissionRefused",
    "Call",
    "Container",
    "Hold",
    "Journal",
    "Kubelet",
    "Node",
    "NodeSettings",
    "Pod",
]
