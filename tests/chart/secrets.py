"""A cluster for Helm's `lookup`: an API server of which only the objects of a few kinds can be read."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import helm_python
from helm_python import _native

from tests.chart.rendering import CHART, NAMESPACE, Object, Release, Values, full_version, parse

_RUNTIMES = "node.k8s.io/v1"
_RESOURCES = {
    "v1": {"Secret": "secrets", "Service": "services", "Namespace": "namespaces"},
    _RUNTIMES: {"RuntimeClass": "runtimeclasses"},
}
_ROOTS = {"v1": "/api/v1", _RUNTIMES: f"/apis/{_RUNTIMES}"}
_CLUSTER_SCOPED = frozenset({"Namespace", "RuntimeClass"})


def upgrade(
    values: Values | None = None, *, there: Iterable[Object], kubernetes: str = "1.30", at: str = NAMESPACE
) -> Release:
    """What an upgrade would send to a cluster that holds the objects `there`."""
    version = full_version(kubernetes)
    options = {"name": "gpushare", "namespace": at, "is_upgrade": True, "kube_version": version}
    given = json.dumps(values or {})
    with (
        _serving(there, version=version) as kubeconfig,
        helm_python.Config(namespace=at, kubeconfig_content=kubeconfig, storage_driver="memory") as config,
        helm_python.Chart.load(CHART) as chart,
    ):
        answer = _native.call_string(
            "helm_render_with_config", config._raw(), chart._raw(), given, json.dumps(options)
        )
    return parse(json.loads(answer), kubernetes=kubernetes)


def _group(version: str) -> Object:
    this = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [this], "preferredVersion": this}


def _path(item: Object) -> str:
    meta = item["metadata"]
    namespace = "" if item["kind"] in _CLUSTER_SCOPED else f"/namespaces/{meta['namespace']}"
    resource = _RESOURCES[item["apiVersion"]][item["kind"]]
    return f"{_ROOTS[item['apiVersion']]}{namespace}/{resource}/{meta['name']}"


@contextlib.contextmanager
def _serving(objects: Iterable[Object], *, version: str) -> Iterator[str]:
    """Serve them until the end of the block; yields a kubeconfig."""
    served: dict[str, Any] = {
        "/version": {"major": "1", "minor": version.split(".")[1], "gitVersion": version},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(_RUNTIMES)]},
    }
    for group, resources in _RESOURCES.items():
        served[_ROOTS[group]] = {
            "kind": "APIResourceList",
            "groupVersion": group,
            "resources": [
                {
                    "name": name,
                    "kind": kind,
                    "namespaced": kind not in _CLUSTER_SCOPED,
                    "verbs": ["get", "list"],
                }
                for kind, name in resources.items()
            ],
        }
    served |= {
        _path(each): each for each in objects if each["kind"] in _RESOURCES.get(each["apiVersion"], ())
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = served.get(self.path.partition("?")[0])
            status = 200 if found else 404
            body = json.dumps(
                found
                or {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "status": "Failure",
                    "reason": "NotFound",
                    "code": 404,
                }
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
