"""What tells clients which resources there are: versions, groups and resource lists."""

from sandbox.apiserver.errors import NotFound
from sandbox.apiserver.kinds import Kind, Manifest, served_kinds

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/livez"})


def discover(path: str) -> Manifest:
    """The document at a discovery path; raises NotFound for any other path."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "sandbox"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["api", version]:
            return _resources(group="", version=version)
        case ["apis"]:
            groups = [_group(name) for name in _groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["apis", group, version]:
            return _resources(group=group, version=version)
        case ["openapi", "v3"]:
            roots = list(dict.fromkeys(_root(kind) for kind in served_kinds()))
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}
        case ["openapi", "v3", *root]:
            return _openapi("/".join(root))
    raise NotFound.route()


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _openapi(root: str) -> Manifest:
    """As much of OpenAPI as makes kubectl leave the validation to the server: no schemas."""
    kinds = [kind for kind in served_kinds() if _root(kind) == root]
    if not kinds:
        raise NotFound.route()
    paths = {}
    for kind in kinds:
        scope = "namespaces/{namespace}/" if kind.namespaced else ""
        operation = {
            "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {
                "group": kind.group,
                "version": kind.version,
                "kind": kind.kind,
            },
        }
        paths[f"/{root}/{scope}{kind.plural}/{{name}}"] = {"patch": operation}
    return {"openapi": "3.0.0", "info": {"title": "sandbox", "version": "v1.36.2"}, "paths": paths}


def _groups() -> list[str]:
    return list(dict.fromkeys(kind.group for kind in served_kinds() if kind.group))


def _group(name: str) -> Manifest:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(*, group: str, version: str) -> Manifest:
    kinds = [kind for kind in served_kinds() if (kind.group, kind.version) == (group, version)]
    if not kinds:
        raise NotFound.route()
    resources = []
    for kind in kinds:
        resources.append(_resource(kind))
        if kind.has_status:
            resources.append(_subresource(kind, "status", kind=kind.kind, verbs=["get", "patch", "update"]))
        if kind.plural == "pods":
            resources.append(_subresource(kind, "binding", kind="Binding", verbs=["create"]))
    if not group:
        resources.append(
            {
                "name": "bindings",
                "singularName": "binding",
                "namespaced": True,
                "kind": "Binding",
                "verbs": ["create"],
            }
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _resource(kind: Kind) -> Manifest:
    row: Manifest = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
    }
    if kind.short_names:
        row["shortNames"] = list(kind.short_names)
    return row


def _subresource(parent: Kind, name: str, *, kind: str, verbs: list[str]) -> Manifest:
    return {
        "name": f"{parent.plural}/{name}",
        "singularName": "",
        "namespaced": parent.namespaced,
        "kind": kind,
        "verbs": verbs,
    }
