"""From a request to an answer: which verb, with which options, and how the result is written."""

from collections.abc import Callable
from typing import Any

import msgspec

from sandbox.apiserver.binding import bind
from sandbox.apiserver.deletion import delete, delete_collection
from sandbox.apiserver.discovery import HEALTH_PATHS, discover
from sandbox.apiserver.errors import (
    BadRequest,
    Expired,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
)
from sandbox.apiserver.faults import Caller
from sandbox.apiserver.history import list_item, present
from sandbox.apiserver.kinds import Kind, Manifest
from sandbox.apiserver.patches import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.routes import Request, Target, continue_token, find_target, parse_continue
from sandbox.apiserver.selectors import Selector, parse_selectors
from sandbox.apiserver.shapes import decode_binding, decode_delete_options, decode_json, decode_manifest
from sandbox.apiserver.store import Page
from sandbox.apiserver.watch import Watch

JSON = "application/json"
_TOO_OLD_TO_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole response."""

    status: int = 200
    body: bytes
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def encode(value: Any, *, status: int = 200) -> Answer:
    """A document as an answer."""
    return Answer(status=status, body=msgspec.json.encode(value))


class Handlers:
    """The API's endpoints over one registry."""

    def __init__(
        self, *, registry: Registry, bookmark_interval_s: float, frozen: Callable[[Caller], bool]
    ) -> None:
        self._registry = registry
        self._bookmark_interval_s = bookmark_interval_s
        self._frozen = frozen

    async def answer(self, request: Request, caller: Caller) -> Answer | Watch:
        """Carry out a request; raises ApiError."""
        target = find_target(method=request.method, path=request.path)
        if target is None:
            return _answer_fixed(request)
        _check_accepted(request)
        if request.method == "GET":
            if request.flag("watch"):
                return self._watch(request, target, caller)
            return self._get(target) if target.name else self._list(request, target)
        dry_run = _dry_run(request)
        if request.method == "DELETE":
            return self._delete(request, target, dry_run=dry_run)
        if request.method == "PATCH":
            return self._update(target, _patch(request), dry_run=dry_run)
        if request.media_type != JSON:
            raise UnsupportedMediaType.of([JSON])
        sent = decode_json(request.body)
        if request.method == "PUT":
            return await self._replace(target, sent, dry_run=dry_run)
        if target.subresource == "binding":
            return self._bind(target, sent, dry_run=dry_run)
        return await self._create(target, sent, dry_run=dry_run)

    def _get(self, target: Target) -> Answer:
        record = self._registry.get(target.kind, namespace=target.namespace, name=target.name)
        return Answer(body=present(target.kind, record.body))

    async def _create(self, target: Target, sent: Any, *, dry_run: bool) -> Answer:
        warnings: list[str] = []
        record = await self._registry.create(
            target.kind, sent, namespace=target.namespace, dry_run=dry_run, warnings=warnings
        )
        headers = tuple(("warning", f'299 - "{_quoted(warning)}"') for warning in warnings)
        return Answer(status=201, body=present(target.kind, record.body), headers=headers)

    async def _replace(self, target: Target, sent: Any, *, dry_run: bool) -> Answer:
        metadata = decode_manifest(target.kind, sent)["metadata"]
        stored = self._registry.store.get(target.kind, namespace=target.namespace, name=target.name)
        if stored is None and target.kind.creates_on_update:
            metadata = {**sent["metadata"], "name": target.name, "resourceVersion": None}
            return await self._create(target, {**sent, "metadata": metadata}, dry_run=dry_run)
        return self._update(target, lambda _: sent, uid=metadata.get("uid", ""), dry_run=dry_run)

    def _update(
        self, target: Target, change: Callable[[Manifest], Any], *, uid: str = "", dry_run: bool
    ) -> Answer:
        record = self._registry.update(
            target.kind,
            change,
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            uid=uid,
            dry_run=dry_run,
        )
        return Answer(body=present(target.kind, record.body))

    def _bind(self, target: Target, sent: Any, *, dry_run: bool) -> Answer:
        binding = decode_binding(sent)
        name = target.name or binding.metadata.name
        bind(self._registry, binding, namespace=target.namespace, name=name, dry_run=dry_run)
        return encode(_success({"code": 201}), status=201)

    def _delete(self, request: Request, target: Target, *, dry_run: bool) -> Answer:
        options = decode_delete_options(request.body)
        if (grace := request.number("gracePeriodSeconds", signed=True)) is not None:
            options = msgspec.structs.replace(options, grace_period_seconds=grace)
        kind = target.kind
        if not target.name:
            selector = _selector(request, target)
            deletions = delete_collection(
                self._registry, kind, options, namespace=target.namespace, selector=selector, dry_run=dry_run
            )
            return _list_answer(kind, self._registry.store.version, [deletion.body for deletion in deletions])
        deletion = delete(
            self._registry, kind, options, namespace=target.namespace, name=target.name, dry_run=dry_run
        )
        if kind.returns_deleted or not deletion.gone:
            return Answer(body=present(kind, deletion.body))
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": deletion.record.uid}
        return encode(_success({"details": {key: value for key, value in details.items() if value}}))

    def _list(self, request: Request, target: Target) -> Answer:
        kind, limit = target.kind, request.number("limit") or 0
        page = self._page(request, target, limit=limit)
        metadata: Manifest = {"resourceVersion": str(page.version)}
        if page.next_key is not None:
            metadata["continue"] = continue_token(version=page.version, start=page.next_key)
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        return _list_answer(kind, page.version, [record.body for record in page.records], metadata=metadata)

    def _page(self, request: Request, target: Target, *, limit: int) -> Page:
        store, selector = self._registry.store, _selector(request, target)
        version, start = request.number("resourceVersion"), ""
        if "resourceVersionMatch" in request.query and version is None:
            raise Invalid(
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if token := request.query.get("continue"):
            if version:
                raise BadRequest("specifying resource version is not allowed when using continue")
            version, start = parse_continue(token)
        elif version and request.query.get("resourceVersionMatch") != "Exact" and version <= store.version:
            version = None  # at least as new as asked
        try:
            return store.page(
                target.kind,
                namespace=target.namespace,
                selector=selector,
                version=version if version and version > 0 else None,
                start=start,
                limit=limit,
            )
        except Expired as error:
            if not start:
                raise
            raise Expired(
                _TOO_OLD_TO_CONTINUE, continue_token=continue_token(version=-1, start=start)
            ) from error

    def _watch(self, request: Request, target: Target, caller: Caller) -> Watch:
        version = request.number("resourceVersion") or None
        wants_initial = request.flag("sendInitialEvents")
        if wants_initial:
            version = None
        elif version is None and "sendInitialEvents" in request.query:
            version = self._registry.store.version
        bookmarks = request.flag("allowWatchBookmarks")
        return Watch(
            store=self._registry.store,
            kind=target.kind,
            namespace=target.namespace,
            selector=_selector(request, target),
            caller=caller,
            version=version,
            timeout_s=request.number("timeoutSeconds") or None,
            bookmark_s=self._bookmark_interval_s if bookmarks else None,
            marks_initial_end=wants_initial and bookmarks,
            frozen=self._frozen,
        )


def _answer_fixed(request: Request) -> Answer:
    healthy = request.path in HEALTH_PATHS
    document = None if healthy else discover(request.path)
    if request.method != "GET":
        raise MethodNotAllowed
    return Answer(body=b"ok", media_type="text/plain; charset=utf-8") if healthy else encode(document)


def _check_accepted(request: Request) -> None:
    accepted = request.headers.get("accept", "*/*")
    if not any(media in accepted for media in (JSON, "*/*", "application/*")):
        raise NotAcceptable


def _selector(request: Request, target: Target) -> Selector:
    fields = request.query.get("fieldSelector", "")
    if target.name:  # a watch on one object
        fields = f"metadata.name={target.name}"
    return parse_selectors(kind=target.kind, labels=request.query.get("labelSelector", ""), fields=fields)


def _dry_run(request: Request) -> bool:
    asked = request.query.get("dryRun", "")
    if asked not in ("", "All"):
        raise BadRequest(f'dryRun: Unsupported value: "{asked}": supported values: "All"')
    return bool(asked)


def _patch(request: Request) -> Callable[[Manifest], Any]:
    patches = {JSON_PATCH: json_patch, MERGE: merge_patch, STRATEGIC: strategic_merge_patch}
    apply = patches.get(request.media_type)
    if apply is None:
        raise UnsupportedMediaType.of(list(patches))
    patch = decode_json(request.body)
    if request.media_type != JSON_PATCH and not isinstance(patch, dict):
        raise BadRequest("a merge patch is an object")
    return lambda current: apply(current, patch)


def _list_answer(
    kind: Kind, version: int, bodies: list[bytes], *, metadata: Manifest | None = None
) -> Answer:
    head: Manifest = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
    head["metadata"] = metadata or {"resourceVersion": str(version)}
    items = b",".join(bodies if not kind.renames else [list_item(kind, body) for body in bodies])
    return Answer(body=msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}")


def _success(extra: Manifest) -> Manifest:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **extra}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
