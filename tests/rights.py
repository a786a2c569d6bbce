"""RBAC in front of the sandbox's API server: a client may do what its rights say; what it does is noted."""

import re
from collections.abc import Iterable

from kubeapi.rights import Right
from sandbox.apiserver import ApiServer
from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.routes import Request

Use = tuple[str, str, str]
"""API group, resource with its subresource, verb."""

_PATH = re.compile(
    r"/(api/v1|apis/(?P<group>[^/]+)/[^/]+)(/namespaces/[^/]+(?=/))?/(?P<resource>[^/]+)(/(?P<name>[^/]+)(/(?P<sub>.+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def use_of(*, method: str, path: str, query: str = "") -> Use:
    """What RBAC takes a request for (Kubernetes' request attributes, 1.36)."""
    found = _PATH.fullmatch(path)
    assert found is not None, path
    resource = "/".join(filter(None, (found["resource"], found["sub"])))
    verb = _VERBS.get(method) or ("get" if found["name"] else "watch" if "watch" in query else "list")
    return found["group"] or "", resource, verb


def uses(rights: Iterable[Right]) -> set[Use]:
    """All that these rights allow."""
    return {(right.group, right.resource, verb) for right in rights for verb in right.verbs}


class Guard:
    """Refuses one client what it has no right to, and notes what it used and what it was refused."""

    def __init__(self, server: ApiServer, *, client: str, rights: Iterable[Right]) -> None:
        """`client` is part of the User-Agent."""
        self.rights = uses(rights)
        self.used: set[Use] = set()
        self.refused: set[Use] = set()
        self._client = client
        server.app.heard.append(self._hear)

    def _hear(self, request: Request) -> None:
        if self._client not in request.headers.get("user-agent", ""):
            return
        query = "watch" if request.query.get("watch") else ""
        use = use_of(method=request.method, path=request.path, query=query)
        if use not in self.rights:
            self.refused.add(use)
            raise ApiError(f"{use} is forbidden", code=403, reason="Forbidden")
        self.used.add(use)
