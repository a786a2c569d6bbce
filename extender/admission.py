"""Admission: AdmissionReview v1 in and out, for new pods.

*mutate* gives every container that asks for memory the slot that kubelet needs to see, and the pod the
scheduler's name where it has none: a JSON patch that touches nothing else. A container that asks for zero
units needs no card and gets no slot. The chart's MutatingAdmissionPolicy adds the same. *validate* tells
the user at `kubectl apply` what `extender.podrules` finds wrong. Operations other than CREATE are allowed
unseen: what a pod asks for cannot be changed later.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from extender.podrules import PodRules, ReviewedPod
from extender.wire import WireError
from gpushare.errors import QuantityError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.objects import UNDECODABLE, Container, ObjectMeta, PodSpec
from gpushare.quantities import parse_units

T = TypeVar("T")

INVALID = 422
"""What a refusal answers: the code of a ValidatingAdmissionPolicy that names none (reason Invalid, 1.36)."""

LONGEST_WARNING = 256
MOST_SENTENCES = 10
"""The API server cuts warnings to 256 characters each and 4,096 in all (1.36)."""


class _GroupVersionKind(msgspec.Struct, frozen=True):
    kind: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    kind: _GroupVersionKind = _GroupVersionKind()
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def creates_pod(self) -> bool:
        return self.operation == "CREATE" and self.kind.kind == "Pod" and not self.sub_resource


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: _Request
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


@dataclass(frozen=True, kw_only=True, slots=True)
class Additions:
    """What pods are given that lack it."""

    slots: bool = True
    """One for every container that asks for memory; none where the device plugins count units."""
    scheduler: str = ""
    """The scheduler's name; empty: none."""
    runtime_class: str = ""
    """The name of the RuntimeClass that brings the cards into containers; empty: none."""


class MutableSpec(PodSpec, frozen=True, kw_only=True, rename="camel"):
    """With what may be added to."""

    scheduler_name: str | None = None
    runtime_class_name: str | None = None


class _MutablePod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: MutableSpec = MutableSpec()


_review = msgspec.json.Decoder(_Review)
_mutable_pod = msgspec.json.Decoder(_MutablePod | None)
_reviewed_pod = msgspec.json.Decoder(ReviewedPod | None)


def mutate(body: bytes, *, names: Names, additions: Additions) -> bytes:
    """Answer an AdmissionReview: allowed, with a patch where something is missing. Raises `WireError`."""
    review = _decode(_review, body)
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    pod = _decode(_mutable_pod, review.request.object)
    patch = _patch(pod.spec, names=names, additions=additions) if pod else []
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _answer(review, response)


def validate(body: bytes, *, rules: PodRules) -> tuple[bytes, bool]:
    """Answer an AdmissionReview: whether the pod may be created, with what its user is to be told.

    The answer, and whether it allows the pod. Raises `WireError`.
    """
    review = _decode(_review, body)
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    if review.request.creates_pod:
        pod = _decode(_reviewed_pod, review.request.object)
        verdict = rules.judge(pod) if pod else None
        if verdict and verdict.refusals:
            response["allowed"] = False
            response["status"] = {
                "message": "; ".join(verdict.refusals[:MOST_SENTENCES]),
                "reason": "Invalid",
                "code": INVALID,
            }
        if verdict and verdict.warnings:
            response["warnings"] = [each[:LONGEST_WARNING] for each in verdict.warnings[:MOST_SENTENCES]]
    return _answer(review, response), response["allowed"]


def rules_of(ledger: Ledger, *, additions: Additions) -> PodRules:
    """The rules as the cluster is now. Where no slots are added, the nodes have none."""
    return PodRules(
        names=ledger.names,
        unit=ledger.unit,
        slots=additions.slots,
        largest_card=ledger.largest_card(),
    )


def _patch(spec: MutableSpec, *, names: Names, additions: Additions) -> list[dict[str, str]]:
    """The JSON patch operations (RFC 6902) that add what is missing."""
    slot = names.slot.replace("~", "~0").replace("/", "~1")
    asking = [
        (f"/spec/{group}/{position}", container)
        for group, containers in (("initContainers", spec.init_containers), ("containers", spec.containers))
        for position, container in enumerate(containers or ())
        if _asks_for_card(container, names=names)
    ]
    patch = [
        {"op": "add", "path": f"{place}/resources/limits/{slot}", "value": "1"}
        for place, container in asking
        if additions.slots and names.slot not in container.limits
    ]
    if asking and additions.scheduler and spec.scheduler_name in _NO_SCHEDULER:
        patch.append({"op": "add", "path": "/spec/schedulerName", "value": additions.scheduler})
    if asking and additions.runtime_class and not spec.runtime_class_name:
        patch.append({"op": "add", "path": "/spec/runtimeClassName", "value": additions.runtime_class})
    return patch


_NO_SCHEDULER = (None, "", "default-scheduler")  # the API server's default is filled in before (1.36)


def _asks_for_card(container: Container, *, names: Names) -> bool:
    try:
        return parse_units(str(container.limits.get(names.memory, "0"))) > 0
    except QuantityError:
        return False  # the API server refuses the pod in its own words


def _answer(review: _Review, response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": review.kind, "response": response})


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise WireError(f"the AdmissionReview cannot be read: {error}") from error
