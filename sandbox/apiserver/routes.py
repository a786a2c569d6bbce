"""URLs and queries, taken apart; nothing here touches an object."""

import base64
import binascii
import re
from urllib.parse import parse_qs

import msgspec

from sandbox.apiserver.errors import BadRequest, MethodNotAllowed, NotFound
from sandbox.apiserver.kinds import Kind, find_kind

_TOKEN_FORMAT = "meta.k8s.io/v1"
_SUBRESOURCES = {"status": ("GET", "PUT", "PATCH"), "binding": ("POST",)}
_ON_COLLECTION = ("GET", "POST", "DELETE")
_ON_OBJECT = ("GET", "PUT", "PATCH", "DELETE")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has been read to its end."""

    method: str
    path: str
    target: str
    """Path and query as they were sent."""
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Content type without parameters; JSON when none is given."""
        return self.headers.get("content-type", "application/json").partition(";")[0].strip().lower()

    def flag(self, name: str) -> bool:
        """A query parameter as Go reads a boolean."""
        return self.query.get(name, "").lower() in ("1", "t", "true")

    def number(self, name: str, *, signed: bool = False) -> int | None:
        """A query parameter as a whole number; None when absent. Raises BadRequest."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not re.fullmatch(r"-?[0-9]+" if signed else r"[0-9]+", text):
            raise BadRequest(f'{name}: Invalid value: "{text}": must be a whole number')
        return int(text)


def parse_query(text: bytes) -> dict[str, str]:
    """The first value of each parameter."""
    pairs = parse_qs(text.decode("latin-1"), keep_blank_values=True)
    return {name: values[0] for name, values in pairs.items()}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL names: a collection (no name), an object, or a sub-resource of it."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find_target(*, method: str, path: str) -> Target | None:
    """The resource that a URL names; None when it names none (discovery).

    Raises NotFound for unknown resources and MethodNotAllowed for what they do not serve.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    target = _place(group, version, rest)
    if target.subresource:
        allowed = _SUBRESOURCES[target.subresource]
    elif target.name:
        allowed = _ON_OBJECT
    else:
        allowed = _ON_COLLECTION
        if method == "POST" and target.kind.namespaced and not target.namespace:
            raise MethodNotAllowed
    if method not in allowed:
        raise MethodNotAllowed
    return target


def _place(group: str, version: str, rest: list[str]) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if (group, rest) == ("", ["bindings"]) and namespace:
        return Target(kind=_served("", version, "pods"), namespace=namespace, subresource="binding")
    kind = _served(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    has = {"status": kind.has_status, "binding": kind.plural == "pods"}
    if (
        len(rest) > 3
        or (len(rest) > 1 and not name)
        or (subresource and not has.get(subresource))
        or (bool(namespace) and not kind.namespaced)
        or (name and kind.namespaced and not namespace)
    ):
        raise NotFound.route()
    return Target(kind=kind, namespace=namespace, name=name, subresource=subresource)


def _served(group: str, version: str, plural: str) -> Kind:
    kind = find_kind(group=group, version=version, plural=plural)
    if kind is None:
        raise NotFound.route()
    return kind


def continue_token(*, version: int, start: str) -> str:
    """The opaque place where the next page starts."""
    token = msgspec.json.encode({"v": _TOKEN_FORMAT, "rv": version, "start": start})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def parse_continue(token: str) -> tuple[int, str]:
    """Version and start key of a token; a negative version means the newest. Raises BadRequest."""
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if found["v"] == _TOKEN_FORMAT and isinstance(found["start"], str):
            return int(found["rv"]), found["start"]
    except (binascii.Error, ValueError, KeyError, TypeError, msgspec.DecodeError):
        pass
    raise BadRequest("invalid continue token: continue key is not valid: it is no token of this server")
