"""What can go wrong on a node, as one tree.

PluginError
├── SourceError         the cards cannot be read (now)
│   └── CardsFileError  a file of simulated cards that makes no sense: file, line, reason
├── SettingError        a setting's text that names no cards, sizes or XIDs
├── SocketPathError     a socket's path is too long for a unix socket
├── ListTooLargeError   more devices than kubelet can be told of
├── UninstallError      something of ours is still on nodes
└── AllocateError       kubelet's call cannot be answered; the pod fails at admission
    ├── NoPodError      no pod fits the call, or several that would get different cards
    ├── PodError        the pod is found, and something about it forbids an answer
    ├── OverfullError   the pod's card would hold more than it has
    └── NoSlotError     the pod's card has no free slot among those that kubelet offers
"""

from __future__ import annotations

from pathlib import Path

from gpushare.errors import GpuShareError


class PluginError(GpuShareError):
    """Root of the device plugin's own errors."""


class SourceError(PluginError):
    """The cards of the node cannot be read."""


class CardsFileError(SourceError):
    """A file of simulated cards is refused; `line` counts from 1."""

    def __init__(self, path: Path, *, line: int, problem: str) -> None:
        self.path = path
        self.line = line
        self.problem = problem
        super().__init__(f"{path}:{line}: {problem}")


class SettingError(PluginError):
    """A setting's text cannot be understood."""


class SocketPathError(PluginError):
    """A unix socket cannot have this path."""


class ListTooLargeError(PluginError):
    """The list of devices is more than kubelet receives, or than was allowed. The text says what works."""


class UninstallError(PluginError):
    """What the plugin wrote could not be taken off all nodes. The text names some, and why."""


class AllocateError(PluginError):
    """A call of kubelet's is refused. The text ends up in the pod's status and says what to do."""

    outcome = "timeout"
    """What the metrics call it: a small fixed set of words."""

    def __init__(self, sentence: str, *, uid: str = "") -> None:
        """`uid` is that of the pod which is refused, where that is known."""
        self.uid = uid
        super().__init__(sentence)


class NoPodError(AllocateError):
    """Nobody can tell which pod the call is for; the text names the pods that were looked at."""

    outcome = "no_pod"


class PodError(AllocateError):
    """The call's pod is known, and cannot be given a card."""

    outcome = "bad_pod"


class OverfullError(AllocateError):
    """The second lock: the card is full by the plugin's own count. The text names the pods on it."""

    outcome = "overfull"


class NoSlotError(AllocateError):
    """kubelet offers no slot of a card that the pod was given."""

    outcome = "no_slot"
