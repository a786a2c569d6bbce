"""Memory really in use on each card, from the device plugins' metrics, through the API server's pod proxy.

Best effort: who may not, or a plugin that does not answer in time, costs the figure and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gpushare.objects import ObjectMeta, PodSpec, PodStatus
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from kubeapi.listing import Lister

METRIC = "gpushare_plugin_card_used_bytes"

_LABELS = "app.kubernetes.io/name=gpushare,app.kubernetes.io/component=device-plugin"
_PORT = 9449
_AT_ONCE = 32
_SECONDS_EACH = 3.0
_SECONDS = 10.0


class _Plugin(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None


async def used_bytes(
    api: KubeApi, *, namespace: str | None, nodes: set[str], say: Callable[[str], None]
) -> dict[tuple[str, str], float]:
    """Bytes in use by node and UUID, as far as the plugins on these nodes tell within 10 seconds."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    lister = Lister(api, path, kind=_Plugin, selectors={"labelSelector": _LABELS})
    try:
        plugins = [pod async for page in lister.pages(timeout=_SECONDS) for pod in page.items or ()]
    except ApiError as error:
        say(f"memory in use is not known: {error}")
        return {}
    used: dict[tuple[str, str], float] = {}
    gate = asyncio.Semaphore(_AT_ONCE)
    failures: list[str] = []

    async def ask(plugin: _Plugin) -> None:
        meta = plugin.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}:{_PORT}/proxy/metrics"
        try:
            async with gate:
                answer = await api.request("GET", path, timeout=_SECONDS_EACH)
            for uuid, size in _samples(answer.checked().body):
                used[plugin.spec.node_name or "", uuid] = size
        except (ApiError, ValueError) as error:
            failures.append(f"pod {meta.namespace}/{meta.name}: {error}")

    running = [plugin for plugin in plugins if plugin.spec.node_name in nodes]
    try:
        async with asyncio.timeout(_SECONDS):
            await asyncio.gather(*map(ask, running))
    except TimeoutError:
        failures.append(f"no more than {_SECONDS:.0f} seconds are spent on it")
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        say(f"memory in use is not known everywhere: {failures[0]}{more}")
    return used


def _samples(body: bytes) -> Iterator[tuple[str, float]]:
    """UUID and bytes of every card; raises `ValueError` for what is not Prometheus' text format."""
    try:
        text = body.decode()
    except UnicodeError as error:
        raise ValueError(f"metrics cannot be read: {error}") from error
    lines = "\n".join(line for line in text.splitlines() if METRIC in line)
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            if sample.name == METRIC:
                yield sample.labels.get("uuid", ""), sample.value
