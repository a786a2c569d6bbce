"""One server and one client per module: reading the system's certificates takes a third of a second."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kubeapi.client import KubeApi
from tests.kubeapi.scripted import Script, scripted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Script]:
    async with scripted() as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(server: Script, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeApi]:
    kubeconfig = server.kubeconfig(tmp_path_factory.mktemp("cluster"))
    async with await KubeApi.connect(kubeconfig, user_agent="gpushare-test/1") as connected:
        yield connected


@pytest.fixture
def script(server: Script) -> Script:
    """The server with an empty script."""
    server.answers.clear()
    server.asked.clear()
    return server
