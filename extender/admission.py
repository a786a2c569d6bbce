"""Admission: gives every container that asks for memory the slot that kubelet needs to see.

`AdmissionReview` v1 in and out. The answer is a JSON patch that touches nothing but the slot. A container
that asks for zero units needs no card and gets no slot.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from extender.wire import WireError
from gpushare.errors import QuantityError
from gpushare.names import Names
from gpushare.objects import UNDECODABLE, Container, PodSpec
from gpushare.quantities import parse_units


class _ReviewedPod(msgspec.Struct, frozen=True):
    spec: PodSpec = PodSpec()


class _Request(msgspec.Struct, frozen=True):
    uid: str
    object: _ReviewedPod | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: _Request
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


_decoder = msgspec.json.Decoder(_Review)


def mutate(body: bytes, *, names: Names) -> bytes:
    """Answer an AdmissionReview: allowed, with a patch where slots are missing. Raises `WireError`."""
    try:
        review = _decoder.decode(body)
    except UNDECODABLE as error:
        raise WireError(f"the AdmissionReview cannot be read: {error}") from error
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    pod = review.request.object
    patch = slot_patch(pod.spec, names=names) if pod else []
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": review.kind, "response": response})


def slot_patch(spec: PodSpec, *, names: Names) -> list[dict[str, str]]:
    """The JSON patch operations (RFC 6902) that add `gpu-slot: 1` where it is missing."""
    slot = names.slot.replace("~", "~0").replace("/", "~1")
    return [
        {"op": "add", "path": f"/spec/{group}/{position}/resources/limits/{slot}", "value": "1"}
        for group, containers in (("initContainers", spec.init_containers), ("containers", spec.containers))
        for position, container in enumerate(containers or ())
        if _lacks_slot(container, names=names)
    ]


def _lacks_slot(container: Container, *, names: Names) -> bool:
    memory = container.limits.get(names.memory)
    if memory is None or names.slot in container.limits:
        return False
    try:
        return parse_units(str(memory)) > 0
    except QuantityError:
        return False  # the API server refuses the pod in its own words
