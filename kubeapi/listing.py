"""Consistent lists of a collection, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Generic, TypeVar

import msgspec

from gpushare.objects import UNDECODABLE
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError

T = TypeVar("T")

PAGE = 500
"""Objects per page, as client-go asks for; bounds the memory of one answer."""

_PAGE_SECONDS = 60.0


class UnreadableListError(ApiError):
    """The API server's list is not one that we can read."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list's objects. All pages of one list show the collection at the same version."""

    metadata: _ListMeta
    items: list[T] | None = None

    @property
    def version(self) -> str:
        """The resourceVersion the list was taken at."""
        return self.metadata.resource_version


class Lister(Generic[T]):
    """Lists one collection, decoding each object as `kind`."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        *,
        kind: type[T],
        selectors: Mapping[str, str] | None = None,
        page: int = PAGE,
    ) -> None:
        """`path` is the collection (`/api/v1/pods`), `selectors` extra query such as `fieldSelector`."""
        self._api = api
        self._path = path
        self._query = {**(selectors or {}), "limit": str(page)}
        self._decoder = msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]

    async def pages(self, *, timeout: float = _PAGE_SECONDS) -> AsyncIterator[Page[T]]:  # noqa: ASYNC109
        """Yield a whole list; no resourceVersion is asked for, which makes it a consistent read.

        `timeout` is in seconds for each page. Raises `ApiError`, among it `UnreadableListError`.
        """
        query = dict(self._query)
        while True:
            answer = await self._api.request("GET", self._path, query=query, timeout=timeout)
            page = self._decode(answer.checked().body)
            yield page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    def _decode(self, body: bytes) -> Page[T]:
        try:
            page: Page[T] = self._decoder.decode(body)
        except UNDECODABLE as error:
            raise UnreadableListError(f"a list cannot be read: {error}") from error
        if not page.version:
            raise UnreadableListError("a list has no resourceVersion to watch from")
        return page
