"""The three patches of Kubernetes' PATCH, as pure functions: JSON merge, strategic merge, JSON patch.

None of them changes its arguments.
"""

import copy
from collections.abc import Callable
from typing import Any

from sandbox.apiserver.errors import BadRequest, Invalid
from sandbox.apiserver.kinds import Manifest

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

MERGE_KEYS: dict[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""``patchMergeKey`` of the served types (k8s.io/api, 1.36). Lists not named here are replaced whole:
in particular ``tolerations`` and ``taints``, which have no merge key."""

MERGED_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values whose ``patchStrategy`` is merge."""


_LIST_DIRECTIVES = ("$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: objects merge, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_merge_patch(target: Any, patch: Manifest) -> Manifest:
    """Kubernetes' own merge: lists of objects merge by the key of their type, and ``$`` directives."""
    directive = patch.get("$patch")
    if directive not in (None, "merge", "replace", "delete"):
        raise BadRequest(f"Unknown patch type: {directive}")
    if directive == "delete":
        return {}
    for name, value in patch.items():
        if name.startswith(_LIST_DIRECTIVES) and not isinstance(value, list):
            raise BadRequest(f"{name} is not a list")
    merged = dict(target) if isinstance(target, dict) and directive != "replace" else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        merged = {name: value for name, value in merged.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = [item for item in _as_list(merged.get(field)) if item not in value]
        elif name.startswith("$setElementOrder/") or name in ("$patch", "$retainKeys"):
            continue  # order is restored below, once the list has been merged
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = strategic_merge_patch(merged.get(name), value)
        elif isinstance(value, list):
            merged[name] = _merge_list(name, _as_list(merged.get(name)), value)
        else:
            merged[name] = value
    for name, order in patch.items():
        field = name.removeprefix("$setElementOrder/")
        if field != name and isinstance(merged.get(field), list):
            server = _as_list(target.get(field)) if isinstance(target, dict) else []
            merged[field] = _in_order(field, merged[field], first=order, server=server)
    return merged


def _merge_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in MERGED_SETS:
        merged = [*target, *(item for item in patch if item not in target)]
        return _in_order(field, merged, first=patch, server=target)
    key = MERGE_KEYS.get(field)
    if not key or not all(isinstance(item, dict) for item in (*patch, *target)):
        return patch
    items = [item for item in patch if not (item.get("$patch") == "replace" and key not in item)]
    merged = list(target) if len(items) == len(patch) else []
    for item in items:
        if key not in item:
            raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
        index = next((at for at, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != item[key]]
        elif index is None:
            merged.append(strategic_merge_patch({}, item))
        else:
            merged[index] = strategic_merge_patch(merged[index], item)
    return _in_order(field, merged, first=items, server=target)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _in_order(field: str, items: list[Any], *, first: list[Any], server: list[Any]) -> list[Any]:
    """Kubernetes' order after a merge: what the patch names as it names it, the rest woven in.

    One of the rest comes before one of the patch's only if the server already had both in that order
    (mergeSortedSlice, 1.36).
    """
    key = MERGE_KEYS.get(field)

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    named, known = [identity(item) for item in first], [identity(item) for item in server]
    ours = sorted(
        (item for item in items if identity(item) in named), key=lambda item: named.index(identity(item))
    )
    rest = [item for item in items if identity(item) not in named]
    woven: list[Any] = []
    while ours and rest:
        left, right = identity(rest[0]), identity(ours[0])
        stays_before = left in known and right in known and known.index(left) < known.index(right)
        woven.append((rest if stays_before else ours).pop(0))
    return woven + ours + rest


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. Raises BadRequest for what is no list and Invalid for what does not apply."""
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
            raise _refused(f"{operation!r} is no operation")
        for member in ("path", *_MEMBERS[operation["op"]]):
            if member not in operation:
                raise _refused(f"{operation['op']} lacks {member!r}")
        try:
            document = _OPERATIONS[operation["op"]](document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            text = error.args[0] if error.args else "does not apply"
            raise _refused(f"{operation['op']} {operation['path']!r}: {text}") from error
    return document


def _refused(why: str) -> Invalid:
    # Kubernetes stops at the colon; a reader wants to know.
    return Invalid(f"the server rejected our request due to an error in our request: {why}", details={})


def _tokens(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise ValueError(f"not a JSON pointer: {pointer!r}")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _index(token: str, *, size: int) -> int:
    if not token.isascii() or not token.isdigit() or (token != "0" and token.startswith("0")):
        raise ValueError(f"not an index: {token!r}")
    if int(token) >= size:
        raise IndexError(f"index {token} is out of range")
    return int(token)


def _find(document: Any, tokens: list[str]) -> Any:
    for token in tokens:
        if isinstance(document, list):
            document = document[_index(token, size=len(document))]
        elif isinstance(document, dict) and token in document:
            document = document[token]
        else:
            raise KeyError(f"there is no {token!r}")
    return document


def _add(document: Any, operation: Manifest) -> Any:
    return _put(document, _tokens(operation["path"]), copy.deepcopy(operation["value"]))


def _put(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent, last = _find(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, size=len(parent) + 1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise KeyError(f"there is no object to hold {last!r}")
    return document


def _take(document: Any, tokens: list[str]) -> Any:
    if not tokens:
        raise ValueError("the whole document cannot be removed")
    parent, last = _find(document, tokens[:-1]), tokens[-1]
    _find(parent, [last])
    if isinstance(parent, list):
        return parent.pop(int(last))
    return parent.pop(last)


def _remove(document: Any, operation: Manifest) -> Any:
    _take(document, _tokens(operation["path"]))
    return document


def _replace(document: Any, operation: Manifest) -> Any:
    tokens = _tokens(operation["path"])
    if not tokens:
        return copy.deepcopy(operation["value"])
    _find(document, tokens)
    parent = _find(document, tokens[:-1])
    parent[int(tokens[-1]) if isinstance(parent, list) else tokens[-1]] = copy.deepcopy(operation["value"])
    return document


def _move(document: Any, operation: Manifest) -> Any:
    source, target = _tokens(operation["from"]), _tokens(operation["path"])
    if target[: len(source)] == source and len(target) > len(source):
        raise ValueError("a value cannot be moved into itself")
    _find(document, source)
    return _put(document, target, _take(document, source)) if source != target else document


def _copy(document: Any, operation: Manifest) -> Any:
    value = copy.deepcopy(_find(document, _tokens(operation["from"])))
    return _put(document, _tokens(operation["path"]), value)


def _test(document: Any, operation: Manifest) -> Any:
    if not _equal(_find(document, _tokens(operation["path"])), operation["value"]):
        raise ValueError("testing value failed")
    return document


def _equal(left: Any, right: Any) -> bool:
    """JSON equality: Python's own takes ``true`` for 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


_OPERATIONS: dict[str, Callable[[Any, Manifest], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
_MEMBERS = {
    "add": ("value",),
    "remove": (),
    "replace": ("value",),
    "move": ("from",),
    "copy": ("from",),
    "test": ("value",),
}
