"""Admission webhooks: a new pod is shown to a URL, which may change or refuse it.

The failure policy is Fail: a webhook that cannot be asked, or answers nonsense, stops the creation.
"""

import base64
import binascii
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from sandbox.apiserver.errors import ApiError, InternalError
from sandbox.apiserver.kinds import Kind, Manifest
from sandbox.apiserver.patches import json_patch

TIMEOUT_SECONDS = 10


class Admission:
    """Asks the configured webhooks. The URLs may be set at any time."""

    def __init__(self, *, mutating: str | None = None, validating: str | None = None) -> None:
        self.mutating = mutating
        """URL that may patch a new pod."""
        self.validating = validating
        """URL that may only allow or refuse it."""

    async def mutate(
        self, kind: Kind, manifest: Manifest, *, namespace: str, dry_run: bool, warnings: list[str]
    ) -> Manifest:
        """The object after the webhook's patch; the same one when there is no webhook."""
        if self.mutating is None:
            return manifest
        shown = {"kind": kind.kind, "apiVersion": kind.api_version, **manifest}
        url = self.mutating
        response = await _review(url, kind, shown, namespace=namespace, dry_run=dry_run, warnings=warnings)
        if not response.get("patch"):
            return manifest
        try:
            operations = msgspec.json.decode(base64.b64decode(response["patch"], validate=True))
            patched = json_patch(shown, operations)
        except (TypeError, ValueError, binascii.Error, ApiError) as error:
            raise _failed(url, f"its patch does not apply: {error}") from error
        if not isinstance(patched, dict):
            raise _failed(url, "its patch leaves no object")
        return patched

    async def validate(
        self, kind: Kind, manifest: Manifest, *, namespace: str, dry_run: bool, warnings: list[str]
    ) -> None:
        """Raises ApiError when the webhook refuses the object."""
        if self.validating is not None:
            shown = {"kind": kind.kind, "apiVersion": kind.api_version, **manifest}
            await _review(
                self.validating, kind, shown, namespace=namespace, dry_run=dry_run, warnings=warnings
            )


async def _review(
    url: str, kind: Kind, manifest: Manifest, *, namespace: str, dry_run: bool, warnings: list[str]
) -> Manifest:
    uid = str(uuid4())
    group_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    review = {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid,
            "kind": group_kind,
            "resource": resource,
            "requestKind": group_kind,
            "requestResource": resource,
            "name": manifest["metadata"].get("name", ""),
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": "kubernetes-admin",
                "groups": ["system:masters", "system:authenticated"],
            },
            "object": manifest,
            "oldObject": None,
            "dryRun": dry_run,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
    response = await _post(url, review)
    if response.get("uid") != uid:
        raise _failed(url, f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    warnings += [str(warning) for warning in response.get("warnings") or []]
    if response.get("allowed") is not True:
        raise _denied(url, response.get("status") or {})
    return response


async def _post(url: str, review: Manifest) -> Manifest:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(
                url, data=msgspec.json.encode(review), headers={"Content-Type": "application/json"}
            ) as answer,
        ):
            body = await answer.read()
            if answer.status != 200:
                text = body[:200].decode(errors="replace")
                raise _failed(url, f"the server answered {answer.status}: {text}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _failed(url, f'failed to call webhook: Post "{url}": {error}') from error
    try:
        decoded: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise _failed(url, f"the answer is not JSON: {error}") from error
    response = decoded.get("response") if isinstance(decoded, dict) else None
    if not isinstance(response, dict):
        raise _failed(url, "Webhook response was absent")
    return response


def _failed(url: str, why: str) -> InternalError:
    return InternalError.of(f'failed calling webhook "{url}": {why}')


def _denied(url: str, status: Manifest) -> ApiError:
    """A refusal keeps the code that the webhook chose; without one it is 403."""
    denied = f'admission webhook "{url}" denied the request'
    explanation = status.get("message") or status.get("reason")
    code = status.get("code")
    if not isinstance(code, int) or code < 400:
        code = 403
    reason = status.get("reason") or ("Forbidden" if code == 403 else "")
    return ApiError(
        f"{denied}: {explanation}" if explanation else f"{denied} without explanation",
        code=code,
        reason=reason,
    )
