"""HTTP: routes that decode, ask, and encode.

kube-scheduler throws away the body of anything but a 200, so every refusal of filter and bind is a 200 with
`Error`. No request changes anything but bind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from extender import admission
from extender.core import Extender, NotReadyError
from extender.exposition import CONTENT_TYPE, Exposition
from extender.inspect import inspection_chunks
from extender.metrics import answer
from extender.preempt import choose_nodes
from extender.verbs import filter_nodes, prioritize_nodes
from extender.wire import BindingResult, FilterResult, decode_args, decode_binding, decode_preemption
from gpushare import __version__
from gpushare.errors import GpuShareError, NoRoomError
from gpushare.inspection import Inspection, nodes_asked_for

log = logging.getLogger(__name__)

PREFIX = "/gpushare-scheduler"


Routes = Callable[[Extender], APIRouter]


def create_app(extender: Extender, *routes: Routes) -> FastAPI:
    """An application with the given routes over one extender, all of them if none is given; and probes."""
    app = FastAPI(title="gpushare scheduler extender", version=__version__, docs_url=None, redoc_url=None)
    for each in (probe_routes, *(routes or ALL_ROUTES)):
        app.include_router(each(extender))

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        log.error("fault path=%s error=%r", request.url.path, error)
        return PlainTextResponse(f"internal error: {error!r}", status_code=500)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: Exception) -> Response:
        log.info("client gone path=%s", request.url.path)
        return PlainTextResponse("the request did not arrive whole", status_code=400)

    return app


def verb_routes(extender: Extender) -> APIRouter:
    """What kube-scheduler calls."""
    routes = APIRouter()
    timed = extender.metrics.timed

    @routes.post(f"{PREFIX}/filter")
    @timed("filter")
    async def filter_(request: Request) -> Response:
        """Which nodes have a card with room (kube-scheduler's `filterVerb`)."""
        try:
            args = decode_args(await request.body())
            extender.check_ready()
            look = partial(
                filter_nodes,
                args,
                ledger=extender.ledger,
                nominations=extender.nominations,
                policy=extender.policy,
            )
            result = look()
            if result.none_fits_yet:
                result = await extender.second_look(look, first=result)
        except GpuShareError as error:
            log.info("filter error=%r", str(error))
            return _refusal(_json(FilterResult(error=str(error)), outcome=_outcome(error)), error)
        # Counted once the answer is out: kube-scheduler waits for that one.
        asyncio.get_running_loop().call_soon(extender.metrics.filtered, result)
        fit = len(args.names()) - len(result.failed_nodes) - len(result.failed_and_unresolvable_nodes)
        log.info(
            "filter pod=%s fit=%d failed=%d unresolvable=%d",
            args.pod.key,
            fit,
            len(result.failed_nodes),
            len(result.failed_and_unresolvable_nodes),
        )
        return _json(result, outcome="fit" if fit else "none_fit")

    @routes.post(f"{PREFIX}/prioritize")
    @timed("prioritize")
    async def prioritize(request: Request) -> Response:
        """Which node suits best, 0 to 10 (kube-scheduler's `prioritizeVerb`)."""
        try:
            args = decode_args(await request.body())
            extender.check_ready()
            scores = prioritize_nodes(
                args, ledger=extender.ledger, nominations=extender.nominations, policy=extender.policy
            )
            return _json(scores, outcome="ok")
        except GpuShareError as error:  # the answer has no place for an error: kube-scheduler logs the status
            log.info("prioritize error=%r", str(error))
            return _refusal(JSONResponse({"error": str(error)}, status_code=400), error)

    @routes.post(f"{PREFIX}/preempt")
    @timed("preempt")
    async def preempt(request: Request) -> Response:
        """Whom to evict so that a more important pod finds a card (kube-scheduler's `preemptVerb`)."""
        try:
            args = decode_preemption(await request.body())
            extender.check_ready()
            result = await choose_nodes(
                args, ledger=extender.ledger, nominations=extender.nominations, policy=extender.policy
            )
        except GpuShareError as error:  # as prioritize; kube-scheduler evicts nobody then and tries again
            log.info("preempt error=%r", str(error))
            return _refusal(JSONResponse({"error": str(error)}, status_code=400), error)
        return _json(result, outcome="ok" if result.node_name_to_meta_victims else "none_helps")

    @routes.post(f"{PREFIX}/bind")
    @timed("bind")
    async def bind(request: Request) -> Response:
        """Give a pod its node and cards (kube-scheduler's `bindVerb`)."""
        args = None
        try:
            args = decode_binding(await request.body())
            extender.check_ready()
            await extender.binder.bind(args)
        except GpuShareError as error:
            log.info("bind error=%r", str(error))
            extender.metrics.refused("bind", error)
            if args is not None and not isinstance(error, NotReadyError):
                extender.events.bind_refused(args, error)
            return _refusal(_json(BindingResult(error=str(error)), outcome=_outcome(error)), error)
        return _json(BindingResult(), outcome="bound")

    return routes


def admission_routes(extender: Extender) -> APIRouter:
    """What the API server calls for new pods."""
    routes = APIRouter()
    timed = extender.metrics.timed

    @routes.post("/admission/mutate")
    @timed("mutate")
    async def mutate(request: Request) -> Response:
        """Add to a pod what it lacks (AdmissionReview v1)."""
        try:
            review = await request.body()
            body = admission.mutate(review, names=extender.names, additions=extender.additions)
            return Response(body, media_type=_JSON)
        except GpuShareError as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    @routes.post("/admission/validate")
    @timed("validate")
    async def validate(request: Request) -> Response:
        """Refuse a pod that can never work, and warn of what is hardly meant (AdmissionReview v1)."""
        try:
            rules = admission.rules_of(extender.ledger, additions=extender.additions)
            body, allowed = admission.validate(await request.body(), rules=rules)
            return answer(body, outcome="allowed" if allowed else "denied")
        except GpuShareError as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    return routes


def probe_routes(extender: Extender) -> APIRouter:
    """What kubelet and load balancers ask, on every address."""
    routes = APIRouter()

    @routes.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """Whether the process answers at all."""
        return "ok"

    @routes.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> Response:
        """Whether new requests may be sent here; the reason where not."""
        problem = extender.unready
        said = problem or ("ok" if extender.is_active else "standby")
        return PlainTextResponse(said, status_code=503 if problem else 200)

    return routes


def view_routes(extender: Extender) -> APIRouter:
    """What people and monitoring read."""
    routes = APIRouter()
    exposition = Exposition(extender)

    @routes.get("/metrics")
    async def metrics() -> Response:
        """Prometheus' text format: `extender.metrics.CATALOGUE` lists what there is."""
        return StreamingResponse(exposition.chunks(), media_type=CONTENT_TYPE)

    def inspection(only: str | None) -> Response:
        if problem := extender.unsynced:  # what is not known yet would look like an empty cluster
            return JSONResponse({"error": problem}, status_code=503)
        nodes = nodes_asked_for(extender.ledger, only=only)
        if nodes is None:
            return JSONResponse({"error": f"node {only!r} is not known"}, status_code=404)
        chunks = inspection_chunks(extender, nodes=nodes, by_name=only is not None)
        return StreamingResponse(chunks, media_type=_JSON)

    @routes.get(f"{PREFIX}/inspect", response_model=Inspection, responses=_NOT_SYNCED)
    async def inspect_all() -> Response:
        """Every node that shares cards, its cards, the pods on them, and the pods that wait."""
        return inspection(None)

    @routes.get(
        f"{PREFIX}/inspect/{{node}}",
        response_model=Inspection,
        responses=_NO_SUCH_NODE | _NOT_SYNCED,
        openapi_extra={"parameters": [_NODE]},
    )
    async def inspect_node(request: Request) -> Response:
        """One node, whether it shares cards or not; the waiting pods with what this node says to them."""
        return inspection(request.path_params["node"])

    @routes.get("/version")
    async def version() -> dict[str, str]:
        """The program's version."""
        return {"version": __version__}

    return routes


ALL_ROUTES: tuple[Routes, ...] = (verb_routes, admission_routes, view_routes)

_JSON = "application/json"


class Problem(BaseModel):
    """What is answered instead."""

    error: str = Field(description="What is wrong, in words.")


_NOT_SYNCED: dict[int | str, dict[str, Any]] = {
    503: {"description": "The watches have not synced yet: `error` says which.", "model": Problem},
}
_NODE = {
    "name": "node",
    "in": "path",
    "required": True,
    "description": "The node's name.",
    "schema": {"type": "string"},
}
"""Described by hand: for a parameter of its own FastAPI would document a 422 that is never answered."""
_NO_SUCH_NODE: dict[int | str, dict[str, Any]] = {
    404: {"description": "No such node: `error` says so.", "model": Problem},
}


def _json(value: object, *, outcome: str) -> Response:
    return answer(msgspec.json.encode(value), outcome=outcome)


def _refusal(response: Response, error: GpuShareError) -> Response:
    """Of a replica that does not answer it ends the connection: kube-scheduler keeps its connections, and a
    Service sends only new ones to another replica."""
    if isinstance(error, NotReadyError):
        response.headers["Connection"] = "close"
    return response


def _outcome(error: GpuShareError) -> str:
    """What came of a request that was answered with an error, for the metrics."""
    if isinstance(error, NotReadyError):
        return "not_ready"
    return "refused" if isinstance(error, NoRoomError) else "error"
