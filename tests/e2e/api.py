"""Raw requests to the API server as one user, and those few shapes that the tests need of them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.extender.pki import Pair

Object = dict[str, Any]
NAMESPACE = "default"
_PATIENCE = 20.0


class Api:
    """The API server, as one user sees it: by certificate, or by token."""

    def __init__(self, url: str, *, ca: Path, pair: Pair | None = None, token: str = "") -> None:
        context = ssl.create_default_context(cafile=str(ca))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, verify=context, headers=headers, timeout=_PATIENCE)
        self._kinds: dict[str, dict[str, Object]] = {}

    def close(self) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """One exchange, whatever the status."""
        return self._http.request(method, path, json=body, **options)

    def get(self, path: str, **query: str) -> Object:
        return _checked(self._http.get(path, params=query))

    def collection(self, item: Mapping[str, Any], *, namespace: str = NAMESPACE) -> str:
        """The path that an object like this is posted to, as the API server's discovery has it."""
        version, kind = item["apiVersion"], item["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if root not in self._kinds:
            served = self.get(root)["resources"]
            self._kinds[root] = {each["kind"]: each for each in served if "/" not in each["name"]}
        resource = self._kinds[root][kind]
        if not resource["namespaced"]:
            return f"{root}/{resource['name']}"
        return f"{root}/namespaces/{item['metadata'].get('namespace', namespace)}/{resource['name']}"

    def create(self, item: Mapping[str, Any], *, namespace: str = NAMESPACE) -> Object:
        return _checked(self.ask("POST", self.collection(item, namespace=namespace), item))

    def ensure(self, item: Mapping[str, Any], *, namespace: str = NAMESPACE) -> None:
        """Create it, unless something of that name is there."""
        answer = self.ask("POST", self.collection(item, namespace=namespace), item)
        if answer.status_code != 409:
            _checked(answer)

    def merge(self, path: str, patch: Mapping[str, Any]) -> Object:
        return _checked(self.try_merge(path, patch))

    def try_merge(self, path: str, patch: Mapping[str, Any]) -> httpx.Response:
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._http.patch(path, json=patch, headers=headers)

    def delete(self, path: str, **query: str) -> None:
        """Delete it, if it is there."""
        answer = self._http.delete(path, params=query)
        assert answer.status_code in (200, 202, 404), answer.text

    def pods(self, *, namespace: str = NAMESPACE, **query: str) -> list[Object]:
        items: list[Object] = self.get(f"/api/v1/namespaces/{namespace}/pods", **query)["items"]
        return items

    def pod(self, name: str, *, namespace: str = NAMESPACE) -> Object:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def clear_pods(self, *, namespace: str = NAMESPACE) -> None:
        """Delete all pods at once, with nobody on their nodes to wait for."""
        self.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds="0")


def _checked(answer: httpx.Response) -> Object:
    assert answer.status_code < 400, f"{answer.request.method} {answer.request.url}: {answer.text}"
    found: Object = answer.json()
    return found
