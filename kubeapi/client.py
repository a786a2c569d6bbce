"""Raw HTTP to the API server with the official client's credentials, TLS and token refresh.

The official client finds the cluster and authenticates; its typed models are left aside. They decode 20
times slower than narrow structs, and its typed Binding call raises after the bind has succeeded (it
expects a Binding and gets a Status; `kubernetes` 37).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import client, config

from gpushare.objects import UNDECODABLE
from kubeapi.credentials import keep_fresh
from kubeapi.errors import ApiError, ApiRefused, ApiUnreachable
from kubeapi.userconfig import current_context, files_of, nowhere, read_kubeconfig

DEFAULT_TIMEOUT = 10.0
"""Seconds for one exchange, connecting included."""

_IN_POD = "KUBERNETES_SERVICE_HOST"
"""Set in every container (kubelet 1.36)."""

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """An answer of the API server, whatever its status."""

    status: int
    body: bytes
    retry_after: float | None = None

    def checked(self) -> Response:
        """Return itself, or raise `ApiRefused` for a status of 400 or more."""
        if self.status < 400:
            return self
        status = _decode_status(self.body)
        raise ApiRefused(
            status=self.status,
            reason=status.reason or "Unknown",
            message=status.message or self.body[:200].decode(errors="replace"),
            retry_after=self.retry_after,
        )

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class _Status(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


def _decode_status(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except UNDECODABLE:
        return _Status()


class KubeApi:
    """A connection to one cluster. Use it as an async context manager, or call `close`."""

    def __init__(self, configuration: Any, *, user_agent: str) -> None:
        self._client = client.ApiClient(configuration)
        self._client.user_agent = user_agent

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None, *, user_agent: str, context: str | None = None
    ) -> KubeApi:
        """Find the cluster: from a kubeconfig, or from inside a pod when that is `None`.

        Nothing is sent yet. Raises `ApiError` naming the file, or the missing service account.
        """
        if kubeconfig is not None:
            return await cls._from_files([kubeconfig], user_agent=user_agent, context=context)
        configuration = _configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
            return cls(configuration, user_agent=user_agent)
        except Exception as error:  # the official loaders raise whatever a broken file leads them to
            raise ApiError(
                f"in-cluster configuration is not usable: {str(error) or repr(error)} "
                f"(outside a cluster, give --kubeconfig FILE)"
            ) from error

    @classmethod
    async def connect_as_user(
        cls, *, user_agent: str, kubeconfig: Path | None = None, context: str | None = None
    ) -> KubeApi:
        """Find the cluster as kubectl does for whoever typed the command (`kubeapi.userconfig`), a pod's own
        service account last. Raises as `connect`."""
        files = files_of(kubeconfig, environ=os.environ, home=Path.home())
        if not files and context is None and _IN_POD in os.environ:
            return await cls.connect(None, user_agent=user_agent)
        if not files:
            raise ApiError(nowhere(environ=os.environ, context=context))
        if context is None and len(files) > 1:
            context = current_context(files)
        return await cls._from_files(files, user_agent=user_agent, context=context)

    @classmethod
    async def _from_files(cls, files: Sequence[Path], *, user_agent: str, context: str | None) -> KubeApi:
        for file in files:
            if file.is_file() or not file.exists():  # a pipe can be read only once
                read_kubeconfig(file)  # the official loader's words for an empty file, or none, help nobody
        configuration = _configuration()
        try:
            loader = await config.load_kube_config(
                config_file=os.pathsep.join(map(str, files)),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
            keep_fresh(configuration, loader)
            return cls(configuration, user_agent=user_agent)  # reads the certificates
        except Exception as error:  # as above
            source = ", ".join(map(str, files))
            raise ApiError(f"kubeconfig {source} is not usable: {str(error) or repr(error)}") from error

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return str(self._client.configuration.host)

    async def __aenter__(self) -> KubeApi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 — aiohttp enforces it, connecting included
    ) -> Response:
        """Send one request and read the whole answer; `body` is encoded as JSON.

        Raises `ApiUnreachable` when no complete answer came within `timeout` seconds. An answer of any
        status is returned: `Response.checked` turns refusals into errors.
        """
        try:
            async with self._send(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                limits=aiohttp.ClientTimeout(total=timeout),
            ) as answer:
                return Response(
                    status=answer.status, body=await answer.read(), retry_after=_retry_after(answer)
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error, f"{method} {path}") from error

    async def lines(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        idle: float,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes]:
        """Open a watch and yield its lines until the API server ends it.

        `opened` is called once it has begun, which in a quiet cluster is long before the first line.
        Raises `ApiRefused` if it does not start, and `ApiUnreachable` when it is cut or silent for `idle`
        seconds.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=DEFAULT_TIMEOUT, sock_read=idle)
        try:
            async with self._send("GET", path, query=query, limits=limits) as answer:
                if answer.status >= 400:
                    Response(
                        status=answer.status, body=await answer.read(), retry_after=_retry_after(answer)
                    ).checked()
                if opened is not None:
                    opened()
                rest = b""
                async for chunk in answer.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        if line:
                            yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error, f"watch of {path}") from error

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            method, url, headers, body, _ = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Content-Type": content_type, "Accept": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
        except config.ConfigException as error:  # a token is being replaced
            raise self._unreachable(error, f"credentials for {method} {path}") from error
        answer = await self._client.call_api(method, url, headers, body, _request_timeout=limits)
        async with answer.response as response:
            yield response

    def _unreachable(self, error: BaseException, what: str) -> ApiUnreachable:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return ApiUnreachable(f"API server {self.host} is out of reach ({what}): {why}")


def _configuration() -> Any:
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 100
    return configuration


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        seconds = float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
    return seconds if 0 <= seconds < math.inf else None
