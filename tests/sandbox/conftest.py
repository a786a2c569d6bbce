"""A running API server and a client for it, for every test of the sandbox."""

from collections.abc import AsyncIterator

import httpx
import pytest

from sandbox.apiserver import ApiServer


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    # Nothing here is HTTPS; loading the trust store would take longer than the test.
    async with httpx.AsyncClient(base_url=api.url, verify=False, timeout=10) as http:
        yield http
