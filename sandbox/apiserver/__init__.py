"""A Kubernetes API server small enough for a test: real HTTP, real versions, watches and conflicts.

It answers as a recorded Kubernetes 1.36 does, for the resources the sandbox needs, and fails on demand.
"""

from sandbox.apiserver.faults import Fault, Faults, Rule
from sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer", "Fault", "Faults", "Rule"]
