"""The way through the API server to what stands behind a Service, streams included.

As in Kubernetes: the Service has the port, an EndpointSlice labelled with the Service's name the address.
Here that may be one of this machine's own, which Kubernetes would refuse.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
from yarl import URL

from sandbox.apiserver.errors import ServiceUnavailable
from sandbox.apiserver.kinds import Manifest, kind_of
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.routes import Request
from sandbox.apiserver.selectors import parse_selectors

SERVICES = kind_of("services")
SLICES = kind_of("endpointslices")

_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/services/([^/:]+)(?::([^/]*))?/proxy(?:/(.*))?")
_OF_ONE_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_KEPT_BACK = _OF_ONE_HOP | {"authorization", "cookie"}
"""The caller's credentials are for the API server alone."""
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """An answer that is being passed on."""

    status: int
    headers: tuple[tuple[str, str], ...]
    chunks: AsyncIterator[bytes]


def is_proxied(request: Request) -> bool:
    """Whether the request is for what stands behind a Service."""
    return _PATH.fullmatch(request.path) is not None


@contextlib.asynccontextmanager
async def passing(request: Request, *, registry: Registry) -> AsyncIterator[Passed]:
    """Send the request on; leaving ends the exchange. Raises NotFound and ServiceUnavailable."""
    found = _PATH.fullmatch(request.path)
    assert found is not None, "asked for with is_proxied"
    namespace, name, port, _ = found.groups()
    where = _address(registry, namespace=namespace, name=name, port=port or "")
    rest = request.target.split("/", 7)[7].removeprefix("proxy")  # as it was sent, the query too
    url = URL(f"http://{where}{rest if rest.startswith('/') else f'/{rest}'}", encoded=True)
    headers = {name: value for name, value in request.headers.items() if name not in _KEPT_BACK}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    body = request.body or None
    async with (
        aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
        contextlib.AsyncExitStack() as held,
    ):
        try:
            sent = session.request(request.method, url, headers=headers, data=body, allow_redirects=False)
            answer = await held.enter_async_context(sent)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServiceUnavailable(f"error trying to reach service: {error}") from error
        kept = ((name.lower(), value) for name, value in answer.headers.items())
        yield Passed(
            status=answer.status,
            headers=tuple(each for each in kept if each[0] not in _OF_ONE_HOP),
            chunks=answer.content.iter_any(),
        )


def _address(registry: Registry, *, namespace: str, name: str, port: str) -> str:
    """`HOST:PORT` of one endpoint. A number is the Service's port, else it is the name of an endpoint's."""
    service = registry.get(SERVICES, namespace=namespace, name=name).manifest()
    if port.isdigit():
        ports = (service.get("spec") or {}).get("ports") or ()
        named = [each.get("name", "") for each in ports if each.get("port") == int(port)]
        if not named:
            raise ServiceUnavailable(f'no service port {port} found for service "{name}"')
        port = named[0]
    selector = parse_selectors(kind=SLICES, labels=f"kubernetes.io/service-name={name}", fields="")
    slices = registry.store.page(SLICES, namespace=namespace, selector=selector).records
    addresses = [found for each in slices for found in _addresses(each.manifest(), port=port)]
    if not addresses:
        raise ServiceUnavailable(f'no endpoints available for service "{name}"')
    return random.choice(addresses)


def _addresses(found: Manifest, *, port: str) -> list[str]:
    numbers = [each["port"] for each in found.get("ports") or () if each.get("name", "") == port]
    ready = [
        each
        for each in found.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready", True)  # absent is ready (discovery.k8s.io/v1)
    ]
    hosts = [f"[{host}]" if ":" in host else host for each in ready for host in each["addresses"]]
    return [f"{host}:{number}" for host in hosts for number in numbers]
