"""A stand-in for kube-scheduler, as far as an extender can tell the difference.

objects   pods and nodes with every field the API sends, since kube-scheduler passes them on whole
fit       its own checks of a node: totals, selector, cordon, taints; and the words for a refusal
extender  the HTTP calls, byte for byte in kube-scheduler's shapes
scheduler the loop: choose a node, assume, bind, try again later
run       the command
"""

from sandbox.scheduler.extender import ExtenderClient, ExtenderSettings
from sandbox.scheduler.scheduler import Scheduler, SchedulerSettings

__all__ = ["ExtenderClient", "ExtenderSettings", "Scheduler", "SchedulerSettings"]
