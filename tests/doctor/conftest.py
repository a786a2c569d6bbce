from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.apiserver import ApiServer
from tests.doctor.clinic import Clinic, open_clinic
from tests.extender.cluster import Cluster


@pytest.fixture
async def clinic(tmp_path: Path) -> AsyncIterator[Clinic]:
    """A cluster in which all is well, with the real extender."""
    async with (
        ApiServer() as api,
        httpx.AsyncClient(timeout=30) as http,
        open_clinic(Cluster(api, folder=tmp_path, http=http), folder=tmp_path) as clinic,
    ):
        yield clinic
