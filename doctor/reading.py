"""Reading one part of the cluster at a time: what may not be read is `Unseen`, not an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec

from doctor.cluster import Admitted, Answer, Refused, Trial, Unseen
from gpushare.objects import UNDECODABLE
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError, ApiRefused
from kubeapi.listing import Lister

T = TypeVar("T")

PAGE = 1000
"""Objects a page: few enough that one page is no burden, many enough that 50,000 pods are 50 requests."""
SECONDS = 10.0


async def listed(
    api: KubeApi,
    path: str,
    *,
    kind: type[T],
    what: str,
    keep: Callable[[T], bool] = lambda _: True,
    selectors: Mapping[str, str] | None = None,
) -> tuple[T, ...] | Unseen:
    """A whole collection, of which only what is worth keeping is kept. `what` is its name in RBAC."""
    found: list[T] = []
    try:
        async for page in Lister(api, path, kind=kind, selectors=selectors, page=PAGE).pages():
            found += [each for each in page.items or () if keep(each)]
    except ApiRefused as error:
        return () if error.status == 404 else _refused(error, verb="list", what=what, path=path)
    except ApiError as error:
        return Unseen(why=f"{what} could not be listed: {error}")
    return tuple(found)


async def got(api: KubeApi, path: str, *, kind: type[T], what: str) -> T | Unseen | None:
    """One object; `None` where there is none."""
    try:
        answer = await api.request("GET", path, timeout=SECONDS)
        if answer.status == 404:
            return None
        return msgspec.json.decode(answer.checked().body, type=kind)
    except ApiRefused as error:
        return _refused(error, verb="get", what=what, path=path)
    except (ApiError, *UNDECODABLE) as error:
        return Unseen(why=f"{what} could not be read: {error}")


async def tried(api: KubeApi, pod: Mapping[str, Any], *, namespace: str) -> Trial:
    """What would become of a pod: a dry run, after which nothing is there."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        answer = await api.request("POST", path, query={"dryRun": "All"}, body=pod, timeout=SECONDS)
        return Admitted(pod=answer.checked().json())
    except ApiRefused as error:
        if error.status == 401 or 'cannot create resource "pods"' in error.message:
            return _refused(error, verb="create", what="pods", path=path)
        return Refused(status=error.status, message=error.message)
    except (ApiError, *UNDECODABLE) as error:
        return Unseen(why=f"the trial pod got no answer: {error}")


class Door:
    """A way to the extender's view port."""

    name: str

    async def get(self, path: str) -> Answer | Unseen:
        """GET a path; `Answer` with status 0 where nobody answers."""
        raise NotImplementedError


class ProxyDoor(Door):
    """Through the API server's proxy: `services/NAME:view` or `pods/NAME:39998`."""

    def __init__(self, api: KubeApi, *, namespace: str, kind: str, target: str) -> None:
        self.name = target.partition(":")[0]
        self._api = api
        self._what = f"{kind}/proxy"
        self._base = f"/api/v1/namespaces/{namespace}/{kind}/{target}/proxy"

    async def get(self, path: str) -> Answer | Unseen:
        try:
            answer = await self._api.request("GET", self._base + path, timeout=SECONDS)
        except ApiError as error:
            return Answer(status=0, text=str(error))
        said = _of_the_api_server(answer.body)
        if answer.status in (401, 403) and "cannot get resource" in said:
            return _not_allowed("get", self._what, path=self._base)
        if said:
            return Answer(status=0, text=said)
        return Answer(status=answer.status, text=answer.body.decode(errors="replace"))


class UrlDoor(Door):
    """Straight to it, with --extender-url."""

    def __init__(self, url: str) -> None:
        self.name = url.rstrip("/")

    async def get(self, path: str) -> Answer | Unseen:
        limits = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=limits) as http, http.get(self.name + path) as answer:
                return Answer(status=answer.status, text=(await answer.read()).decode(errors="replace"))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Answer(status=0, text=str(error) or type(error).__name__)


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""


def _of_the_api_server(body: bytes) -> str:
    """What the API server says itself, where it could not pass a request on; else nothing."""
    if not body.startswith(b'{"kind":"Status"'):
        return ""
    try:
        return msgspec.json.decode(body, type=_Status).message or "a Status without a message"
    except UNDECODABLE:
        return ""


def _refused(error: ApiRefused, *, verb: str, what: str, path: str) -> Unseen:
    return (
        _not_allowed(verb, what, path=path) if error.status in (401, 403) else Unseen(why=f"{what}: {error}")
    )


def _not_allowed(verb: str, what: str, *, path: str) -> Unseen:
    """Names the right as kubectl asks for it."""
    resource, _, sub = what.partition("/")
    inside = re.search(r"/namespaces/([^/]+)/", path)
    scope = f" -n {inside[1]}" if inside else "" if resource in _CLUSTER_SCOPED else " -A"
    asked = f"{verb} {resource}" + (f" --subresource={sub}" if sub else "") + scope
    return Unseen(why=f"you may not {verb} {what}", remedy=f"needs the right: kubectl auth can-i {asked}")


_CLUSTER_SCOPED = ("nodes", "runtimeclasses.node.k8s.io")
