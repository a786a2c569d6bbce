"""Where the answer comes from: the extender, asked through the API server, or else lists (`inspector.lists`).

The way through the API server needs no port of ours to be open to people, and Kubernetes' own rights decide
(`get` of `services/proxy`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec
from pydantic import ValidationError

from gpushare.inspection import Inspection
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names
from gpushare.objects import UNDECODABLE, ObjectMeta
from gpushare.release import EXTERNAL, NAMESPACE, PAIR, VIEW
from inspector.errors import NeitherWayError, NoAnswerError, NodeNotFoundError, NoExtenderError
from inspector.lists import compute
from inspector.merging import merged
from inspector.patience import Patience
from kubeapi.client import KubeApi, Response
from kubeapi.errors import ApiError, ApiRefused

SERVICES = (PAIR, EXTERNAL)
"""Of the pair beside its own kube-scheduler, and of the extender alone."""

_LABELS = "app.kubernetes.io/name=gpushare,app.kubernetes.io/component in (scheduler,extender)"
_SECONDS = 10.0
_UNREACHED = 503


class _Failed(msgspec.Struct, frozen=True):
    """The extender's own refusal has `error`; the API server's is a `Status`."""

    error: str = ""
    kind: str = ""
    message: str = ""

    @property
    def is_api_servers(self) -> bool:
        return self.kind == "Status"


class _Service(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _Services(msgspec.Struct, frozen=True):
    items: list[_Service] | None = None


class Source:
    """Asks one cluster, as often as wanted."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str | None,
        resource: str | None,
        say: Callable[[str], None],
        patience: Patience,
        seconds: float = _SECONDS,
    ) -> None:
        """`namespace` is where gpushare runs, `None` to look for it; `resource` the memory resource, `None`
        for the extender's own. `say` is told what a reader should know about an answer. The extender has
        so many `seconds` to answer."""
        self._api = api
        self._namespace = namespace
        self._resource = resource
        self._say = say
        self._patience = patience
        self._seconds = seconds
        self._service: tuple[str, str] | None = None
        """Namespace and name of the one that answered last."""

    async def inspect(self, nodes: Sequence[str]) -> Inspection:
        """The answer for these nodes, or for all where none is named.

        Raises `NodeNotFoundError`, and `NeitherWayError` or `ApiError` where the lists fail too.
        """
        try:
            return await self._ask_in_time(nodes)
        except NoAnswerError as error:
            failure = error
        self._say(f"{failure}; computing from the API server's nodes and pods instead")
        names = Names.of(self._resource or DEFAULT_MEMORY_RESOURCE)
        try:
            with self._patience.waiting(f"lists of nodes and pods from API server {self._api.host}"):
                computed = await compute(self._api, names=names, only=nodes)
        except ApiRefused as error:
            raise NeitherWayError(extender=failure, lists=error) from error
        if len(computed.units) > 1:
            self._say(
                f"nodes publish different units ({', '.join(computed.units)}): shown is {computed.units[0]}"
            )
        return computed.inspection

    async def _ask_in_time(self, nodes: Sequence[str]) -> Inspection:
        what = f"the extender's answer through API server {self._api.host}"
        try:
            with self._patience.waiting(f"{what} (at most {self._seconds:g} seconds)"):
                async with asyncio.timeout(self._seconds):
                    return await self._ask(nodes)
        except TimeoutError as error:
            raise NoAnswerError(f"the extender has not answered within {self._seconds:g} seconds") from error

    async def _ask(self, nodes: Sequence[str]) -> Inspection:
        """Ask the extender. Raises `NoAnswerError` and `NodeNotFoundError`."""
        problems: list[NoAnswerError] = []
        for service in await self._services():
            try:
                found = merged([await self._ask_one(service, node) for node in nodes or (None,)])
            except NoAnswerError as error:
                problems.append(error)
                continue
            if self._resource is not None and found.resource != self._resource:
                raise NoAnswerError(f"the extender counts {found.resource}, not {self._resource}")
            self._service = service
            return found
        self._service = None
        raise min(problems, key=lambda problem: isinstance(problem, NoExtenderError))  # it says least

    async def _services(self) -> list[tuple[str, str]]:
        if self._service is not None:
            return [self._service]
        if self._namespace is not None:
            return [(self._namespace, name) for name in SERVICES]
        return await self._labelled() or [(NAMESPACE, name) for name in SERVICES]

    async def _labelled(self) -> list[tuple[str, str]]:
        """The services that say they are gpushare's, in all namespaces, as far as we may look."""
        try:
            answer = await self._api.request("GET", "/api/v1/services", query={"labelSelector": _LABELS})
            items = msgspec.json.decode(answer.checked().body, type=_Services).items or ()
        except (ApiError, *UNDECODABLE):
            return []
        found = [(each.metadata.namespace, each.metadata.name) for each in items]
        return sorted(each for each in found if each[1] in SERVICES)

    async def _ask_one(self, service: tuple[str, str], node: str | None) -> Inspection:
        namespace, name = service
        path = f"/api/v1/namespaces/{namespace}/services/{name}:{VIEW}/proxy/gpushare-scheduler/inspect"
        if node is not None:
            path += f"/{quote(node, safe='')}"
        who = f"service {namespace}/{name}"
        try:
            # Its own limit is out of the way: the one around all of this speaks plainer.
            answer = await self._api.request("GET", path, timeout=2 * self._seconds)
        except ApiError as error:
            raise NoAnswerError(f"{who} cannot be asked: {error}") from error
        if answer.status >= 400:
            failed = _failure(answer)
            if answer.status == 404 and failed.error and node is not None:
                raise NodeNotFoundError(node)
            if answer.status == 404 and failed.is_api_servers:
                raise NoExtenderError(namespace)
            if answer.status == _UNREACHED and failed.is_api_servers:
                raise NoAnswerError(f"no gpushare extender answers in {namespace} ({failed.message})")
            reason = failed.error or failed.message or "no reason given"
            raise NoAnswerError(f"{who} answered {answer.status}: {reason}")
        try:
            return Inspection.model_validate_json(answer.body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise NoAnswerError(f"{who} answered what cannot be read: {where} {first['msg']}") from error


def _failure(answer: Response) -> _Failed:
    try:
        return msgspec.json.decode(answer.body, type=_Failed)
    except UNDECODABLE:
        return _Failed()
